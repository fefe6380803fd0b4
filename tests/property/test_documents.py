"""Moving documents is a permutation of the same bytes, whatever the body looks like."""

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.proxy.documents.arrange import arrange
from prefold.proxy.documents.delimited import places, spans
from prefold.proxy.documents.marks import Marks
from prefold.proxy.documents.order import DocumentOrders

MARKS = Marks(parts=True, member=True, delimited=True, start="<d>", end="</d>", fence="!")
WORDS = st.text(st.sampled_from('a<d>/!\\"\n \u00e9\U0001f375\ud83c\udf75'), max_size=6)
NAMES = st.sampled_from(["a", "b", "c", "\u00e9\U0001f375", "!"])
DELIMITED = NAMES.map(lambda name: f"<d>{name}</d>")
TEXTS = st.lists(st.one_of(DELIMITED, DELIMITED, WORDS), max_size=6).map("".join)
PARTS = st.one_of(
    TEXTS.map(lambda text: {"type": "text", "text": text}),
    NAMES.map(lambda name: {"type": "document", "title": name}),
    NAMES.map(lambda name: {"type": "text", "text": name, "cache_control": {"type": "x"}}),
    st.just({"type": "image_url", "image_url": {"url": "data:,"}}),
)
CONTENTS = st.one_of(TEXTS, st.lists(PARTS, max_size=6), st.none())
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "user", "assistant"]), "content": CONTENTS}
)
BODIES = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGES, max_size=4)},
    optional={
        "documents": st.lists(st.one_of(NAMES, PARTS), max_size=6),
        "chat_template_kwargs": st.fixed_dictionaries({"documents": st.lists(NAMES, max_size=4)}),
        "model": st.just("m"),
        "tools": st.just([]),
    },
)
JSON = st.recursive(
    st.one_of(st.none(), st.integers(), WORDS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["messages", "content", "role", "documents", "text", "input", "type"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


def written(value: Any, ascii_only: bool, indent: int | None) -> bytes:
    """Lone surrogates can only be escaped."""
    try:
        return json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent).encode()


def leaves(value: Any) -> Counter[str]:
    """All of it but the order of lists and of what stands in texts."""
    if isinstance(value, dict):
        return sum((leaves(one) for one in value.values()), Counter(value.keys()))
    if isinstance(value, list):
        return sum((leaves(one) for one in value), Counter[str]())
    return Counter(value if isinstance(value, str) else [repr(value)])


@given(st.lists(BODIES, min_size=1, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_the_same_bytes_in_another_order(
    bodies: list[dict[str, Any]], ascii_only: bool, indent: int | None
) -> None:
    """Valid JSON, what is not in a passage with documents untouched, told right; and once more
    the same comes out."""
    orders = DocumentOrders()
    for body in [*bodies, *bodies]:
        raw = written(body, ascii_only, indent)
        value = json.loads(raw)
        made = arrange(raw, MARKS, orders, 1)
        if made is None:
            continue
        assert sorted(made.raw) == sorted(raw)
        parsed = json.loads(made.raw)
        assert leaves(parsed) == leaves(value)
        told = dict(one.split("=") for one in made.order.split("; ")) if made.order else {}
        assert (made.raw != raw) <= bool(told)
        for number, message in enumerate(value["messages"]):
            if f"messages[{number}]" not in told:
                assert parsed["messages"][number] == message
        for order in told.values():
            numbers = [int(one) for one in order.split(",")]
            assert sorted(numbers) == list(range(len(numbers)))
        again = arrange(raw, MARKS, orders, 1)
        assert again == made


@settings(max_examples=400)
@given(JSON, st.booleans())
def test_any_json_is_arranged_or_refused(value: Any, ascii_only: bool) -> None:
    """Bodies whose members are of other types than they should be."""
    raw = written({"messages": value, "documents": value, "input": value}, ascii_only, None)
    orders = DocumentOrders()
    for _ in range(2):
        try:
            made = arrange(raw, MARKS, orders, 1)
        except ValueError:
            return
        assert made is None or leaves(json.loads(made.raw)) == leaves(json.loads(raw))


@given(TEXTS, st.booleans())
def test_places_are_those_of_the_characters(text: str, ascii_only: bool) -> None:
    """Each piece of the string, read alone, is that piece of the text."""
    literal = written(text, ascii_only, None).decode()
    text = json.loads(literal)
    found = places(literal, range(len(text) + 1))
    assert found[0] == 1
    assert found[-1] == len(literal) - 1
    for number, character in enumerate(text):
        assert json.loads(f'"{literal[found[number] : found[number + 1]]}"') == character


@given(TEXTS)
def test_spans_are_what_a_reader_would_mark(text: str) -> None:
    """From a start to the next end, none within another; against a scan over the characters."""
    found: list[tuple[int, int]] = []
    at, opened = 0, -1
    while at < len(text):
        if text.startswith("<d>", at):
            if opened >= 0:
                if "</d>" in text[at:]:
                    found = []
                break
            opened, at = at, at + 3
        elif opened >= 0 and text.startswith("</d>", at):
            found.append((opened, at + 4))
            opened, at = -1, at + 4
        else:
            at += 1
    assert spans(text, "<d>", "</d>") == found


@given(st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=30))
def test_orders_are_permutations_and_do_not_change(sent: list[list[int]]) -> None:
    """The same documents give the same order, however they come."""
    orders = DocumentOrders()
    chosen: dict[tuple[int, ...], list[int]] = {}
    for documents in sent:
        order = list(orders.order(5, documents))
        assert Counter(order) == Counter(documents)
        assert chosen.setdefault(tuple(sorted(documents)), order) == order
