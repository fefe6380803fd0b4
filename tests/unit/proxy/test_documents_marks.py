"""Which parts of a body count as documents, and which of them may change places."""

import json
from itertools import pairwise
from typing import Any

import pytest

from prefold.proxy.documents.delimited import Span, adjacent, places, spans
from prefold.proxy.documents.marks import Marks
from prefold.proxy.documents.passages import Passage, passages

A, B, C, D = (f"<document>{name}</document>" for name in "abcd")
ALL = Marks(parts=True, member=True, delimited=True, fence="[stay]")


def text_part(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def chat(content: Any, role: str = "user", **more: Any) -> str:
    return json.dumps({"model": "m", "messages": [{"role": role, "content": content}], **more})


def runs(body: str, marks: Marks = ALL) -> dict[str, list[list[str]]]:
    """By place, the pieces of the body that may change places with each other."""
    return {
        passage.place: [[body[one.start : one.end] for one in run] for run in passage.found.runs]
        for passage in passages(body, marks)
        if passage.found.runs
    }


def texts(body: str, marks: Marks = ALL) -> list[list[str]]:
    """Of the only message: what its documents say."""
    [passage] = passages(body, marks)
    return [[one.content for one in run] for run in passage.found.runs]


def test_text_parts_but_the_last_are_documents() -> None:
    """The last part of a user's message is the question."""
    assert texts(chat([text_part(name) for name in "abcq"])) == [["a", "b", "c"]]
    assert texts(chat([text_part(name) for name in "aq"])) == []


def test_parts_of_a_documents_type_are_the_documents_where_there_are_any() -> None:
    """Then the texts around them are not, and end a run."""
    documents = [{"type": "document", "title": name} for name in "abcd"]
    content = [*documents[:2], text_part("x"), *documents[2:]]
    [passage] = passages(chat(content), ALL)

    assert [[one.number for one in run] for run in passage.found.runs] == [[0, 1], [2, 3]]
    assert passage.found.count == 4


@pytest.mark.parametrize("name", ["cache_control", "prompt_cache_breakpoint"])
def test_a_cache_breakpoint_stays_and_is_not_crossed(name: str) -> None:
    """What a client wants cached up to a part must go on ending there. `null` is none."""
    parts = [text_part(letter) for letter in "abcdefq"]
    parts[2][name] = {"type": "ephemeral"}
    parts[4][name] = None

    assert [len(run) for run in texts(chat(parts))] == [2, 3]


@pytest.mark.parametrize(
    "fenced", [text_part("x [stay]"), {"type": "document", "source": {"data": "[stay]"}}]
)
def test_the_fence_stays_and_is_not_crossed(fenced: dict[str, Any]) -> None:
    """Wherever in a part its text is."""
    documents = [{"type": "document", "title": name} for name in "abcd"]
    [passage] = passages(chat([*documents[:2], fenced, *documents[2:]]), ALL)

    titles = [[json.loads(one.content)["title"] for one in run] for run in passage.found.runs]
    assert titles == [["a", "b"], ["c", "d"]]


def test_other_parts_end_a_run() -> None:
    """An image stays where it is, and documents stay on their side of it."""
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    content = [text_part("a"), text_part("b"), image, text_part("c"), text_part("q")]

    assert texts(chat(content)) == [["a", "b"]]


@pytest.mark.parametrize("role", ["assistant", "model"])
def test_the_models_own_words_stay(role: str) -> None:
    """They are a prefix that an engine made itself."""
    assert runs(chat(f"{A}{B}", role)) == {}
    assert runs(chat([{"type": "document"}] * 3, role)) == {}


def test_only_user_messages_have_unmarked_parts_as_documents() -> None:
    """Instructions in parts are no documents; delimited ones among them are."""
    assert runs(chat([text_part(name) for name in "abc"], "system")) == {}
    assert texts(chat([text_part(f"{A} {B}"), text_part("b")], "system")) == [[A, B]]


def test_delimited_documents_are_a_run_with_white_space_between() -> None:
    """What else stands between them is not marked, and may say which one is meant."""
    assert texts(chat(f"Use {A}\n\n{B}{C} and\n{D}{A} to answer")) == [[A, B, C], [D, A]]
    assert texts(chat(f"1. {A}\n2. {B}\n")) == []


def test_a_fenced_delimited_document_stays() -> None:
    """As a fence between them, which is text that is not marked."""
    fenced = "<document>[stay]</document>"
    assert texts(chat(f"{A}{B}{fenced}{C}{D}")) == [[A, B], [C, D]]


def test_documents_in_documents_are_left_alone() -> None:
    """Which of the ends belongs to which beginning cannot be told."""
    assert spans(f"<document>{A}</document>{B}", "<document>", "</document>") == []
    assert spans(f"{A}{B}<document>", "<document>", "</document>") == [
        Span(0, len(A)),
        Span(len(A), len(A + B)),
    ]


def test_delimiters_are_found_however_json_writes_them() -> None:
    """Some encoders escape angle brackets and everything that is not ASCII."""
    text = f"\u00e9\n{A}\U0001f375\\u003c{B}\t{C}\ud83d"
    plain = chat(text)
    escaped = plain.replace("<", "\\u003c").replace("/", "\\/")

    assert texts(plain) == texts(escaped) == [[B, C]]
    assert runs(escaped)["messages[0]"][0][0] == json.dumps(B)[1:-1].replace(
        "<", "\\u003c"
    ).replace("/", "\\/")


def test_places_of_characters_in_a_json_string() -> None:
    """A pair of surrogates is one character, a lone one is too."""
    literal = '"a\\n\\ud83c\\udf75\\ud83cb\\\\u0041"'
    text = json.loads(literal)
    found = places(literal, range(len(text) + 1))

    assert [literal[a:b] for a, b in pairwise(found)] == [
        *("a", "\\n", "\\ud83c\\udf75", "\\ud83c", "b", "\\\\"),
        *"u0041",
    ]


def test_adjacent_spans() -> None:
    """Next to each other, or with white space between."""
    assert adjacent("ab", Span(0, 1), Span(1, 2))
    assert adjacent("a \n b", Span(0, 1), Span(4, 5))
    assert not adjacent("a,b", Span(0, 1), Span(2, 3))


def test_documents_as_templates_take_them() -> None:
    """The top-level member and the template's own one, elements as they are."""
    listed = [{"title": "a"}, {"title": "b", "cache_control": None}, "c"]
    body = chat("q", documents=listed, chat_template_kwargs={"x": 1, "documents": listed})

    assert runs(body) == {
        place: [[json.dumps(one) for one in listed]]
        for place in ("documents", "chat_template_kwargs.documents")
    }
    assert runs(chat("q", documents={"a": 1}, chat_template_kwargs=[])) == {}


def test_only_the_marks_that_were_asked_for_count() -> None:
    """Each kind for itself."""
    body = json.dumps(
        {
            "documents": ["a", "b"],
            "messages": [
                {"role": "user", "content": [text_part(A + B), text_part("b"), text_part("q")]},
                {"role": "user", "content": A + B},
            ],
        }
    )
    assert list(runs(body, Marks(member=True))) == ["documents"]
    assert list(runs(body, Marks(parts=True))) == ["messages[0]"]
    assert list(runs(body, Marks(delimited=True))) == ["messages[0]", "messages[1]"]
    assert runs(body, Marks()) == {}


def test_every_kind_of_request_is_read() -> None:
    """Chats, completions, Messages and Responses, in the order of their prompts."""

    def found(**body: Any) -> list[str]:
        return [one.place for one in passages(json.dumps(body), ALL) if one.found.runs]

    turn = {"role": "user", "content": A + B}
    blocks = [{"type": "text", "text": A + B}]
    assert found(prompt=A + B, stream=True) == ["prompt"]
    assert found(prompt=[1, 2, 3]) == found(prompt=[A, B]) == []
    assert found(messages=[turn], system=blocks, max_tokens=1) == ["system", "messages[0]"]
    assert found(input=[turn, {"type": "reasoning"}], instructions=A + B) == [
        "instructions",
        "input[0]",
    ]
    assert found(input=A + B) == ["input"]
    assert found(input=A + B, previous_response_id="r") == []


def test_documents_stand_behind_the_system_message_or_first() -> None:
    """As templates have it; what stands before them decides what can be shared."""

    def order(*roles: str) -> list[str]:
        messages = [{"role": role, "content": "x"} for role in roles]
        body = json.dumps({"messages": messages, "documents": ["a"], "tools": []})
        return [passage.place for passage in passages(body, ALL)]

    assert order("system", "user") == ["tools", "messages[0]", "documents", "messages[1]"]
    assert order("user") == ["tools", "documents", "messages[0]"]
    assert order() == ["tools", "documents"]


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        "{",
        '{"messages":[],"messages":[]}',
        '{"messages":[{"content":[{"type":"document","text":"x","text":"y"}]}]} x'[:-3],
        '{"messages":[{"role":"user","content":"x","content":[1,2]}]}',
        '{"chat_template_kwargs":{"documents":[],"documents":[]},"messages":[]}',
    ],
)
def test_what_cannot_be_told_raises(body: str) -> None:
    """Broken JSON, and members that stand there twice: an engine may read the other one."""
    with pytest.raises(ValueError, match=r".+"):
        passages(body, Marks(member=True, delimited=True, parts=True))


def test_a_passage_names_its_place() -> None:
    """By its number, tools included in what comes before."""
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "tools": [1]})
    assert [(p.place, body[p.start : p.end]) for p in passages(body, ALL)] == [
        ("tools", "[1]"),
        ("messages[0]", '{"role": "user", "content": "x"}'),
    ]
    assert passages("{}", ALL) == []
    assert Passage("x", 0, 1).found.count == 0
