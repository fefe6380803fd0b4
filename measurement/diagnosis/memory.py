"""Is KV memory limiting the batch? From what engines said of themselves while they were at work."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from prefold.measurement.diagnosis.answer import Answer, Figure, Verdict, unknown
from prefold.measurement.diagnosis.sample import Clusters, bounds
from prefold.measurement.intervals import MIN_CLUSTERS
from prefold.measurement.ledger.samples import EngineSample

KEY = "kv_memory"
QUESTION = "Is KV memory limiting the batch?"
FULL = 0.9
"""Share of the cache that requests under way hold; what is cached beside is not in it."""
OFTEN = 0.05
STRETCH_S = 30.0
"""Looks within it are one draw: they show much the same requests."""


def kv_memory(samples: Sequence[EngineSample], now: Sequence[EngineSample] = ()) -> Answer:
    """Limiting: requests wait while the cache is full, in OFTEN of the looks or more, or some were
    preempted. `now`: a look at this moment, which alone proves nothing."""
    figures = _now(now)
    told = [sample for sample in samples if sample.kv_usage is not None]
    if not told:
        needed = "an engine that tells how full its KV cache is (vLLM and SGLang do)"
        if not samples:
            needed = f"a ledger that was kept under load, and {needed}"
        return unknown(KEY, QUESTION, needed, *_queues(samples), *figures)
    usage = np.array([sample.kv_usage for sample in told], dtype=np.float64)
    waiting = np.array([(sample.waiting or 0) > 0 for sample in told])
    clusters = _stretches(told)
    full, queued, both = (
        bounds(clusters, lambda places, values=values: float(values[places].mean()))  # type: ignore[misc]
        for values in (usage >= FULL, waiting, waiting & (usage >= FULL))
    )
    preempted = _preemptions(told)
    figures = [
        Figure(name=f"kv usage p{percent}", value=float(np.percentile(usage, percent)),
               unit="share", n=len(told))
        for percent in (50, 99)
    ] + figures  # fmt: skip
    if preempted is not None:
        figures.append(Figure(name="preemptions", value=preempted, unit="requests", n=len(told)))
    if full is None or queued is None or both is None:
        have = len(np.unique(clusters.numbers))
        needed = f"{MIN_CLUSTERS} stretches of {STRETCH_S:.0f} s under load; there are {have}"
        return unknown(KEY, QUESTION, needed, *figures)
    figures += [
        full.figure(f"kv usage of {FULL} or more", "share"),
        queued.figure("requests waiting at the engine", "share"),
        both.figure("both at once", "share"),
    ]
    if preempted or both.low > OFTEN:
        verdict, meaning = Verdict.YES, "memory limits the batch"
    elif full.high < OFTEN:
        verdict = Verdict.NO
        meaning = "memory does not limit the batch"
        if queued.low > OFTEN:
            meaning += "; what waits, waits for something else (a limit of sequences or tokens)"
    else:
        verdict, meaning = Verdict.UNCLEAR, "memory may limit the batch at times"
    told_of = "" if preempted is None else f", {preempted:,.0f} preemptions"
    return Answer(
        key=KEY,
        question=QUESTION,
        verdict=verdict,
        sentence=(
            f"{meaning}: in {both.value:.0%} [{both.low:.0%}, {both.high:.0%}] of {both.n:,} looks"
            f" requests waited with {FULL:.0%} or more of the cache in use{told_of}"
        ),
        figures=figures,
    )


def _stretches(samples: Sequence[EngineSample]) -> Clusters:
    names = {name: number for number, name in enumerate(sorted({one.backend for one in samples}))}
    numbers = [int(one.at // STRETCH_S) * len(names) + names[one.backend] for one in samples]
    return Clusters(np.arange(len(samples)), np.array(numbers, dtype=np.int64))


def _preemptions(samples: Sequence[EngineSample]) -> float | None:
    """Between the looks; None: nobody counts them. After a restart an engine counts from 0."""
    counts: dict[str, list[int]] = {}
    for sample in sorted(samples, key=lambda one: one.at):
        if sample.preemptions is not None:
            counts.setdefault(sample.backend, []).append(sample.preemptions)
    if not counts:
        return None
    return float(
        sum(
            after - before if after >= before else after
            for told in counts.values()
            for before, after in pairwise(told)
        )
    )


def _queues(samples: Sequence[EngineSample]) -> list[Figure]:
    told = [sample.waiting > 0 for sample in samples if sample.waiting is not None]
    if not told:
        return []
    name = "requests waiting at the engine"
    return [Figure(name=name, value=sum(told) / len(told), unit="share", n=len(told))]


def _now(samples: Sequence[EngineSample]) -> list[Figure]:
    """What there is of each backend."""
    return [
        Figure(name=f"{sample.backend} now: {name}", value=float(value), unit=unit, n=1)
        for sample in samples
        for name, value, unit in (
            ("kv usage", sample.kv_usage, "share"),
            ("waiting", sample.waiting, "requests"),
            ("running", sample.running, "requests"),
        )
        if value is not None
    ]
