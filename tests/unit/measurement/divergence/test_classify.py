"""Where prompts of one template part, and by what: templates with one place that differs."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from prefold.measurement.divergence.classify import Parted, parted
from prefold.measurement.divergence.record import Kind
from prefold.measurement.divergence.texts import (
    Parts,
    Place,
    common_length,
    first_difference,
)

TEMPLATE = (
    "You answer questions about our products. {} Be brief, be polite, and name your sources. "
)
REST = "Never speak of prices, of other firms, or of what is not in the documents. " * 5
TAIL = len(" Be brief, be polite, and name your sources. " + REST)
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("search", "open_page", "send_mail")
]
DOCUMENTS = [f"Document {name}: " + f"what {name} is about, told at length. " * 4 for name in "abc"]


def chat(system: str, *users: str, tools: list[dict[str, Any]] | None = None) -> Parts:
    messages = [{"role": "system", "content": system}]
    messages += [{"role": "user", "content": user} for user in users]
    return [tools, messages]


def told(one: Parts, other: Parts) -> Parted | None:
    """The same whichever of them was first."""
    place = first_difference(one, other)
    made = None if place is None else parted(one, other, place)
    assert made == (None if place is None else parted(other, one, place))
    return made


def in_template(one: str, other: str) -> Parted | None:
    return told(*(chat(TEMPLATE.format(slot) + REST, "What is it?") for slot in (one, other)))


FORMATS = (
    "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M", "%A, %d %B %Y, %I:%M %p", "%a, %d %b %Y %H:%M:%S GMT",
    "%d/%m/%Y", "%B %d, %Y", "%H:%M:%S", "%Y-%m-%d", "%s",
)  # fmt: skip
MOMENTS = st.datetimes(datetime.datetime(2024, 1, 1), datetime.datetime(2029, 1, 1))


@pytest.mark.parametrize("form", FORMATS)
@given(one=MOMENTS, other=MOMENTS)
def test_timestamps(form: str, one: datetime.datetime, other: datetime.datetime) -> None:
    """In the usual forms; all that follows is lost."""
    slots = [
        str(int(moment.timestamp())) if form == "%s" else moment.strftime(form)
        for moment in (one, other)
    ]
    assume(slots[0] != slots[1])

    assert in_template(*(f"Now: {slot};" for slot in slots)) == Parted(
        Kind.TIMESTAMP, len(";") + TAIL + len("What is it?")
    )


@given(one=st.uuids(), other=st.uuids())
def test_uuids(one: Any, other: Any) -> None:
    """With dashes and without, in any case."""
    assume(one != other)
    for forms in (
        (str(one), str(other)),
        (one.hex, other.hex),
        (f"id={one}".upper(), f"ID={other}"),
    ):
        made = in_template(*forms)
        assert made is not None
        assert made.kind is Kind.UUID
        assert made.lost_chars >= TAIL


@given(one=st.integers(0, 10**9 - 1), other=st.integers(0, 10**9 - 1))
def test_numbers(one: int, other: int) -> None:
    """Counters, and words that hold digits."""
    assume(one != other)
    for form in ("Request {}.", "Session s-{:09d}-x", "n={:x}0 now"):
        made = in_template(form.format(one), form.format(other))
        assert made is not None
        assert made.kind is Kind.NUMBER
        assert made.lost_chars >= TAIL


@given(one=st.text(" \n\t", max_size=4), other=st.text(" \n\t", max_size=4), end=st.booleans())
def test_white_space(one: str, other: str, end: bool) -> None:
    """Inside a text and at its end, where messages follow."""
    assume(one != other)
    texts = [
        f"{REST}{slot}" if end else f"It is so.{slot}Be brief. {REST}" for slot in (one, other)
    ]
    made = told(*(chat(text, "What is it?") for text in texts))

    assert made is not None
    assert made.kind is Kind.WHITESPACE
    assert made.lost_chars >= (11 if end else len(REST))


@given(order=st.permutations(range(3)))
def test_documents_in_another_order(order: list[int]) -> None:
    """All of them from the first that moved are lost."""
    assume(order != [0, 1, 2])
    moved = [DOCUMENTS[at] for at in order]
    first = next(at for at in range(3) if order[at] != at)

    for one, other in zip(forms(DOCUMENTS), forms(moved), strict=True):
        made = told(one, other)
        assert made is not None
        assert made.kind is Kind.DOCUMENT_ORDER
        assert made.lost_chars >= sum(map(len, DOCUMENTS[first:]))


def forms(documents: list[str]) -> list[Parts]:
    """In one text, as parts of a message, and as a member of the body."""
    parts = [{"type": "text", "text": one} for one in documents]
    return [
        chat(REST, "\n\n".join(documents) + "\n\nWhat is it?"),
        [None, [{"role": "user", "content": parts}]],
        [None, [{"title": one} for one in documents], *chat(REST)[1:]],
    ]


@given(order=st.permutations(range(3)), written=st.booleans())
def test_tools_in_another_order(order: list[int], written: bool) -> None:
    """Or their members; all of the prompt after them is lost."""
    assume(written or order != [0, 1, 2])
    moved = [TOOLS[at] for at in order]
    if written:
        moved = [{"function": tool["function"], "type": "function"} for tool in moved]
    made = told(chat(REST, "hi", tools=TOOLS), chat(REST, "hi", tools=moved))

    assert made is not None
    assert made.kind is Kind.TOOL_ORDER
    assert made.lost_chars >= len(REST)


def test_a_date_and_a_time_are_one_place() -> None:
    """A few words apart, both differ; all behind the time is lost."""
    slots = ("Date: Jan 5, 2026. Time: 10:22;", "Date: Jan 6, 2026. Time: 11:40;")

    assert in_template(*slots) == Parted(Kind.TIMESTAMP, len(";") + TAIL + len("What is it?"))


def test_other_words() -> None:
    """A name in the system message; other tools, whatever their names."""
    numbered = [[{"type": "function", "name": f"search{at}"}] for at in (1, 2)]
    assert told(*(chat(REST, tools=tools) for tools in numbered)) == Parted(Kind.OTHER, 0)
    assert in_template("Speak to Alice;", "Speak to Bob;") == Parted(
        Kind.OTHER, len(";") + TAIL + len("What is it?")
    )
    assert told(chat(REST, tools=TOOLS), chat(REST, tools=TOOLS[:2])) == Parted(Kind.OTHER, 0)


def test_another_question_is_how_prompts_should_part() -> None:
    """Nothing after it is in both."""
    assert told(chat(REST, "What is it?"), chat(REST, "Who made it, and why?")) == Parted(
        Kind.MESSAGE, 0
    )


def test_what_goes_on_parts_from_nothing() -> None:
    """A conversation's next turn, and the same again."""
    assert told(chat(REST, "a"), chat(REST, "a", "b")) is None
    assert told(chat(REST, "a"), chat(REST, "a")) is None


def test_images_are_not_compared() -> None:
    """Nor is what follows one."""
    image = {"type": "image_url", "image_url": {"url": "data:,1"}}
    begin = {"type": "text", "text": "a"}
    one, other = (
        [None, [{"role": "user", "content": [begin, image, {"type": "text", "text": text}]}]]
        for text in ("b 1", "b 2")
    )

    assert told(one, other) is None


@given(
    st.lists(st.sampled_from(["a", "b", "cc" * 40, "é" * 70, "0" * 20_000]), max_size=6),
    st.lists(st.sampled_from(["a", "b", "cc" * 40, "é" * 70, "0" * 20_000]), max_size=6),
    st.integers(0, 9),
)
def test_the_common_length_is_that_of_the_beginning(
    one: list[str], other: list[str], skip: int
) -> None:
    """Against characters one by one."""
    mine, its = "".join(one), "".join(other)
    naive = 0
    for a, b in zip(mine[skip:], its[skip:], strict=False):
        if a != b:
            break
        naive += 1

    assert common_length(mine, its, min(skip, len(mine)), min(skip, len(its))) == naive


def test_the_first_difference_is_found_in_any_part() -> None:
    """Tools, then messages; a text that is no list is one item."""
    assert first_difference([TOOLS, ["a"]], [TOOLS[:2], ["a"]]) == Place(0, 2)
    assert first_difference([None, "s", ["a", "b"]], [None, "s", ["a", "c"]]) == Place(2, 1)
    assert first_difference([None, "s", ["a"]], [None, "t", ["a"]]) == Place(1, 0)
    assert first_difference([None, ["a"]], [TOOLS, ["a"]]) == Place(0, 0)


def test_anything_that_a_client_sends_is_looked_at_without_a_fault() -> None:
    """Bodies are only checked as far as routing needs it."""
    draw = random.Random(7)

    def anything(depth: int = 0) -> Any:
        kind = draw.randrange(8 if depth < 4 else 5)
        if kind < 5:
            return draw.choice([None, 1, 2.5, True, "", "text 1", "text 2", "\ud800", "x" * 300])
        if kind == 5:
            return [anything(depth + 1) for _ in range(draw.randrange(4))]
        names = ["role", "content", "text", "type", "name", "url"]
        return {draw.choice(names): anything(depth + 1) for _ in range(draw.randrange(4))}

    for _ in range(5000):
        one, other = ([anything() for _ in range(2)] for _ in range(2))
        place = first_difference(one, other)
        if place is not None:
            parted(one, other, place)
