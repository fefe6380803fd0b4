"""The path of a request, top to bottom. Read this file first.

Deciding is done elsewhere, by pure functions; here is the order of things, and who ends what.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from prefold.backends.backend import Backend, Mode
from prefold.backends.client import Client
from prefold.backends.errors import BackendError, UpstreamTimeout
from prefold.backends.pool import BackendPool
from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.prefix_index.index import PrefixIndex
from prefold.prefix_index.prefix import namespace_seed
from prefold.proxy import openai, prompt
from prefold.proxy.catalog import ModelCatalog
from prefold.proxy.errors import NoBackendAvailable, UpstreamFailed, UpstreamTimedOut
from prefold.proxy.exchange import BACKPRESSURE, Exchange
from prefold.proxy.headers import downstream_headers, upstream_headers
from prefold.proxy.prompt import Prompt
from prefold.proxy.recording import recorded
from prefold.proxy.relay import send_stream, send_whole
from prefold.proxy.request_body import read_body
from prefold.proxy.routing import Candidate, Decision, Policy, RequestShape, Weights, choose

MAX_ATTEMPTS = 2
RETRY_ELSEWHERE = BACKPRESSURE | {502}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """`secret` seeds the keys of the index; `tenant_header` ("": none) separates its users."""

    policy: Policy
    weights: Weights
    secret: bytes
    tenant_header: str
    max_json_depth: int
    decision_header: bool
    write_s: float


class Pipeline:
    """Requests whose prompt decides where they go: chat and text completions."""

    def __init__(
        self,
        *,
        client: Client,
        pool: BackendPool,
        index: PrefixIndex,
        catalog: ModelCatalog,
        options: PipelineOptions,
        observe: Callable[[RequestRecord], None],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._pool = pool
        self._index = index
        self._catalog = catalog
        self._options = options
        self._observe = observe
        self._clock = clock
        self._turn = 0

    async def run(
        self, request: web.Request, kind: type[openai.ChatBody] | type[openai.CompletionBody]
    ) -> web.StreamResponse:
        """Raises ApiError while nothing has been sent, ClientGone once nobody listens."""
        with recorded(kind.path, self._observe, self._clock) as record:
            raw = await read_body(request)
            call = openai.parse(kind, raw, self._options.max_json_depth)
            record.model = self._catalog.resolve(call.body.model, self._pool.models())
            record.streamed = bool(call.body.stream)
            record.parsed = self._clock()
            encoded = await self._encode(request, call, record)
            record.encoded = self._clock()
            exchange = await self._open(request, call, encoded, record)
            try:
                return await self._answer(request, call, exchange, record)
            finally:
                exchange.close()

    async def _encode(
        self, request: web.Request, call: openai.Request, record: RequestRecord
    ) -> Prompt:
        serving = [backend for backend in self._pool if backend.serves(record.model)]
        header = self._options.tenant_header
        seed = namespace_seed(
            self._options.secret,
            model=record.model,
            adapter=None,
            cache_salt=call.body.cache_salt,
            tenant=request.headers.get(header) if header else None,
        )
        encoder = self._catalog.encoder(record.model)
        encoded = await prompt.encode(
            call.body, encoder, seed, {backend.mode for backend in serving}
        )
        record.encoded_tokens = encoded.tokens
        return encoded

    async def _open(
        self, request: web.Request, call: openai.Request, encoded: Prompt, record: RequestRecord
    ) -> Exchange:
        """Choose, lease, send, until something of an answer is here. Up to then, and only then,
        one other backend may be tried. The caller closes the exchange."""
        tried: list[str] = []
        failure: BackendError | None = None
        while len(tried) < MAX_ATTEMPTS:
            candidates = self._pool.candidates(record.model, self._clock(), tried)
            if not candidates:
                break
            exchange = self._choose(candidates, encoded, record)
            record.failed_backends = list(tried)
            tried.append(exchange.backend.name)
            record.attempts = len(tried)
            taken = False
            try:
                await self._send(request, call, exchange, record)
                taken = not self._try_elsewhere(exchange, record.model, tried)
                if taken:
                    return exchange
            except UpstreamTimeout as error:
                # It may still be computing: a second prefill elsewhere would double the load.
                raise UpstreamTimedOut("The backend did not answer in time.") from error
            except BackendError as error:
                failure = error
            finally:
                if not taken:
                    exchange.close()
        if failure is not None:
            raise UpstreamFailed("The backend failed before it answered.") from failure
        raise NoBackendAvailable("No backend for this model is available now.")

    def _choose(
        self, candidates: list[Backend], encoded: Prompt, record: RequestRecord
    ) -> Exchange:
        decision = self._decide(candidates, encoded, record)
        record.chosen = record.chosen or self._clock()
        backend = self._pool[decision.backend]
        # A prompt without exact ids (an image, say) is routed by its bytes, whatever the backend.
        record.mode = Mode.APPROXIMATE if encoded.tokens is None else backend.mode
        record.backend, record.reason = backend.name, decision.reason
        record.available_tokens = decision.available_cached_tokens
        record.expected_tokens = decision.expected_cached_tokens
        uncached = encoded.prefix(Mode.FEEDBACK).length - decision.expected_cached_tokens
        prefix = encoded.prefix(backend.mode)
        return Exchange(backend, self._index, prefix, max(uncached, 0), self._clock)

    def _decide(
        self, candidates: list[Backend], encoded: Prompt, record: RequestRecord
    ) -> Decision:
        shape = encoded.prefix(Mode.FEEDBACK)  # the same whatever the order of the candidates
        matches = {}
        for mode in {backend.mode for backend in candidates}:
            names = [backend.name for backend in candidates if backend.mode is mode]
            prefix = encoded.prefix(mode)
            # Where bytes stand for tokens, their counts are brought to the length in tokens.
            scale = shape.length / max(prefix.length, 1)
            for name, match in self._index.match(prefix, names).items():
                matches[name] = (round(match.cached_tokens * scale), match.evicted_tokens)
        record.matched = record.matched or self._clock()
        self._turn += 1
        return choose(
            self._options.policy,
            [
                Candidate(
                    name=backend.name,
                    cached_tokens=matches[backend.name][0],
                    evicted_tokens=matches[backend.name][1],
                    queued_tokens=backend.queued_tokens,
                    in_flight=backend.in_flight,
                    prefill_tokens_per_s=self._pool.prefill_rate(backend),
                    waiting=backend.waiting,
                )
                for backend in candidates
            ],
            RequestShape(prompt_tokens=shape.length, affinity=shape.affinity()),
            self._turn,
            self._options.weights,
        )

    async def _send(
        self, request: web.Request, call: openai.Request, exchange: Exchange, record: RequestRecord
    ) -> None:
        backend = exchange.backend
        body = call.raw
        if call.body.model is not None and call.body.model != record.model:
            body = openai.with_member(body, "model", json.dumps(record.model))
        engine = backend.engine
        ask = (
            record.streamed
            and engine is not None
            and engine.needs_include_usage
            and call.body.stream_options is None
        )
        if ask:
            body = openai.with_member(body, "stream_options", '{"include_usage":true}')
        record.sent = self._clock()
        headers = upstream_headers(request.headers, backend.headers)
        await exchange.send(self._client, call.body.path, headers, body, strip_usage=ask)
        record.headers = self._clock()

    def _try_elsewhere(self, exchange: Exchange, model: str, tried: list[str]) -> bool:
        """Busy, or broken at a gateway of its own, and not told to leave it at that."""
        return (
            exchange.upstream.status in RETRY_ELSEWHERE
            and exchange.upstream.headers.get("x-should-retry") != "false"
            and len(tried) < MAX_ATTEMPTS
            and bool(self._pool.candidates(model, self._clock(), tried))
        )

    async def _answer(
        self, request: web.Request, call: openai.Request, exchange: Exchange, record: RequestRecord
    ) -> web.StreamResponse:
        status = exchange.upstream.status
        headers = downstream_headers(exchange.upstream.headers)
        if self._options.decision_header:
            headers["X-Prefold-Decision"] = (
                f"backend={record.backend}; reason={record.reason}; mode={record.mode};"
                f" expected_cached_tokens={record.expected_tokens}"
            )
        record.status = status
        record.tokens = exchange.meter.token_times
        write_s = self._options.write_s
        if exchange.stream is None:
            response = await send_whole(request, status, headers, exchange.first, write_s)
            failure = None
        else:
            response, failure = await send_stream(
                request, headers, exchange.first, exchange.stream, exchange.meter, write_s
            )
        if failure is not None:
            exchange.failed(failure)
        note_end(exchange, failure, record, several=call.body.several)
        return response


def note_end(
    exchange: Exchange, failure: BackendError | None, record: RequestRecord, *, several: bool
) -> None:
    """How it ended, and what the engine told of the prompt: for the record and the learned rate. Of
    several sequences in one request, what was cached and what was computed stays unknown."""
    answered, report = exchange.report()
    if failure is not None:
        record.outcome = RequestOutcome.UPSTREAM_FAILED
    else:
        record.outcome = RequestOutcome.OK if answered else RequestOutcome.UPSTREAM_ERROR
    record.prompt_tokens = report.prompt_tokens
    record.output_tokens = report.completion_tokens
    if several:
        return
    record.reported_tokens = report.cached_tokens
    seconds = report.prefill_s
    if seconds is None and exchange.first_in_line and record.tokens and record.sent is not None:
        seconds = record.tokens[0] - record.sent
    if report.prompt_tokens is None or report.cached_tokens is None or seconds is None:
        return
    exchange.backend.rate.observe(report.prompt_tokens - report.cached_tokens, seconds)
