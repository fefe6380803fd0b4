"""All questions of a diagnosis, answered from a ledger's rows and what engines said of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from prefold.measurement.diagnosis.answer import Answer
from prefold.measurement.diagnosis.batching import prefill_batching
from prefold.measurement.diagnosis.breaks import prefix_breaks
from prefold.measurement.diagnosis.first_token import first_token_parts
from prefold.measurement.diagnosis.inputs import first_token_late, inputs_long
from prefold.measurement.diagnosis.labels import labels_compared
from prefold.measurement.diagnosis.memory import kv_memory
from prefold.measurement.diagnosis.prefill import prefill_of
from prefold.measurement.diagnosis.sample import sample_of
from prefold.measurement.diagnosis.stalls import stalls_with_prefills
from prefold.measurement.divergence.tally import DivergenceReport
from prefold.measurement.ledger.reader import LedgerRow
from prefold.measurement.ledger.samples import EngineSample


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """`requests`: streamed answers that ended well, which alone are looked at; `left_out`: earlier
    ones, beyond what is looked at. `first` and `last` received: seconds since 1970."""

    requests: int
    left_out: int
    first: float | None
    last: float | None
    answers: list[Answer]


def diagnose(
    rows: Iterable[LedgerRow],
    samples: Sequence[EngineSample] = (),
    *,
    now: Sequence[EngineSample] = (),
    divergence: DivergenceReport | None = None,
    label: str | None = None,
) -> Diagnosis:
    """`rows` in the order of their ends. `now`: what engines say at this moment."""
    sample = sample_of(rows)
    prefill = prefill_of(sample)
    received = sample["received"]
    return Diagnosis(
        requests=len(sample),
        left_out=sample.left_out,
        first=float(received.min()) if len(sample) else None,
        last=float(received.max()) if len(sample) else None,
        answers=[
            inputs_long(sample, prefill),
            first_token_late(sample),
            first_token_parts(sample, prefill),
            prefill_batching(sample),
            *labels_compared(sample, label),
            kv_memory(samples, now),
            stalls_with_prefills(sample),
            prefix_breaks(divergence),
        ],
    )
