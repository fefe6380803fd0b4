"""Compression in the path of a request: between its encoding and the choice of its backend.

Whatever goes wrong here, the request goes out as it came. Where that would take too long, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

import msgspec

from prefold.backends.backend import Mode
from prefold.compression.gate import Form, Reason, Verdict, decide
from prefold.compression.segment_cache import Flights, SegmentCache
from prefold.compression.worker.pool import WorkerPool
from prefold.measurement.record import RequestRecord
from prefold.proxy.compression.forms import Forms
from prefold.proxy.compression.outlook import Outlook
from prefold.proxy.compression.plan import Piece, Plan
from prefold.proxy.compression.segments import SegmentRules, turns
from prefold.proxy.errors import ApiError, BadRequest, NotEncodable
from prefold.proxy.prompt import Prompt

log = logging.getLogger(__name__)
HEADER = "X-Prefold-Compression"
"""Of a request: the mode. Of an answer: what was done."""
COMPRESSED, ORIGINAL, SHADOW = "compressed", "original", "shadow"
SHARE_DECAY = 0.95


class Switch(StrEnum):
    OFF = "off"
    SHADOW = "shadow"  # compress, measure, send the original
    ON = "on"
    AUTO = "auto"  # the gate decides


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOptions:
    """`rate` is the share that is kept. Shorter prompts than `min_tokens` are not looked at.
    `models`: those that are set otherwise than `switch`. Requests of tenants in `forbidden` are
    never compressed. `by_header`: a request may ask for it also where it is off."""

    switch: Switch
    models: Mapping[str, Switch]
    forbidden: Collection[str]
    by_header: bool
    rate: float
    min_tokens: int
    deadline_s: float
    margin_s: float
    speculative: bool
    secret: bytes


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """`tenant` as the key says; `arm`: the mode of its arm, "" for none of its own; `seed` parts what engines keep apart. `encode` makes the prompt of
    another body."""

    raw: bytes
    model: str
    headers: Mapping[str, str]
    tenant: str
    arm: str
    seed: int
    prompt: Prompt
    encode: Callable[[bytes], Awaitable[Prompt]]
    record: RequestRecord


class Sent(msgspec.Struct, frozen=True):
    """What is to be sent, and what the client is told of it."""

    raw: bytes
    prompt: Prompt
    told: str


class _Choice(msgspec.Struct, frozen=True):
    """What is wanted: of the open pieces, those that are missing (`wait`), those that are there
    (`open`), or none."""

    open: bool
    wait: bool
    reason: str
    verdict: Verdict | None = None


class Compression:
    """For one event loop."""

    def __init__(
        self,
        *,
        pool: WorkerPool,
        cache: SegmentCache,
        flights: Flights,
        outlook: Outlook,
        rules: SegmentRules,
        options: StageOptions,
        clock: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._cache = cache
        self._flights = flights
        self._outlook = outlook
        self._rules = rules
        self._options = options
        self._clock = clock
        self._forms = Forms()
        self._shadow_forms = Forms()
        """What they would be."""
        self._kept_share = options.rate
        self._shadows: set[asyncio.Task[None]] = set()

    async def sent(self, asked: Asked) -> Sent | None:
        """None: as it came, without a word of it. Raises BadRequest for a header that asks for what
        there is not."""
        switch = self._switch(asked)
        if switch is None or asked.prompt.prefix(Mode.FEEDBACK).length < self._options.min_tokens:
            return None
        plan = self._plan(asked, self._shadow_forms if switch is Switch.SHADOW else self._forms)
        if plan is None:
            return None
        if switch is Switch.OFF:
            plan.note(())
            return None
        asked.record.removed_tokens = 0
        if switch is Switch.SHADOW:
            self._look_on(asked, plan)
            return self._as_it_came(asked, switch, SHADOW, "shadow")
        return await self._choose(asked, plan, switch)

    def close(self) -> None:
        for task in self._shadows:
            task.cancel()

    def _switch(self, asked: Asked) -> Switch | None:
        """None: it is not to be looked at."""
        options = self._options
        switch = options.models.get(asked.model, options.switch)
        if asked.arm:
            switch = Switch(asked.arm)
        value = asked.headers.get(HEADER)
        if value is not None:
            try:
                wanted = Switch(value.strip().lower())
            except ValueError:
                raise BadRequest(f"{HEADER}: expected one of {', '.join(Switch)}.") from None
            if switch is Switch.OFF and not options.by_header:
                return None
            switch = wanted
        elif switch is Switch.OFF:
            return None
        return None if asked.tenant in options.forbidden else switch

    def _plan(self, asked: Asked, forms: Forms) -> Plan | None:
        digest = self._pool.digest
        if digest is None:
            return None
        try:
            text = asked.raw.decode()
            found = turns(text, self._rules)
        except (ValueError, RecursionError):
            log.debug("the texts of a request could not be told; it goes out as it came")
            return None
        seed = asked.seed.to_bytes(8, "little")
        secret = blake2b(seed, key=self._options.secret[:64], digest_size=32).digest()
        return Plan(
            text,
            found,
            forms,
            self._cache,
            compressor=digest,
            rate=self._options.rate,
            secret=secret,
        )

    async def _choose(self, asked: Asked, plan: Plan, switch: Switch) -> Sent:
        begun = self._clock()
        if not plan.pieces:
            plan.note(())
            return self._as_it_came(asked, switch, ORIGINAL, Reason.NOTHING)
        if switch is Switch.ON:
            choice = _Choice(True, True, "on")
        else:
            choice = await self._judge(asked, plan)
            if not choice.wait and self._options.speculative:
                for piece in plan.missing():
                    self._flights.start(piece.key, piece.segment.text, self._options.rate)
        reason = choice.reason
        wanted = plan.missing(fixed_only=not choice.wait)
        if wanted and not await self._compressed(plan, wanted):
            reason = "late"
        pieces = plan.usable(fixed_only=not choice.open)
        self._predict(asked.record, choice.verdict, begun)
        return await self._form(asked, plan, pieces, switch, reason)

    async def _compressed(self, plan: Plan, wanted: Sequence[Piece]) -> bool:
        """Whether all are there in time; nothing is waited for that is known to come too late."""
        deadline_s, rate = self._options.deadline_s, self._options.rate
        chars = sum(len(piece.segment.text) for piece in wanted)
        if self._pool.seconds_for(chars) > deadline_s:
            for piece in wanted if self._options.speculative else ():
                self._flights.start(piece.key, piece.segment.text, rate)
            return False
        texts = {piece.key: piece.segment.text for piece in wanted}
        await self._flights.wait(list(texts.items()), rate, deadline_s)
        plan.look_again()
        for key, text in texts.items():
            if (kept := plan.kept.get(key)) is not None:
                share = kept.chars / len(text)
                self._kept_share = SHARE_DECAY * self._kept_share + (1 - SHARE_DECAY) * share
        return all(key in plan.kept for key in texts)

    async def _form(
        self, asked: Asked, plan: Plan, pieces: Sequence[Piece], switch: Switch, reason: str
    ) -> Sent:
        """With these pieces compressed, if that is shorter in the engine's own tokens."""
        record = asked.record
        made = await self._shorter(asked, plan, pieces) if pieces else None
        plan.note(pieces if made is not None else ())
        if made is None:
            return self._as_it_came(asked, switch, ORIGINAL, "larger" if pieces else reason)
        raw, prompt, before, after = made
        exact = prompt.tokens is not None and asked.prompt.tokens is not None
        record.encoded_tokens = before if exact else asked.prompt.tokens
        record.removed_tokens = before - after if exact else None
        record.compression, record.compression_reason = COMPRESSED, reason
        record.compressed = self._clock()
        about = "" if exact else "~"
        told = self._told(switch, COMPRESSED, reason, f" tokens={about}{before}->{about}{after};")
        return Sent(raw, prompt, told)

    async def _shorter(
        self, asked: Asked, plan: Plan, pieces: Sequence[Piece]
    ) -> tuple[bytes, Prompt, int, int] | None:
        """Body and prompt, and the tokens before and after; None if it is no shorter, or an engine
        might not take it."""
        try:
            raw = plan.body(pieces)
            prompt = await asked.encode(raw)
            before, after = await _length(asked.prompt), await _length(prompt)
        except (ApiError, NotEncodable, ValueError) as error:
            log.debug("a compressed prompt could not be used: %s", type(error).__name__)
            return None
        same_unit = (prompt.tokens is None) == (asked.prompt.tokens is None)
        return (raw, prompt, before, after) if same_unit and after < before else None

    def _as_it_came(self, asked: Asked, switch: Switch, form: str, reason: str) -> Sent:
        record = asked.record
        record.encoded_tokens = asked.prompt.tokens
        record.compression, record.compression_reason = form, reason
        record.compressed = self._clock()
        return Sent(asked.raw, asked.prompt, self._told(switch, form, reason))

    def _told(self, switch: Switch, form: str, reason: str, tokens: str = "") -> str:
        return f"mode={switch}; form={form}; compressor={self._pool.name};{tokens} reason={reason}"

    def _predict(self, record: RequestRecord, verdict: Verdict | None, begun: float) -> None:
        if verdict is not None:
            record.predicted_token = begun + verdict.chosen_s
            record.fallback_token = begun + verdict.fallback_s

    async def _judge(self, asked: Asked, plan: Plan) -> _Choice:
        """As the gate says. The forms: with what is compressed already in this conversation; also
        with all that was compressed before; also with what would have to be compressed now."""
        backends = self._outlook.backends(asked.model, self._clock())
        if not backends:
            return _Choice(False, False, "unknown")
        places = self._outlook.places(backends)
        fixed, usable = plan.usable(fixed_only=True), plan.usable()
        missing = [piece for piece in plan.missing() if not piece.fixed]

        async def form(pieces: Sequence[Piece]) -> Form:
            prompt = await asked.encode(plan.body(pieces)) if pieces else asked.prompt
            cached = self._outlook.cached(prompt, backends)
            return Form(tokens=prompt.prefix(Mode.FEEDBACK).length, cached_tokens=cached)

        try:
            forms, choices = [await form(fixed)], [(False, False)]
            if len(usable) > len(fixed):
                forms.append(await form(usable))
                choices.append((True, False))
        except (ApiError, NotEncodable):
            return _Choice(False, False, "unknown")
        if missing:
            forms.append(self._estimate(forms[-1], missing, asked, plan))
            choices.append((True, True))
        verdict = decide(forms, places, self._options.margin_s)
        reason = verdict.reason
        if len(forms) == 1 and fixed:
            reason = Reason.PAYS
        return _Choice(*choices[verdict.form], reason, verdict)

    def _estimate(self, base: Form, missing: Sequence[Piece], asked: Asked, plan: Plan) -> Form:
        """The form in which the missing pieces are compressed too. No cache holds it from the first
        of them on."""
        chars = sum(len(piece.segment.text) for piece in missing)
        tokens = asked.prompt.prefix(Mode.FEEDBACK).length
        per_char = tokens / len(plan.text)
        before = sum(missing[0].at) * per_char
        ready_s = self._pool.seconds_for(chars)
        return Form(
            tokens=max(base.tokens - chars * per_char * (1 - self._kept_share), 0.0),
            cached_tokens=[min(cached, before) for cached in base.cached_tokens],
            ready_s=ready_s if ready_s <= self._options.deadline_s else float("inf"),
        )

    def _look_on(self, asked: Asked, plan: Plan) -> None:
        """Beside the request: what would have been saved is noted if it is known before its end."""
        task = asyncio.create_task(self._measure(asked, plan), name="compression in the shadow")
        self._shadows.add(task)
        task.add_done_callback(self._shadows.discard)

    async def _measure(self, asked: Asked, plan: Plan) -> None:
        if missing := plan.missing():
            await self._compressed(plan, missing)
        pieces = plan.usable()
        made = await self._shorter(asked, plan, pieces) if pieces else None
        plan.note(pieces if made is not None else ())
        if made is not None and asked.record.end is None:
            asked.record.shadow_tokens = made[2] - made[3]


async def _length(prompt: Prompt) -> int:
    """In its own tokens, all of it; raises NotEncodable."""
    if prompt.whole is not None:
        return (await asyncio.shield(prompt.whole)).length
    return prompt.prefix(Mode.FEEDBACK).length
