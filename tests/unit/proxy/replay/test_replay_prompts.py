from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefold.proxy.replay.prompts import Form, ReplayError, Shape, planned, read_requests
from prefold.proxy.simulate.trace import Row, Trace, build_trace

BLOCK = 16


def trace() -> Trace:
    """Two prompts that share a block, and one that shares none."""
    return build_trace(
        "t",
        BLOCK,
        [Row(1.0, 37, 5, [7, 8]), Row(2.5, 40, 50, [7, 9]), Row(3.0, 20, 5, [1])],
    )


def shape(form: Form, salt: str = "", max_tokens: int | None = None) -> Shape:
    return Shape(form=form, model="m", salt=salt, max_tokens=max_tokens, ignore_eos=False)


def test_token_ids_are_as_many_as_the_trace_says() -> None:
    """And equal exactly as far as its blocks are."""
    made = trace()
    first, second, third = (
        request.body["prompt"] for request in planned(made, made.requests, shape(Form.TOKENS))
    )

    assert [len(first), len(second), len(third)] == [37, 40, 20]
    assert first[:BLOCK] == second[:BLOCK]
    assert first[BLOCK : 2 * BLOCK] != second[BLOCK : 2 * BLOCK]
    assert first[:BLOCK] != third[:BLOCK]


def test_texts_share_what_the_blocks_share() -> None:
    """A word for each token, in one user message."""
    made = trace()
    texts = [
        request.body["messages"][0]["content"]
        for request in planned(made, made.requests, shape(Form.CHAT))
    ]
    words = [text.split() for text in texts]

    assert [len(each) for each in words] == [37, 40, 20]
    assert words[0][:BLOCK] == words[1][:BLOCK]
    assert words[0][BLOCK:32] != words[1][BLOCK:32]


@pytest.mark.parametrize("form", list(Form))
def test_another_salt_shares_nothing_and_the_same_everything(form: Form) -> None:
    """Arms of a comparison get equal work, and no cache knows it from the arm before."""
    made = trace()

    def bodies(salt: str) -> list[str]:
        return [
            json.dumps(request.body.get("prompt") or request.body["messages"][0]["content"])
            for request in planned(trace(), made.requests, shape(form, salt))
        ]

    one, again, other = bodies("a1"), bodies("a1"), bodies("b2")
    assert one == again
    for mine, theirs in zip(one, other, strict=True):
        assert mine[:12] != theirs[:12]
        assert len(mine) == pytest.approx(len(theirs), abs=8)


def test_answers_are_no_longer_than_asked_for() -> None:
    """The trace's length, up to the limit."""
    made = trace()
    limits = [
        request.body["max_tokens"]
        for request in planned(made, made.requests, shape(Form.CHAT, max_tokens=20))
    ]

    assert limits == [5, 20, 5]


def test_requests_of_a_file_are_sent_as_they_are(tmp_path: Path) -> None:
    """A body a line, or one with its time and path beside it."""
    file = tmp_path / "r.jsonl"
    chat = {"model": "theirs", "messages": [{"role": "user", "content": "x"}], "seed": 4}
    timed = {"timestamp": 1500, "body": {"prompt": "y"}, "path": "/v1/completions"}
    file.write_text(json.dumps(chat) + "\n\n" + json.dumps(timed) + "\n")
    first, second = read_requests(file, model="ours")

    assert first.path == "/v1/chat/completions"
    assert first.body == chat | {"model": "ours"}
    assert (second.at_s, second.path) == (1.5, "/v1/completions")
    assert read_requests(file, model="")[0].body["model"] == "theirs"


@pytest.mark.parametrize(
    ("line", "reason"), [("{", "r.jsonl:1"), ('{"a": 1}', "neither"), ("", "no")]
)
def test_a_line_that_cannot_be_sent_is_named(tmp_path: Path, line: str, reason: str) -> None:
    """Nothing is left out in silence."""
    file = tmp_path / "r.jsonl"
    file.write_text(line + "\n")

    with pytest.raises(ReplayError, match=reason):
        read_requests(file, model="")
