"""Which texts of a request may be made shorter, and how its body looks without what was cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.compression.forms import message_keys
from prefold.proxy.compression.segments import turns
from prefold.proxy.compression.texts import Segment, SegmentRules, without
from prefold.proxy.documents.marks import Marks
from prefold.proxy.splice import Member

MARKS = Marks(parts=True, member=True, delimited=True, fence="<fence>")
RULES = SegmentRules(marks=MARKS, min_chars=10)
LONG = "a text that is long enough"


def found(body: dict[str, Any], rules: SegmentRules = RULES) -> list[str]:
    return [segment.text for turn in turns(json.dumps(body), rules) for segment in turn.segments]


def chat(*messages: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in messages], **more}


def part(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def test_only_the_users_earlier_turns_are_whole_segments() -> None:
    """Not what system, developer, tools and the model said, nor the question."""
    body = chat(
        ("system", f"system {LONG}"),
        ("developer", f"developer {LONG}"),
        ("user", f"first {LONG}"),
        ("assistant", f"assistant {LONG}"),
        ("user", "short"),
        ("tool", f"tool {LONG}"),
        ("user", f"last {LONG}"),
        tools=[{"function": {"description": LONG}}],
    )
    assert found(body) == [f"first {LONG}"]
    rules = SegmentRules(marks=MARKS, min_chars=10, tools=True)
    assert found(body, rules) == [f"first {LONG}", f"tool {LONG}"]


def test_of_the_last_turn_marked_documents_are_segments() -> None:
    """Parts before the last one, and what stands between delimiters, without them."""
    image = {"type": "image_url", "image_url": {"url": LONG}}
    assert found(chat(("user", [part(f"one {LONG}"), image, part(f"two {LONG}"), part(LONG)]))) == [
        f"one {LONG}",
        f"two {LONG}",
    ]
    asked = f"see <document>{LONG}</document> and <document>b</document> before you answer"
    assert found(chat(("user", asked))) == [LONG]
    assert found(chat(("user", [part(asked)]))) == [LONG]
    assert found(chat(("user", asked), ("user", "why?"))) == [LONG, " before you answer"]


def test_a_document_is_the_same_segment_wherever_it_is_marked() -> None:
    """So it compresses to the same bytes in any prompt, order and kind of mark."""
    ways = [
        chat(("user", [part(LONG), part("q")])),
        chat(("user", f"<document>{LONG}</document> q")),
        chat(("user", "q"), documents=[{"title": "t", "text": LONG}]),
        chat(("user", "q"), documents=[LONG]),
        chat(("user", [{"type": "document", "source": {"type": "text", "data": LONG}}, part("q")])),
        chat(("user", [{"type": "search_result", "content": [part(LONG)]}, part("q")])),
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": LONG}, part("q")]}]},
    ]
    assert [found(body) for body in ways] == [[LONG]] * len(ways)


def test_results_of_tools_do_not_make_the_question_an_earlier_turn() -> None:
    """Anthropic's Messages have them come as the user's."""
    results = [{"type": "tool_result", "tool_use_id": "t", "content": LONG}]
    assert found(chat(("user", LONG), ("assistant", "calls"), ("user", results))) == []


def test_what_tools_answered_is_a_segment_where_that_is_wanted() -> None:
    """In Messages, wherever it stands, as a text or as parts, unless it is an error; in Responses
    as items."""
    rules = SegmentRules(marks=MARKS, min_chars=10, tools=True)
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": f"one {LONG}"},
        {"type": "tool_result", "tool_use_id": "b", "content": [part(f"two {LONG}"), part("b")]},
        {"type": "tool_result", "tool_use_id": "c", "content": LONG, "is_error": True},
        {"type": "tool_result", "tool_use_id": "d"},
        part(f"and {LONG}?"),
    ]
    body = chat(("user", "q"), ("assistant", "calls"), ("user", results))
    assert found(body, rules) == [f"one {LONG}", f"two {LONG}"]
    assert found(body) == []
    items = [{"type": "function_call_output", "call_id": "a", "output": LONG}]
    assert found({"input": items}, rules) == [LONG]
    assert found({"input": items}) == []


def test_of_a_plain_prompt_delimited_documents_are_segments() -> None:
    """Not what stands around them, nor of one that is to be echoed, of several, or of ids."""
    prompt = f"see <document>{LONG}</document> and <document>b</document> {LONG}"
    assert found({"prompt": prompt}) == [LONG]
    assert found({"prompt": prompt, "echo": False}) == [LONG]
    for body in ({"prompt": prompt, "echo": True}, {"prompt": [prompt]}, {"prompt": [1, 2]}):
        assert found(body) == []
    undelimited = SegmentRules(marks=Marks(parts=True, member=True), min_chars=10)
    assert found({"prompt": prompt}, undelimited) == []


def test_a_document_of_a_plain_prompt_is_told_by_all_before_it() -> None:
    """So it keeps its form when the prompt goes on, and only then."""

    def keys(prompt: str) -> list[bytes]:
        told = turns(json.dumps({"prompt": prompt}), RULES)
        keyed = zip(message_keys(told, b"k"), told, strict=True)
        return [key for key, turn in keyed if turn.notable]

    first = f"see <document>{LONG}</document> why?"
    longer = f"{first} Since. <document>{LONG} two</document> and?"
    assert keys(longer)[:1] == keys(first)
    assert len(keys(longer)) == 2
    assert keys(f"do {first}") != keys(first)


def test_what_stays() -> None:
    """A fence, a cited document, a lone surrogate, media, a text that is short."""
    cited = {
        "type": "document",
        "source": {"type": "text", "data": LONG},
        "citations": {"enabled": True},
    }
    for kept in (part(f"<fence> {LONG}"), cited, part(f"\ud800 {LONG}"), part("short")):
        assert found(chat(("user", [kept, part("q")]))) == []


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"messages": [], "messages": []}', '{"messages": [{"role": "user",}]}']
)
def test_a_body_that_cannot_be_told_is_an_error(text: str) -> None:
    """Then it goes out as it came."""
    with pytest.raises(ValueError, match=r"."):
        turns(text, RULES)


def test_odd_values_are_no_error() -> None:
    """The engine judges them."""
    for body in (
        {"messages": [None, 1, "x", {}, {"role": ["user"], "content": LONG}]},
        {"messages": [{"role": "user", "content": None}, {"role": "user", "content": [1, None]}]},
        {"messages": {"role": "user"}, "documents": "x"},
        {"prompt": LONG},
    ):
        assert found(body) == []


def test_a_message_is_told_by_what_it_says() -> None:
    """However its JSON is written, and wherever a cache breakpoint is set."""
    message = {"role": "user", "content": [part("ä", cache_control={"type": "ephemeral"})]}
    other = {"content": [part("ä")], "role": "user"}
    texts = [json.dumps({"messages": [message]}), json.dumps({"messages": [other]}, indent=2)]
    texts.append(json.dumps({"messages": [other]}, ensure_ascii=False))
    assert len({turn.told for text in texts for turn in turns(text, RULES)}) == 1


spans = st.lists(st.integers(0, 40), max_size=6, unique=True).map(sorted)


@given(
    value=st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable() or "\n" in text),
    cuts=spans,
    ascii_only=st.booleans(),
    ends=st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_a_body_without_the_cut_is_the_same_json_without_it(
    value: str, cuts: list[int], ascii_only: bool, ends: tuple[int, int]
) -> None:
    """Of any string, however it is escaped: as if it were cut and written anew."""
    start, end = (min(one, len(value)) for one in sorted(ends))
    kept = [cut for cut in cuts if cut <= end - start]
    kept = kept[: len(kept) // 2 * 2]
    text = json.dumps({"before": "ä\\", "text": value, "z": 1}, ensure_ascii=ascii_only)
    at = text.index('"text": ') + len('"text": ')
    string = Member("text", at, at + len(json.dumps(value, ensure_ascii=ascii_only)), value)
    made = without(text, [(Segment(value[start:end], string, start), kept)])
    inner = value[start:end]
    left = "".join([inner[a:b] for a, b in zip(kept[::2], kept[1::2], strict=True)])
    expected = value[:start] + left + value[end:]
    assert made == json.dumps({"before": "ä\\", "text": expected, "z": 1}, ensure_ascii=ascii_only)
