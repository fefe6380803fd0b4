"""From a request's plan to the gate and back: what each form of it takes, and which to send."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from prefold.compression.gate import Form, Verdict, decide
from prefold.compression.worker.pool import WorkerPool
from prefold.proxy.compression.outlook import Outlook
from prefold.proxy.compression.plan import Piece, Plan
from prefold.proxy.compression.request import Asked, tokens_of
from prefold.proxy.errors import ApiError

SHARE_DECAY = 0.95
"""For each text that was compressed, of what is known of the share that is kept."""


class Choice(msgspec.Struct, frozen=True):
    """Of the pieces about which it is open what to do, the ones that were compressed before are to
    be sent so (`open`), and the rest to be waited for (`wait`)."""

    open: bool
    wait: bool
    reason: str
    verdict: Verdict | None = None


ALL = Choice(True, True, "on")
UNKNOWN = Choice(False, False, "unknown")


class Forecast:
    """Mutable: it learns what share of a text is kept."""

    def __init__(
        self,
        *,
        pool: WorkerPool,
        outlook: Outlook,
        rate: float,
        deadline_s: float,
        margin_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._outlook = outlook
        self._deadline_s = deadline_s
        self._margin_s = margin_s
        self._clock = clock
        self._rate = self._kept_share = rate

    def become(self, *, rate: float, deadline_s: float, margin_s: float) -> None:
        """Set anew, while requests pass."""
        self._deadline_s, self._margin_s = deadline_s, margin_s
        if rate != self._rate:
            self._rate = self._kept_share = rate

    def learn(self, kept_chars: int, chars: int) -> None:
        share = kept_chars / chars
        self._kept_share = SHARE_DECAY * self._kept_share + (1 - SHARE_DECAY) * share

    async def choice(self, asked: Asked, plan: Plan) -> Choice:
        """As the gate says. The forms: with what is compressed already in this conversation; also
        with all that was compressed before; also with what would have to be compressed now."""
        backends = self._outlook.backends(asked.model, self._clock())
        if not backends:
            return UNKNOWN
        fixed, usable = plan.usable(fixed_only=True), plan.usable()
        missing = [piece for piece in plan.missing() if not piece.fixed]

        async def form(pieces: Sequence[Piece]) -> Form:
            prompt = await asked.encode(plan.body(pieces)) if pieces else asked.prompt
            cached = self._outlook.cached(prompt, backends)
            return Form(tokens=tokens_of(prompt), cached_tokens=cached)

        try:
            forms, choices = [await form(fixed)], [(False, False)]
            if len(usable) > len(fixed):
                forms.append(await form(usable))
                choices.append((True, False))
        except ApiError:  # of a compressed body that cannot be read
            return UNKNOWN
        if missing:
            forms.append(self._estimate(forms[-1], missing, asked, plan))
            choices.append((True, True))
        verdict = decide(forms, self._outlook.places(backends, self._clock()), self._margin_s)
        # With nothing left to decide about, it is as it was sent before.
        reason = "kept" if fixed and len(forms) == 1 else verdict.reason
        return Choice(*choices[verdict.form], reason, verdict)

    def _estimate(self, base: Form, missing: Sequence[Piece], asked: Asked, plan: Plan) -> Form:
        """The form in which the missing pieces are compressed too. No cache holds it from the first
        of them on."""
        chars = sum(len(piece.segment.text) for piece in missing)
        per_char = tokens_of(asked.prompt) / len(plan.text)
        before = sum(missing[0].at) * per_char
        ready_s = self._pool.seconds_for(chars)
        return Form(
            tokens=max(base.tokens - chars * per_char * (1 - self._kept_share), 0.0),
            cached_tokens=[min(cached, before) for cached in base.cached_tokens],
            ready_s=ready_s if ready_s <= self._deadline_s else float("inf"),
        )
