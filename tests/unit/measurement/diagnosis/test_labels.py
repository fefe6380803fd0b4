"""FP8 beside BF16, with what each of them costs known."""

from __future__ import annotations

import random

import pytest

from prefold.measurement.diagnosis.answer import Answer, Verdict
from prefold.measurement.diagnosis.labels import labels_compared
from prefold.measurement.diagnosis.sample import sample_of
from prefold.measurement.ledger.reader import LedgerRow
from tests.support.diagnosis import figure, row


def rows(prefill: float, decode: float, *, longer: float = 1.0, seed: int = 0) -> list[LedgerRow]:
    """200 conversations of two requests. On fp8, prefill is `prefill` times as fast as on bf16's,
    decode `decode` times, and prompts are `longer`."""
    draw = random.Random(seed)
    made = []
    for number in range(400):
        fp8 = number // 2 % 2
        prompt = round(draw.randrange(500, 8000) * (longer if fp8 else 1.0))
        seconds = 0.0001 * prompt / (prefill if fp8 else 1.0) * draw.uniform(0.9, 1.1)
        gap = 0.02 / (decode if fp8 else 1.0) * draw.uniform(0.9, 1.1)
        made.append(
            row(
                float(number),
                talk=number // 2,
                backend=f"b{fp8}",
                labels={"precision": ("bf16", "fp8")[fp8]},
                prompt=prompt,
                server=0.005 + seconds,
                output=draw.randrange(50, 100),
                gap=gap,
            )
        )
    # Whichever has most is what the other is compared with.
    return [*made, row(400.0, talk=400, labels={"precision": "bf16"}, server=0.105)]


def compared(made: list[LedgerRow], label: str | None = None) -> Answer:
    [answer] = labels_compared(sample_of(made), label)
    return answer


def test_what_speeds_up_prefill_more_than_decode_is_told() -> None:
    """Each ratio is what went in, within its bounds."""
    answer = compared(rows(prefill=1.6, decode=1.2))

    assert answer.verdict is Verdict.YES
    assert answer.key == "labels.precision.fp8"
    assert answer.sentence.endswith("prefill gains more than decode")
    for name, truth in (
        ("prefill throughput", 1.6),
        ("TPOT", 1 / 1.2),
        ("decode throughput of a stream", 1.2),
        ("TTFT at equal uncached tokens", 1 / 1.6),
    ):
        found = figure(answer, f"{name}, fp8 over bf16")
        assert found.value == pytest.approx(truth, rel=0.05)
        assert found.low is not None
        assert found.high is not None
        assert found.low * 0.97 < truth < found.high * 1.03


def test_longer_prompts_are_no_slower_prefill() -> None:
    """TTFT is compared at equal uncached tokens, and prefill for each token."""
    answer = compared(rows(prefill=1.0, decode=1.0, longer=1.5))

    assert answer.verdict is Verdict.NO
    ttft = figure(answer, "TTFT at equal uncached tokens, fp8 over bf16")
    assert ttft.value == pytest.approx(1.0, rel=0.08)


def test_equal_gains_are_no_difference() -> None:
    """Both 1.5 times as fast."""
    answer = compared(rows(prefill=1.5, decode=1.5))

    assert answer.verdict is Verdict.NO
    assert answer.sentence.endswith("prefill and decode gain alike")


def test_without_a_second_value_nothing_is_compared() -> None:
    """Nor of a label that is not there."""
    one_value = [one for one in rows(1.6, 1.2) if one.backend == "b0"]

    assert compared(one_value).verdict is Verdict.UNKNOWN
    assert compared(rows(1.6, 1.2), "gpu").verdict is Verdict.UNKNOWN


def test_without_cached_tokens_decode_is_known_all_the_same() -> None:
    """And it is said with its figures what the rest would need."""
    made = rows(1.6, 1.2)
    hidden = [row(float(at), talk=at // 2, labels=one.labels, cached=None, output=80,
                  gap=one.tokens[2] - one.tokens[1])
              for at, one in enumerate(made)]  # fmt: skip
    answer = compared(hidden)

    assert answer.verdict is Verdict.UNKNOWN
    assert figure(answer, "TPOT, fp8 over bf16").value == pytest.approx(1 / 1.2, rel=0.05)


def test_equal_backends_are_seldom_told_apart() -> None:
    """Of 20 shuffles that are all alike, at most three are said to differ."""
    differ = sum(compared(rows(1.0, 1.0, seed=seed)).verdict is Verdict.YES for seed in range(20))

    assert differ <= 3
