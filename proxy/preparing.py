"""From a request to the call that a backend gets: body, model, prompt, and where its state is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from prefold.backends.backend import Mode
from prefold.backends.pool import BackendPool
from prefold.measurement.record import RequestRecord
from prefold.prefix_index.chain_memo import ChainMemo
from prefold.proxy import openai, prompt
from prefold.proxy.arms import Arm, Arms
from prefold.proxy.body_memo import BodyMemo
from prefold.proxy.call import Call
from prefold.proxy.catalog import ModelCatalog
from prefold.proxy.compression.request import Asked
from prefold.proxy.compression.stage import Compression
from prefold.proxy.divergence import Divergences
from prefold.proxy.documents.documents import Documents
from prefold.proxy.errors import BadRequest, NotSupported, ResponseNotFound
from prefold.proxy.hints import Hints
from prefold.proxy.http.request import Request
from prefold.proxy.ledger_notes import LedgerNotes
from prefold.proxy.masks import Masks
from prefold.proxy.namespaces import Namespaces
from prefold.proxy.openai import Body, ChatBody
from prefold.proxy.pins import Pins
from prefold.proxy.prompt import Prompt
from prefold.proxy.protocol import CHUNKS, OPAQUE, Protocol, protocol_of
from prefold.proxy.responses import ResponsesBody
from prefold.proxy.slices import Slices
from prefold.proxy.uploads import Upload, is_upload


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparingOptions:
    """`secret` seeds the keys of the index. `isolate`: tenants are kept apart, in the engines too;
    `tenant_header` ("": none) separates users further. `pinned_backend` ("": none) holds what is
    stored: files, batches and the like. `hints`, and `masks` where there are any, settle ties."""

    secret: bytes
    isolate: bool
    tenant_header: str
    pinned_backend: str
    bounds: openai.Bounds
    max_body_bytes: int
    max_upload_bytes: int
    hints: Hints
    masks: Masks | None = None
    documents: Documents | None = None
    """None: they stay in the order that they come in."""


class Preparing:
    def __init__(
        self,
        *,
        pool: BackendPool,
        catalog: ModelCatalog,
        pins: Pins,
        options: PreparingOptions,
        clock: Callable[[], float],
        notes: LedgerNotes | None = None,
        arms: Arms | None = None,
        slices: Slices | None = None,
        compression: Compression | None = None,
        divergences: Divergences | None = None,
    ) -> None:
        """At most one of `arms` and `slices`."""
        self._arms = arms
        self._slices = slices
        self._compression = compression
        self._divergences = divergences
        self._pool = pool
        self._catalog = catalog
        self._pins = pins
        self._options = options
        self._clock = clock
        self._notes = notes
        self._bodies = BodyMemo()
        self._chains = ChainMemo()
        self._spaces = Namespaces(
            options.secret, isolate=options.isolate, tenant_header=options.tenant_header
        )

    async def by_prefix(self, request: Request, record: RequestRecord, kind: type[Body]) -> Call:
        """Raises ApiError, as all of these do."""
        raw = await request.body.read(self._options.max_body_bytes)
        body = self._parse(kind, raw)
        record.model = self._catalog.resolve(body.model, self._pool.models())
        record.streamed = bool(body.stream)
        tenant = self._spaces.tenant(request.tenant, request.headers)
        session = self._options.hints.session(request.headers)
        arm = None
        if self._arms is not None and self._arms.there:
            arm = self._arm(self._arms, session, body, record, tenant)
        elif self._slices is not None:
            arm = _arm_now(self._slices, record)
        order = ""
        if self._options.documents is not None:
            raw, body, order = self._arrange(request, raw, body, record, tenant)
        record.parsed = self._clock()
        salt = self._spaces.salt(tenant, body.cache_salt)
        encoded = await self._encode(session, body, record, tenant, salt)
        record.encoded = self._clock()
        if self._divergences is not None:
            seed = self._spaces.seed(record.model, body.cache_salt, tenant)
            record.divergence = self._divergences.look(body, len(raw), seed, encoded)
        if self._notes is not None and record.conversation is None:
            record.conversation = self._notes.conversation(body, session, tenant, record.model)
        shortened = ""
        if self._compression is not None:
            raw, encoded, shortened = await self._shorten(
                self._compression, request, raw, body, record, encoded, tenant, salt, arm
            )
        if self._notes is not None:
            self._notes.prompt(encoded, record)
        if body.model is not None and body.model != record.model:
            raw = openai.with_member(raw, "model", json.dumps(record.model))
        protocol = protocol_of(kind.path)
        options = getattr(body, "stream_options", None)
        return Call(
            protocol=protocol,
            method="POST",
            target=_target(request, kind.path),
            headers=request.headers,
            request_id=request.request_id,
            body=raw,
            model=record.model,
            prompt=encoded,
            pinned=self._pinned(body, tenant) if isinstance(body, ResponsesBody) else None,
            usage_wanted=protocol is CHUNKS and record.streamed and options is None,
            salt=salt,
            several=body.several,
            tenant=tenant,
            documents=order,
            compression=shortened,
            arm=arm,
        )

    def _arm(
        self, arms: Arms, session: str | None, body: Body, record: RequestRecord, tenant: str
    ) -> Arm | None:
        """None where no conversation is known: what belongs together could not be kept together."""
        key = arms.conversation(body, session, tenant, record.model)
        if key is None:
            return None
        if self._notes is not None:  # otherwise the ledger is to hold none
            record.conversation = key
        arm = arms.assign(key, record.model)
        record.arm = None if arm is None else arm.name
        return arm

    def _parse(self, kind: type[Body], raw: bytes) -> Body:
        if kind is ChatBody:
            return openai.parse_chat(raw, self._options.bounds, self._bodies)
        return openai.parse(kind, raw, self._options.bounds)

    def _arrange(
        self, request: Request, raw: bytes, body: Body, record: RequestRecord, tenant: str
    ) -> tuple[bytes, Body, str]:
        """With its documents in the order that shares most, and which of them moved. It is read
        again: what decides is what is sent."""
        assert self._options.documents is not None
        seed = self._spaces.seed(record.model, body.cache_salt, tenant)
        arranged = self._options.documents.arrange(raw, record.model, request.headers, seed)
        if arranged is None:
            return raw, body, ""
        record.documents = arranged.documents
        if not arranged.moved:
            return raw, body, ""
        try:
            body = self._parse(type(body), arranged.raw)
        except BadRequest:
            return raw, body, ""
        record.documents_moved = arranged.moved
        return arranged.raw, body, arranged.order

    async def _shorten(
        self,
        compression: Compression,
        request: Request,
        raw: bytes,
        body: Body,
        record: RequestRecord,
        encoded: Prompt,
        tenant: str,
        salt: str | None,
        arm: Arm | None,
    ) -> tuple[bytes, Prompt, str]:
        """The body that is to be sent, its prompt, and what the client is told."""

        async def encode(shorter: bytes) -> Prompt:
            other = openai.parse(type(body), shorter, self._options.bounds)
            session = self._options.hints.session(request.headers)
            return await self._encode(session, other, record, tenant, salt)

        sent = await compression.sent(
            Asked(
                raw=raw,
                model=record.model,
                headers=request.headers,
                tenant=request.tenant,
                arm="" if arm is None else arm.compression,
                seed=self._spaces.seed(record.model, body.cache_salt, tenant),
                prompt=encoded,
                encode=encode,
                record=record,
            )
        )
        return (raw, encoded, "") if sent is None else (sent.raw, sent.prompt, sent.told)

    async def by_load(self, request: Request, record: RequestRecord) -> Call:
        """A JSON body or a form names its model; what names none goes to any backend."""
        path = request.path
        if is_upload(request):
            return await self._upload(request, record, pinned=None)
        raw = await request.body.read(self._options.max_body_bytes)
        name = openai.named_model(raw)
        if name is not None:
            record.model = self._catalog.resolve(name, self._pool.models())
            if record.model != name:
                raw = openai.with_member(raw, "model", json.dumps(record.model))
        record.parsed = self._clock()
        return self._call(request, raw, protocol=protocol_of(path), model=record.model)

    async def by_id(self, request: Request, record: RequestRecord) -> Call:
        """What a response's id is asked for: it is where the response was made."""
        raw = await request.body.read(self._options.max_body_bytes)
        record.parsed = self._clock()
        holder = self._holder(
            request.params["response"], self._spaces.tenant(request.tenant, request.headers)
        )
        return self._call(request, raw, protocol=protocol_of(request.path), pinned=holder)

    async def stateful(self, request: Request, record: RequestRecord) -> Call:
        """Files, batches and the like live on one backend, which the settings name."""
        if not self._options.pinned_backend:
            raise NotSupported("This path keeps state on one backend, and none is set for it.")
        if self._options.isolate:
            raise NotSupported("This path keeps state that tenants would share.")
        if is_upload(request):
            return await self._upload(request, record, pinned=self._options.pinned_backend)
        raw = await request.body.read(self._options.max_body_bytes)
        record.parsed = self._clock()
        return self._call(request, raw, pinned=self._options.pinned_backend)

    async def _upload(self, request: Request, record: RequestRecord, *, pinned: str | None) -> Call:
        upload = Upload(request.body, self._options.max_upload_bytes)
        name = await upload.peek()
        if name is not None and pinned is None:
            record.model = self._catalog.resolve(name, self._pool.models())
            if record.model != name:
                upload.rename(record.model)
        record.parsed = self._clock()
        return self._call(request, upload.chunks(), model=record.model, pinned=pinned)

    def _call(
        self,
        request: Request,
        body: bytes | AsyncIterator[bytes],
        *,
        protocol: Protocol = OPAQUE,
        model: str = "",
        pinned: str | None = None,
    ) -> Call:
        """Of a request whose prompt is not looked into."""
        return Call(
            protocol=protocol,
            method=request.method,
            target=_target(request, request.path),
            headers=request.headers,
            request_id=request.request_id,
            body=body,
            model=model or None,
            pinned=pinned,
            tenant=self._spaces.tenant(request.tenant, request.headers),
        )

    async def _encode(
        self, session: str | None, body: Body, record: RequestRecord, tenant: str, salt: str | None
    ) -> Prompt:
        seed = self._spaces.seed(record.model, body.cache_salt, tenant)
        encoder = self._catalog.encoder(record.model)
        modes = {backend.mode for backend in self._pool if backend.serves(record.model)}
        told = None
        if Mode.EVENTS in modes:
            told = self._spaces.engine_seed(
                self._adapter(record.model), body.cache_salt if salt is None else salt
            )
        affinity, parts = self._affinity(session, body, record.model, seed)
        encoded = await prompt.encode(
            body, encoder, seed, modes, self._chains, told, affinity=affinity, parts=parts
        )
        record.encoded_tokens = encoded.tokens
        return encoded

    def _affinity(
        self, session: str | None, body: Body, model: str, seed: int
    ) -> tuple[int | None, list[Any] | None]:
        """What settles near-ties in place of the prompt's beginning: what the client says, else the
        beginning less what is masked. And the prompt's parts less what the engine takes out; None
        for what is as it is."""
        masks, parts = self._options.masks, None
        affinity = self._options.hints.affinity(session, body.prompt_cache_key, seed)
        if masks is not None and (masked := masks.look(model, body.key_parts())) is not None:
            affinity = masked.affinity(seed) if affinity is None else affinity
            parts = masked.parts
        return affinity, parts

    def _adapter(self, model: str) -> str | None:
        """The model's name, if that is an adapter's on a backend that tells what it holds."""
        told = (backend for backend in self._pool if backend.mode is Mode.EVENTS)
        return model if any(model in backend.adapters for backend in told) else None

    def _pinned(self, body: ResponsesBody, tenant: str) -> str | None:
        if body.conversation is not None:
            if not self._options.pinned_backend or self._options.isolate:
                raise NotSupported("Conversations are kept by a backend, and none is set for them.")
            return self._options.pinned_backend
        if body.previous_response_id is None:
            return None
        return self._holder(body.previous_response_id, tenant)

    def _holder(self, response_id: str, tenant: str) -> str:
        """The backend that made it. After a restart of ours the ids are unknown: with one backend
        there is no choice anyway, unless it would show one tenant what another one stored."""
        name = self._pins.find(tenant, response_id)
        names = [backend.name for backend in self._pool]
        if name is None and len(names) == 1 and not self._options.isolate:
            return names[0]
        if name not in names:
            raise ResponseNotFound("No response with this id is known here.")
        return name


def _arm_now(slices: Slices, record: RequestRecord) -> Arm | None:
    """Of whatever comes now, to its end, whichever slice that is in. During the wash-out it is
    served as the arm has it, and recorded as in none."""
    found, counts = slices.now()
    arm = found.arm
    if arm.models and record.model not in arm.models:
        return None
    record.slice_start, record.round_start = found.start, found.round_start
    record.arm = arm.name if counts else None
    return arm


KEYS_IN_QUERIES = frozenset(("api_key", "api-key", "key", "access_token"))


def _target(request: Request, path: str) -> str:
    """The query passes too, but for a key in it: it decides nothing here."""
    if not request.query:
        return path
    kept = [
        field
        for field in request.query.split("&")
        if unquote(field.partition("=")[0]).lower() not in KEYS_IN_QUERIES
    ]
    return f"{path}?{'&'.join(kept)}" if kept else path
