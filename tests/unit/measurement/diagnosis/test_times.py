"""Inputs, TTFT against TPOT, and the parts of TTFT: from rows whose truth is known."""

from __future__ import annotations

import random
from typing import Any

import pytest

from prefold.measurement.diagnosis.answer import Answer, Verdict
from prefold.measurement.diagnosis.first_token import first_token_parts
from prefold.measurement.diagnosis.inputs import first_token_late, inputs_long
from prefold.measurement.diagnosis.prefill import prefill_of
from prefold.measurement.diagnosis.sample import sample_of
from prefold.measurement.ledger.reader import LedgerRow
from tests.support.diagnosis import figure, row


def rows(count: int = 200, **members: Any) -> list[LedgerRow]:
    """Two to a conversation; prefill takes 0.1 ms a token, network and first step 5 ms."""
    draw = random.Random(1)
    made = []
    for number in range(count):
        prompt = draw.randrange(500, 8000)
        server = 0.005 + 0.0001 * prompt
        made.append(
            row(
                float(number),
                **{"talk": number // 2, "prompt": prompt, "server": server, **members},
            )
        )
    return made


def long(made: list[LedgerRow]) -> Answer:
    sample = sample_of(made)
    return inputs_long(sample, prefill_of(sample))


def parts(made: list[LedgerRow]) -> Answer:
    sample = sample_of(made)
    return first_token_parts(sample, prefill_of(sample))


def test_inputs_are_long_if_half_of_them_are() -> None:
    """And prefill's share of end-to-end time is what went into the rows."""
    made = rows(output=20)
    answer = long(made)
    spent = figure(answer, "prefill in end-to-end time")
    prefill = sum(0.0001 * (one.prompt_tokens or 0) for one in made)

    assert answer.verdict is Verdict.YES
    assert spent.value == pytest.approx(prefill / sum(one.end for one in made), rel=0.02)
    assert spent.low is not None
    assert spent.high is not None
    assert spent.low < spent.value < spent.high


def test_inputs_are_not_long_if_most_of_them_are_short() -> None:
    """Without cached tokens no share of prefill is claimed."""
    answer = long(rows(prompt=300, cached=None))

    assert answer.verdict is Verdict.NO
    assert "share of prefill in end-to-end time is unknown" in answer.sentence


def test_few_conversations_answer_nothing() -> None:
    """However many requests they have."""
    answer = long(rows(talk=3))

    assert answer.verdict is Verdict.UNKNOWN
    assert answer.needs == "20 conversations with a known prompt length; there are 1"


@pytest.mark.parametrize(
    ("server", "verdict", "ratio"), [(0.499, Verdict.YES, 50.0), (0.019, Verdict.NO, 2.0)]
)
def test_ttft_against_tpot(server: float, verdict: Verdict, ratio: float) -> None:
    """The ratio of the means, TTFT from the request's arrival on."""
    answer = first_token_late(sample_of(rows(server=server)))

    assert answer.verdict is verdict
    assert figure(answer, "mean TTFT over mean TPOT").value == pytest.approx(ratio, rel=0.01)


def test_answers_of_one_token_have_no_tpot() -> None:
    """So nothing is said."""
    answer = first_token_late(sample_of(rows(output=1)))

    assert answer.verdict is Verdict.UNKNOWN


def test_ttft_of_an_idle_engine_is_prefill() -> None:
    """The parts are those that went in, and together they are all of it."""
    made = rows()
    answer = parts(made)
    ttft = sum(one.tokens[0] for one in made)
    shares = {one.name: one.value for one in answer.figures if one.name.endswith(" in TTFT")}

    assert answer.verdict is Verdict.KNOWN
    assert answer.sentence.startswith("most of TTFT is prefill")
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["network and first step in TTFT"] == pytest.approx(200 * 0.005 / ttft, rel=0.05)
    assert shares["waiting at the engine in TTFT"] == pytest.approx(0.0, abs=0.001)


def test_a_queue_of_ours_is_told_from_one_at_the_engine() -> None:
    """Ours is measured; the engine's is what does not grow with the prompt, and not all wait."""
    ours = parts(rows(queue=2.0))
    draw = random.Random(2)
    waited = [
        row(float(number), talk=number, prompt=prompt,
            server=0.005 + 0.0001 * prompt + draw.choice((0.0, 0.0, 3.0)))
        for number in range(300)
        if (prompt := draw.randrange(500, 8000))
    ]  # fmt: skip
    theirs = parts(waited)

    assert ours.sentence.startswith("most of TTFT is our queue")
    assert theirs.sentence.startswith("most of TTFT is waiting at the engine")
    assert figure(theirs, "our queue in TTFT").value == 0.0


def test_without_cached_tokens_only_our_queue_is_known() -> None:
    """What the engine did with its time cannot be told then."""
    answer = parts(rows(cached=None, queue=1.0))

    assert answer.verdict is Verdict.UNKNOWN
    assert answer.needs is not None
    assert "reports its cached tokens" in answer.needs
    assert [one.name for one in answer.figures] == ["our queue in TTFT"]
