"""What is asked of vLLM's pooling endpoint, and what of its answers is believed."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.compression.compressor import CompressorGone
from prefold.compression.vllm_pooling import asked, kept, scores

ROWS = [[[0.5, -1.25], [2.0, 3.0]], [[float("nan"), 1.0]]]


def answer(rows: list[list[list[float]]], **more: Any) -> dict[str, Any]:
    data = [
        {
            "index": index,
            "object": "pooling",
            "data": base64.b64encode(np.array(row, dtype="<f4").tobytes()).decode(),
        }
        for index, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": 3, "total_tokens": 3, "completion_tokens": 0}
    return {"id": "p", "object": "list", "model": "keep", "data": data, "usage": usage, **more}


def read(body: dict[str, Any], lengths: tuple[int, ...] = (2, 1)) -> list[Any]:
    name, found = scores(json.dumps(body).encode(), lengths)
    assert name == "keep"
    return found


def test_what_is_asked() -> None:
    """The members of vLLM 0.32's request; logits, as float32 in a stated order of bytes."""
    assert json.loads(asked("keep", [[1, 2], [3]], activated=False)) == {
        "model": "keep",
        "input": [[1, 2], [3]],
        "task": "token_classify",
        "use_activation": False,
        "encoding_format": "base64",
        "embed_dtype": "float32",
        "endianness": "little",
    }


def test_a_number_for_each_token_and_label() -> None:
    """In rows of the lengths that were asked for; what is no number comes as it is."""
    one, two = read(answer(ROWS))
    assert one.tolist() == ROWS[0]
    assert two.shape == (1, 2)
    assert math.isnan(two[0, 0])


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (answer(ROWS[:1]), "wrong_number_of_rows"),
        (answer([*ROWS, *ROWS]), "wrong_number_of_rows"),
        (answer(ROWS, usage={"prompt_tokens": 2}), "wrong_number_of_tokens"),
        (answer([[[1.0]] * 3, ROWS[1]]), "wrong_number_of_tokens"),
        (answer([[[1.0], [2.0]], ROWS[1]]), "wrong_number_of_labels"),
        (answer([[[1.0] * 9] * 2, ROWS[1]]), "wrong_number_of_labels"),
        (
            answer(ROWS, data=[{"index": 0, "data": "é"}, {"index": 1, "data": "AAAAAAAAAAA="}]),
            "nonsense",
        ),
        (answer(ROWS, data=[{"index": 0, "data": "AAA="}, {"index": 1, "data": ""}]), "nonsense"),
        (answer(ROWS, data=[{"index": 0, "data": [[1.0, 2.0]]}]), "nonsense"),
        ({"error": {"message": "x"}}, "nonsense"),
    ],
)
def test_an_answer_to_something_else_is_of_no_use(body: dict[str, Any], cause: str) -> None:
    """Its cause is a word, and nothing of it is quoted."""
    with pytest.raises(CompressorGone) as told:
        read(body)
    assert told.value.cause == cause


@given(st.lists(st.tuples(*[st.floats(-200, 200, width=32)] * 2), min_size=1))
def test_logits_become_the_probability_of_the_second_label(
    pairs: list[tuple[float, float]],
) -> None:
    """As the definition of softmax has it."""
    expected = []
    for drop, keep in pairs:
        top = max(drop, keep)
        expected.append(math.exp(keep - top) / (math.exp(keep - top) + math.exp(drop - top)))
    found = kept(np.array(pairs, dtype=np.float32))
    assert found.tolist() == pytest.approx(expected, abs=1e-6)
