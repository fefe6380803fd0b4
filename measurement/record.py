"""The raw facts of one request: tokens and moments. Every figure is computed from these later.

No prompt text, no token ids. Unknown is None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise

import msgspec

from prefold.measurement.divergence.record import Divergence


class RequestOutcome(StrEnum):
    OK = "ok"
    REJECTED = "rejected"  # refused by prefold: bad input, unknown model, no backend
    UPSTREAM_ERROR = "upstream_error"  # the engine answered with an error status or error event
    UPSTREAM_FAILED = "upstream_failed"  # no answer, or one that was cut
    CLIENT_GONE = "client_gone"
    CUT_OFF = "cut_off"  # by us: the process ended


class RequestRecord(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True):
    """Filled along the pipeline by its one owner, read-only after that. It refers to nothing that
    refers to it, so the garbage collector need not know it.

    Moments are seconds of one monotonic clock (time.perf_counter); `matched` and `chosen` are the
    first attempt's. Three kinds of prefix hit, in
    tokens, never mixed: `available` (best over the fleet by our index), `expected` (on the chosen
    backend by our index), `reported` (by the engine). `prompt_tokens` is the engine's figure where
    it gives one, `encoded_tokens` ours.
    """

    endpoint: str
    received: float
    request_id: str = ""
    """As the client was told it."""
    trace_id: str = ""
    """Of a trace that is recorded, as 32 hex digits."""
    model: str = ""  # a name the configuration or a backend knows; "" until it is resolved
    backend: str = ""
    mode: str = ""
    reason: str = ""
    outcome: RequestOutcome = RequestOutcome.REJECTED
    status: int = 0
    attempts: int = 0
    failed_backends: Sequence[str] = ()
    """Those of the attempts before the last one."""
    streamed: bool = False
    tenant: str = ""
    arm: str | None = None
    """Of an experiment."""
    slice_start: float | None = None
    """Of an experiment by time, when its slice and its round of slices began, in seconds since
    1970; without an arm: in the wash-out. None: of no such experiment."""
    round_start: float | None = None
    error: str = ""
    """The code of our error, or the class of the backend's failure."""

    encoded_tokens: int | None = None
    available_tokens: int | None = None
    expected_tokens: int | None = None
    prompt_tokens: int | None = None
    reported_tokens: int | None = None
    lost_tokens: int = 0
    """Believed by the index until its report, and not after it; the next one, the other way."""
    found_tokens: int = 0
    emptied: bool = False
    """It showed that the engine lost its cache."""
    output_tokens: int | None = None
    removed_tokens: int | None = None
    """By compression; None: it did not see the prompt."""
    compression: str = ""
    """The form that was sent: compressed, original, or shadow: the original, and looked on; "":
    compression did not look at it. The next says why."""
    compression_reason: str = ""
    shadow_tokens: int | None = None
    """That would have been removed."""
    predicted_token: float | None = None
    """When the gate expected the first token, and when with nothing more compressed: moments."""
    fallback_token: float | None = None
    compressor_waited_s: float | None = None
    """That it waited for a compressor; None: it asked none."""
    compressor_spent_s: float | None = None
    """Of compressors, on texts that it was the first to ask for; what is known at its end."""
    documents: int | None = None
    """That the client marked; None: they were not looked for, or there are none."""
    documents_moved: int = 0

    parsed: float | None = None
    encoded: float | None = None
    matched: float | None = None
    compressed: float | None = None
    chosen: float | None = None
    sent: float | None = None
    headers: float | None = None
    first_event: float | None = None
    """Of a stream that is understood; else the first bytes of an answer, or all of it."""
    tokens: Sequence[float] = ()
    token_kinds: Sequence[tuple[int, str]] = ()
    """From which of the tokens on they are of which kind."""
    other_events: Sequence[tuple[float, str]] = ()
    """Of a stream, those that carry no token, with their kinds."""
    end: float | None = None

    prefix_tokens: int | None = None
    """Length of the prompt that the next are the blocks of, in tokens, or in four bytes each."""
    blocks: Sequence[int] = ()
    """Keys of the beginnings of the prompt, one for each full block but the last; meant for keyed
    digests. Prompts share such lists: do not change one."""
    last_block: int | None = None
    """Likewise, of all full blocks; None: there is none."""
    conversation: int | None = None
    """Likewise a key."""
    divergence: Divergence | None = None
    """Where it parts from a recent prompt; None: that was not looked at."""

    @property
    def ttft_s(self) -> float | None:
        """Received to first token (content, reasoning or tool-call delta). Prefill's number."""
        return self.tokens[0] - self.received if self.tokens else None

    @property
    def itl_s(self) -> list[float]:
        """Gaps between consecutive token events, one each. Decode's number."""
        return [after - before for before, after in pairwise(self.tokens)]

    @property
    def e2e_s(self) -> float | None:
        """Received to last token of a stream, or to the end of a body that was not streamed."""
        last = self.tokens[-1] if self.tokens else self.end
        return None if last is None else last - self.received

    def stages_s(self) -> Iterator[tuple[str, float]]:
        """Seconds before the upstream call, by stage; stages that were not reached are out."""
        start = self.received
        for stage, end in (
            ("parse", self.parsed),
            ("encode", self.encoded),
            *((("compress", self.compressed),) if self.compressed is not None else ()),
            ("match", self.matched),
            ("choose", self.chosen),
        ):
            if end is None:
                return
            yield stage, end - start
            start = end
