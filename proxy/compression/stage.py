"""Compression in the path of a request: between its encoding and the choice of its backend.

Whatever goes wrong here, the request goes out as it came. Where that would take too long, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from prefold.compression.gate import Reason, Verdict
from prefold.compression.segment_cache import SegmentCache
from prefold.compression.worker.pool import WorkerPool
from prefold.measurement.record import RequestRecord
from prefold.proxy.compression.forecast import ALL, Forecast
from prefold.proxy.compression.forms import Forms
from prefold.proxy.compression.getting import Getting
from prefold.proxy.compression.plan import Piece, Plan
from prefold.proxy.compression.request import Asked, Sent, all_tokens_of, tokens_of
from prefold.proxy.compression.segments import turns
from prefold.proxy.compression.switch import Switch, Switches
from prefold.proxy.compression.texts import SegmentRules
from prefold.proxy.errors import ApiError, NotEncodable
from prefold.proxy.prompt import BYTES_PER_UNIT, Prompt

log = logging.getLogger(__name__)
MAX_RATES = 8
"""Of the latest ones it is known what was compressed at them."""
COMPRESSED, ORIGINAL, SHADOW = "compressed", "original", "shadow"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOptions:
    """`rate` is the share that is kept. Shorter prompts than `min_tokens` are not looked at, and
    shorter texts than `min_chars` stay."""

    switches: Switches
    rate: float
    min_tokens: int
    min_chars: int
    deadline_s: float
    speculative: bool
    secret: bytes
    tell_gain: bool
    """What the gate predicts says what others sent before."""


class Compression:
    """For one event loop."""

    def __init__(
        self,
        *,
        pool: WorkerPool,
        cache: SegmentCache,
        getting: Getting,
        forecast: Forecast,
        rules: SegmentRules,
        options: StageOptions,
        clock: Callable[[], float],
        forms: Forms,
    ) -> None:
        """`forms` may be told of by other processes."""
        self._pool = pool
        self._cache = cache
        self._getting = getting
        self._forecast = forecast
        self._rules = rules
        self._options = options
        self._rates: tuple[float, ...] = (options.rate,)
        self._clock = clock
        self._forms = forms
        self._shadow_forms = Forms()
        """What they would be."""
        self._shadows: set[asyncio.Task[None]] = set()

    def become(self, options: StageOptions, *, margin_s: float) -> None:
        """Set anew, while requests pass. What conversations hold keeps its form: so texts that were
        long enough before are told as before, and earlier rates are known."""
        self._options = options
        others = [rate for rate in self._rates if rate != options.rate]
        self._rates = (options.rate, *others)[:MAX_RATES]
        if options.min_chars < self._rules.min_chars:
            self._rules = replace(self._rules, min_chars=options.min_chars)
        self._getting.become(deadline_s=options.deadline_s, speculative=options.speculative)
        self._forecast.become(rate=options.rate, deadline_s=options.deadline_s, margin_s=margin_s)

    async def sent(self, asked: Asked) -> Sent | None:
        """None: as it came, without a word of it. Raises BadRequest for a header that asks for what
        there is not."""
        switches = self._options.switches
        switch = switches.of(asked.model, asked.arm, asked.headers, asked.tenant)
        if switch is None or tokens_of(asked.prompt) < self._options.min_tokens:
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
            rates=self._rates,
            min_chars=self._options.min_chars,
            secret=secret,
        )

    async def _choose(self, asked: Asked, plan: Plan, switch: Switch) -> Sent:
        if not plan.pieces:
            plan.note(())
            return self._as_it_came(asked, switch, ORIGINAL, Reason.NOTHING)
        left_s = await self._getting.recall(plan)
        begun = self._clock()
        choice = ALL if switch is Switch.ON else await self._forecast.choice(asked, plan)
        if not choice.wait:
            self._getting.for_later(plan.missing(), asked.record)
        reason = choice.reason
        wanted = plan.missing(fixed_only=not choice.wait)
        if wanted:
            why = await self._getting.compressed(plan, wanted, asked.record, left_s)
            reason = why or reason
        pieces = plan.usable(fixed_only=not choice.open)
        self._predict(asked.record, choice.verdict, begun)
        return await self._form(asked, plan, pieces, switch, reason)

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
        tokens = f" tokens={about}{before}->{about}{after};"
        told = self._told(switch, COMPRESSED, reason, tokens, record)
        return Sent(raw, prompt, told)

    async def _shorter(
        self, asked: Asked, plan: Plan, pieces: Sequence[Piece]
    ) -> tuple[bytes, Prompt, int, int] | None:
        """Body and prompt, and the tokens before and after, units of bytes where those are not
        known; None if it is no shorter, or an engine might not take it."""
        try:
            raw = plan.body(pieces)
            prompt = await asked.encode(raw)
            if asked.prompt.tokens is None:
                before, after = len(asked.raw) // BYTES_PER_UNIT, len(raw) // BYTES_PER_UNIT
            else:
                before, after = await all_tokens_of(asked.prompt), await all_tokens_of(prompt)
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
        return Sent(asked.raw, asked.prompt, self._told(switch, form, reason, "", record))

    def _told(
        self, switch: Switch, form: str, reason: str, tokens: str, record: RequestRecord
    ) -> str:
        told = f"mode={switch}; form={form}; compressor={self._pool.name};{tokens} reason={reason}"
        expected, fallback = record.predicted_token, record.fallback_token
        if expected is None or fallback is None or not self._options.tell_gain:
            return told
        return f"{told}; predicted_gain_s={fallback - expected:.3f}"

    def _predict(self, record: RequestRecord, verdict: Verdict | None, begun: float) -> None:
        if verdict is not None:
            record.predicted_token = begun + verdict.chosen_s
            record.fallback_token = begun + verdict.fallback_s

    def _look_on(self, asked: Asked, plan: Plan) -> None:
        """Beside the request: what would have been saved is noted if it is known before its end."""
        task = asyncio.create_task(self._measure(asked, plan), name="compression in the shadow")
        self._shadows.add(task)
        task.add_done_callback(self._shadows.discard)

    async def _measure(self, asked: Asked, plan: Plan) -> None:
        left_s = await self._getting.recall(plan)
        if missing := plan.missing():
            await self._getting.compressed(plan, missing, asked.record, left_s, waiting=False)
        pieces = plan.usable()
        made = await self._shorter(asked, plan, pieces) if pieces else None
        plan.note(pieces if made is not None else ())
        if made is not None and asked.record.end is None:
            asked.record.shadow_tokens = made[2] - made[3]
