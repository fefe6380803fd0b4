"""What needs no model in tests/compression/quality.py: prompts, judging, what is scored."""

import asyncio
import json
import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.compression.compressor import Passage
from prefold.compression.scored import Group, ScoredCompressor
from prefold.compression.words import Floats
from tests.benchmark.rag.corpus import Question
from tests.compression import quality
from tests.compression.answering import ServedModel
from tests.compression.answers import (
    cells,
    compare,
    pair_questions,
    passage_questions,
    with_documents,
    words_of,
)
from tests.compression.remembering import Remembering
from tests.support.answers import is_right, plain
from tests.support.hash_scorer import HashScorer
from tests.support.upstream import scripted, whole

ROWS: list[dict[str, Any]] = [
    {
        "question": f"what is tea {number}",
        "answers": [f"green {number}"],
        "ctxs": [{"title": f"Tea {number}", "text": f"It is green {number}."}],
    }
    for number in range(30)
]
PAIRS = [[f"key-{number}", f"value-{number}"] for number in range(75)]
RIGHT, WRONG = "It is Green.", "It is not known."
QUESTIONS = [Question((f"one two {at}", "three"), "what?", ("green",)) for at in range(40)]


def test_an_answer_is_right_if_it_holds_a_right_one() -> None:
    """Whole words, in any case, without articles and punctuation."""
    assert is_right("It is the Green tea!", ["a green tea"])
    assert not is_right("It is greenish tea", ["green"])
    assert not is_right("", ["x"])
    assert plain("The  U.S., a state") == "us state"


def test_each_question_has_its_own_passage_among_others() -> None:
    """Different ones out of the same rows, the same for the same seed, not always first."""
    made = passage_questions(ROWS, documents=3, seed=1)

    assert made == passage_questions(ROWS, documents=3, seed=1)
    for row, one in zip(ROWS, made, strict=True):
        own = f"{row['ctxs'][0]['title']}: {row['ctxs'][0]['text']}"
        assert own in one.documents
        assert len(set(one.documents)) == 3
        assert one.gold == tuple(row["answers"])
    texts = [f"Tea {at}: It is green {at}." for at in range(len(ROWS))]
    assert len({one.documents.index(text) for text, one in zip(texts, made, strict=True)}) == 3


def test_the_key_asked_for_is_one_of_the_pairs() -> None:
    """Once, with its value, in a place that differs."""
    rows = [{"ordered_kv_records": PAIRS, "key": "key-7", "value": "value-7"}] * 9

    made = pair_questions(rows, pairs=10, seed=1)

    places = set()
    for one in made:
        lines = one.documents[0].split("\n")
        places.add(lines.index("The value of the key key-7 is value-7."))
        assert len(set(lines)) == 10
        assert "key-7" in one.text
        assert one.gold == ("value-7",)
    assert len(places) > 1


def test_other_forms_change_documents_only() -> None:
    """The question and what is right stay."""
    [one] = with_documents(QUESTIONS[:1], {"one two 0": "two", "three": ""})

    assert one == Question(("two", ""), "what?", ("green",))
    assert (words_of(QUESTIONS[:1]), words_of([one])) == (4, 1)


def test_lost_and_gained_are_counted_apart() -> None:
    """A share that stays may hide answers that changed both ways."""
    before = [RIGHT] * 20 + [WRONG] * 20
    after = [RIGHT] * 15 + [WRONG] * 20 + ["green"] * 5

    found = compare(QUESTIONS, before, after)

    assert (found.right, found.lost, found.gained) == (0.5, 0.125, 0.125)
    assert found.same == 0.75  # 15 right ones and 15 wrong ones
    assert found.bounds is not None
    assert found.bounds[0] < 0 < found.bounds[1]
    assert cells(found)[0] == "0.50"
    assert cells(found)[1].startswith("+0.00 (-")


def test_few_questions_have_no_interval() -> None:
    """A bootstrap of ten would look surer than it is."""
    assert compare(QUESTIONS[:10], [RIGHT] * 10, [WRONG] * 10).bounds is None


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=20, max_size=40))
def test_what_is_lost_and_gained_makes_the_difference(judged: list[tuple[bool, bool]]) -> None:
    """Right after is right before, less the lost, and the gained; the interval holds it."""
    texts = {True: RIGHT, False: WRONG}
    before = [texts[first] for first, _ in judged]
    after = [texts[second] for _, second in judged]

    found = compare(QUESTIONS[: len(judged)], before, after)

    first = sum(one for one, _ in judged) / len(judged)
    assert found.right == pytest.approx(first - found.lost + found.gained)
    assert found.same == pytest.approx(1 - found.lost - found.gained)
    assert found.bounds is not None
    low, high = found.bounds
    assert low - 1e-9 <= found.gained - found.lost <= high + 1e-9


class Counting(HashScorer):
    """How many groups it was asked about."""

    def __init__(self) -> None:
        self.asked = 0

    def score(self, groups: Sequence[Group]) -> list[Floats]:
        self.asked += len(groups)
        return super().score(groups)


def test_what_was_scored_once_is_remembered() -> None:
    """At any rate, as the bare scorer has it; who changes a result changes nothing."""
    text = " ".join(f"word{chr(97 + at)}" for at in range(20))
    passages = [Passage(text=part, rate=rate) for part in (text, text.upper()) for rate in (0.3, 1)]
    counting = Counting()
    remembering = Remembering(counting)
    compressor, bare = ScoredCompressor(remembering), ScoredCompressor(HashScorer())
    assert compressor.digest == bare.digest

    for rate in (0.7, 0.5, 0.3):
        again = [Passage(text=one.text, rate=rate) for one in passages]
        assert compressor.compress(again) == bare.compress(again)
    assert counting.asked == 2

    group = Group(text="a b", starts=np.array([0, 2]), ends=np.array([1, 3]))
    first = remembering.score([group])[0].tolist()
    remembering.score([group])[0][:] = 0
    assert remembering.score([group])[0].tolist() == first != [0, 0]


async def test_a_served_model_is_asked_each_question() -> None:
    """At temperature 0, with its documents; an answer without content is an empty one."""
    replies = [
        whole({"choices": [{"message": {"content": content}}]}) for content in ("green", None)
    ]
    async with scripted(*replies) as upstream:
        model = ServedModel(f"http://127.0.0.1:{upstream.port}/", "small")
        found = await asyncio.to_thread(model.answers, QUESTIONS[:2], 24)

    bodies = [json.loads(one.body) for one in upstream.received]
    assert sorted(found) == ["", "green"]
    assert [one.path for one in upstream.received] == ["/v1/chat/completions"] * 2
    assert all((one["model"], one["temperature"], one["max_tokens"]) == ("small", 0, 24)
               for one in bodies)  # fmt: skip
    assert {"one two 0" in one["messages"][1]["content"] for one in bodies} == {True, False}


def table(printed: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in printed.splitlines() if "---" not in line]


def passages_file(folder: Path) -> Path:
    path = folder / "passages.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, ROWS)).encode()))
    return path


def test_the_command_prints_what_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row for each rate, with and without protection; passages as short as these stay whole."""
    monkeypatch.setattr("sys.argv", [
        "quality", "--compressor", "hash", "--unprotected", "--rates", "0.5", "0.3",
        "--passages", str(passages_file(tmp_path)),
    ])  # fmt: skip

    quality.main()

    _, *rows = table(capsys.readouterr().out)
    assert [row[:3] for row in rows] == [
        ["NQ passages", label, rate]
        for label in ("hash", "hash, no protection")
        for rate in ("0.5", "0.3")
    ]
    assert all(row[3:7] == ["1.00", "1.000", "1.000", "1.000"] for row in rows)


async def test_the_command_prints_what_a_model_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """First from the originals, then from each form, of as many questions as were asked for."""
    async with scripted(whole({"choices": [{"message": {"content": "No."}}]})) as upstream:
        monkeypatch.setattr("sys.argv", [
            "quality", "--compressor", "hash", "--rates", "0.5", "--answers", "4",
            "--endpoint", f"http://127.0.0.1:{upstream.port}",
            "--passages", str(passages_file(tmp_path)),
        ])  # fmt: skip
        await asyncio.to_thread(quality.main)

    _, original, compressed = table(capsys.readouterr().out)
    assert original == ["NQ passages", "none", "-", "1.00", "0.00", "-", "-", "-", "-"]
    assert compressed == [
        *("NQ passages", "hash", "0.5", "1.00", "0.00", "+0.00", "0.00", "0.00", "1.00")
    ]
    assert len(upstream.received) == 8
