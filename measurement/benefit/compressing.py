"""What compression did to a group's requests, and how right its gate was, from their rows."""

from __future__ import annotations

import msgspec

from prefold.measurement.ledger.reader import LedgerRow

SHORTENED = "compressed"
UNTOLD = "unknown"
"""Of a ledger that did not keep why."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """Of `requests` that were sent for one reason, whose first token was predicted and was seen.

    Of `chosen` ones the gate chose a shorter form: seconds of TTFT that it predicted to gain, and
    the same prediction for the form to fall back on less the TTFT that was measured; None: of none.
    Errors are of all: the TTFT less that predicted for the form that was chosen, on average.
    """

    requests: int
    chosen: int
    predicted_gain_s: float | None
    actual_gain_s: float | None
    error_s: float
    absolute_error_s: float


class Compression(msgspec.Struct, frozen=True, kw_only=True):
    """Of the `requests` that compression looked at; tokens removed as far as they are known, which
    takes exact ids. `seconds` is the time it took them, each one's from
    what came before it to its end; of that `waited_s` for a compressor. `spent_s` are seconds of
    compressors, also on what was not waited for. None: not told for any.

    Of `gated` ones, those that were shortened since a gate predicted a gain: TTFT of the prompt as
    it came, as predicted, less that of what was sent, as predicted and as it was.
    """

    requests: int
    removed_tokens: int
    seconds: float | None
    waited_s: float | None
    spent_s: float | None
    gated: int
    predicted_gain_s: float
    actual_gain_s: float
    gate: dict[str, Gate]
    """By the reason why what was sent was sent."""


class Compressing:
    """Mutable; only answered requests are to be added."""

    def __init__(self) -> None:
        self._requests = self._removed = 0
        self._seconds: list[float] = []
        self._waited: list[float] = []
        self._spent: list[float] = []
        self._gains: list[tuple[float, float]] = []
        self._gates: dict[str, list[tuple[float, float, float]]] = {}
        """By reason, of each request: predicted gain, actual gain, error."""

    def add(self, row: LedgerRow) -> None:
        if row.compression is None and row.removed_tokens is None:
            return
        self._requests += 1
        self._removed += row.removed_tokens or 0
        for told, values in (
            (compressor_s(row), self._seconds),
            (row.compressor_waited, self._waited),
            (row.compressor_spent, self._spent),
        ):
            if told is not None:
                values.append(told)
        if not row.tokens or row.predicted is None or row.fallback is None:
            return
        first = row.tokens[0]
        gain, actual = row.fallback - row.predicted, row.fallback - first
        if row.removed_tokens or row.compression == SHORTENED:
            self._gains.append((gain, actual))
        reason = row.compression_reason or UNTOLD
        self._gates.setdefault(reason, []).append((gain, actual, first - row.predicted))

    def figures(self) -> Compression | None:
        if not self._requests:
            return None
        return Compression(
            requests=self._requests,
            removed_tokens=self._removed,
            seconds=_sum(self._seconds),
            waited_s=_sum(self._waited),
            spent_s=_sum(self._spent),
            gated=len(self._gains),
            predicted_gain_s=sum(predicted for predicted, _ in self._gains),
            actual_gain_s=sum(actual for _, actual in self._gains),
            gate={reason: _gate(seen) for reason, seen in sorted(self._gates.items())},
        )


def _gate(seen: list[tuple[float, float, float]]) -> Gate:
    chosen = [(gain, actual) for gain, actual, _ in seen if gain > 0]
    return Gate(
        requests=len(seen),
        chosen=len(chosen),
        predicted_gain_s=_sum([gain for gain, _ in chosen]),
        actual_gain_s=_sum([actual for _, actual in chosen]),
        error_s=sum(error for _, _, error in seen) / len(seen),
        absolute_error_s=sum(abs(error) for _, _, error in seen) / len(seen),
    )


def _sum(values: list[float]) -> float | None:
    return sum(values) if values else None


def compressor_s(row: LedgerRow) -> float | None:
    """From the latest moment before it to when the prompt was shortened."""
    if row.compressed is None:
        return None
    moments = (row.parsed, row.encoded, row.matched)
    before = [at for at in moments if at is not None and at <= row.compressed]
    return row.compressed - max(before, default=0.0)
