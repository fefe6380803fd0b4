"""Prefills that are batched or not, and decodes that are disturbed or not: simulated backends."""

from __future__ import annotations

import random

import pytest

from prefold.measurement.diagnosis.answer import Answer, Verdict
from prefold.measurement.diagnosis.batching import periods, prefill_batching
from prefold.measurement.diagnosis.sample import sample_of
from prefold.measurement.diagnosis.stalls import stalls_with_prefills
from prefold.measurement.ledger.reader import LedgerRow
from tests.support.diagnosis import figure, row

PER_TOKEN = 0.0001


def groups(*, together: bool, count: int = 120) -> list[LedgerRow]:
    """Every ten seconds one prompt, or three within 10 ms: computed together in the time of the
    longest, or one after the other."""
    draw = random.Random(3)
    made: list[LedgerRow] = []
    for number in range(count):
        free = 0.0
        for member in range(1 if number % 2 else 3):
            prompt, begun = draw.randrange(500, 6000), 0.01 * member
            alone = 0.005 + PER_TOKEN * prompt
            free = begun + alone if together else max(free, begun) + alone
            at = 10.0 * number + begun
            made.append(row(at, talk=len(made), prompt=prompt, server=free - begun, output=2))
    return sorted(made, key=lambda one: one.id)


def test_prompts_computed_together_are_faster() -> None:
    """Three in the time of the longest: about twice the tokens in a second."""
    answer = prefill_batching(sample_of(groups(together=True)))
    gain = figure(answer, "one after the other over together")

    assert answer.verdict is Verdict.YES
    assert gain.low is not None
    assert gain.low > 1.5


def test_a_queue_is_no_batch() -> None:
    """One after the other, throughput stays what it is, though their windows overlap."""
    answer = prefill_batching(sample_of(groups(together=False)))

    assert answer.verdict is Verdict.NO
    assert figure(answer, "one after the other over together").value == pytest.approx(1.0, abs=0.05)


def test_prompts_that_hardly_overlap_decide_nothing() -> None:
    """Each is sent when the other is nearly done: there was nothing to gain."""
    draw = random.Random(8)
    made: list[LedgerRow] = []
    for number in range(150):
        at = 10.0 * number
        for _ in range(1 if number % 2 else 2):
            prompt = draw.randrange(500, 6000)
            seconds = PER_TOKEN * prompt
            made.append(row(at, talk=len(made), prompt=prompt, server=0.005 + seconds, output=2))
            at += 0.95 * seconds

    answer = prefill_batching(sample_of(made))

    assert answer.verdict is Verdict.UNCLEAR
    assert figure(answer, "the same if all were computed at once").value < 1.1


def test_prompts_that_never_meet_tell_nothing() -> None:
    """Whatever the throughput of each."""
    answer = prefill_batching(sample_of(groups(together=True)[3::4]))

    assert answer.verdict is Verdict.UNKNOWN


def test_a_busy_period_lasts_while_prompts_overlap() -> None:
    """One that is sent as the last one's first token comes begins another."""
    draw = random.Random(4)
    for _ in range(200):
        sent = [draw.randrange(50) for _ in range(draw.randrange(1, 12))]
        first = [start + draw.randrange(1, 10) for start in sent]
        busy = {moment for a, b in zip(sent, first, strict=True) for moment in range(a, b)}
        sample = sample_of(
            row(float(a), proxy=0.0, server=float(b - a), prompt=7)
            for a, b in zip(sent, first, strict=True)
        )
        found = periods(sample["sent"], sample["first"], sample["uncached"])

        assert sum(found.seconds) == len(busy)
        assert found.requests.sum() == len(sent)
        assert found.tokens.sum() == 7 * len(sent)


def decodes(stalls: str, count: int = 300) -> list[LedgerRow]:
    """Two streams of 10 s at any time. In each one gap of 200 ms: `at prefills` of others, or
    `anywhere`."""
    draw = random.Random(5)
    begun = [5.0 * number + draw.uniform(0.0, 2.0) for number in range(count)]
    made = []
    for number, at in enumerate(begun):
        after = begun[number + 1] if number + 1 < count else at + 5.0
        place = after + 0.01 - at - 0.3 if stalls == "at prefills" else draw.uniform(0.5, 9.0)
        gaps = [0.02] * 480
        if stalls != "none":
            gaps[max(int(place / 0.02), 0)] = 0.2
        made.append(row(at, talk=number, proxy=0.0, server=0.3, output=481, gaps=gaps, prompt=3000))
    return made


def answer_of(stalls: str, count: int = 300) -> Answer:
    return stalls_with_prefills(sample_of(decodes(stalls, count)))


def test_stalls_at_others_prefills_are_no_chance() -> None:
    """All of them fall together with one, by chance few would."""
    answer = answer_of("at prefills")

    assert answer.verdict is Verdict.YES
    assert figure(answer, "stalls with another's prefill").value > 0.95
    assert figure(answer, "by chance").value < 0.3
    assert figure(answer, "against chance").value > 3


def test_stalls_anywhere_are_chance() -> None:
    """Some fall together with a prefill, as many as would by chance."""
    answer = answer_of("anywhere")

    assert answer.verdict is Verdict.NO
    assert figure(answer, "against chance").value == pytest.approx(1.0, abs=0.4)


@pytest.mark.parametrize(("stalls", "count"), [("none", 50), ("anywhere", 10)])
def test_few_stalls_tell_nothing(stalls: str, count: int) -> None:
    """And how many there were is said."""
    answer = answer_of(stalls, count)

    assert answer.verdict is Verdict.UNKNOWN
    assert figure(answer, "stalls").value < 20


def test_a_ledger_without_token_times_tells_nothing() -> None:
    """Of its streams the first and the last token are known, and no gap."""
    rows = [row(float(number), output=100, tokens=[0.1, 5.0]) for number in range(100)]

    answer = stalls_with_prefills(sample_of(rows))

    assert answer.verdict is Verdict.UNKNOWN
    assert answer.needs is not None
    assert "ledger.token_times" in answer.needs


def busy_and_quiet(seed: int) -> list[LedgerRow]:
    """Half minutes of many requests and of few, with stalls anywhere."""
    draw, at = random.Random(seed), 0.0
    made = []
    for number in range(300):
        at += draw.expovariate(4.0 if at // 30 % 2 else 0.2)
        gaps = [0.2 if draw.random() < 0.003 else 0.02 for _ in range(draw.randrange(50, 400))]
        made.append(row(at, talk=number, server=0.3, output=len(gaps) + 1, gaps=gaps))
    return made


def test_a_busy_hour_is_no_cause() -> None:
    """Where more is decoded there are more stalls, and more prefills: most fall together, and yet
    of 20 such ledgers at most two are said to show a link."""
    answers = [stalls_with_prefills(sample_of(busy_and_quiet(seed))) for seed in range(20)]

    assert all(figure(one, "stalls with another's prefill").value > 0.5 for one in answers)
    assert sum(one.verdict is Verdict.YES for one in answers) <= 2
