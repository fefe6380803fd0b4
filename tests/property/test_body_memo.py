"""Whatever bodies came before, one is read as if it were the first."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from prefold.proxy.body_memo import BodyMemo
from prefold.proxy.errors import BadRequest
from prefold.proxy.openai import WORTH_A_LOOK, Bounds, ChatBody, parse, parse_chat

BOUNDS = Bounds(max_messages=5)
# Long enough to be known; some hold what looks like the form of a body.
TEXTS = st.sampled_from(["a", "b", 'x"},{"role', '"messages":[', "é"]).map(lambda text: text * 1500)
SHORT = st.sampled_from(["q", "r", '"messages":[{'])
MESSAGE = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "system"]),
    TEXTS | TEXTS | SHORT,
)
MESSAGES = st.lists(MESSAGE, max_size=6)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")])


@st.composite
def texts(draw: st.DrawFn) -> str:
    messages = draw(MESSAGES)
    compact = draw(SEPARATORS)
    listed = json.dumps(messages, separators=compact)
    other = json.dumps(draw(MESSAGES), separators=compact)
    members = [
        '"model":"m"',
        f'"messages":{listed}',
        *draw(
            st.lists(
                st.sampled_from(
                    [
                        f'"x":{listed}',
                        f'"x":{{"messages":{listed}}}',
                        f'"messages":{other}',
                        '"model":"n"',
                        '"stream":true',
                        '"n":1000',
                        '"stream":3',
                    ]
                ),
                max_size=2,
            )
        ),
    ]
    members = draw(st.permutations(members)) if draw(st.booleans()) else members
    return "{" + draw(st.sampled_from([",", ", "])).join(members) + "}"


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    text = draw(texts())
    damage = draw(st.sampled_from(["", "", "", "cut", "comma"]))
    if damage == "cut":
        text = text[: -draw(st.integers(1, 3))]
    elif damage == "comma":
        text = text.replace("}]", "},]", 1)
    return text.encode()


def read(raw: bytes, memo: BodyMemo | None) -> ChatBody | str:
    try:
        if memo is None:
            return parse(ChatBody, raw, BOUNDS)
        return parse_chat(raw, BOUNDS, memo)
    except BadRequest as error:
        return error.message


@settings(max_examples=400, deadline=None)
@given(st.lists(bodies(), min_size=1, max_size=4), st.data())
def test_a_body_is_read_as_if_it_were_the_first(some: list[bytes], data: st.DataObject) -> None:
    """The same members, or the same complaint."""
    memo = BodyMemo(max_bytes=data.draw(st.sampled_from([0, 30_000, 1 << 20])))
    for raw in data.draw(st.lists(st.sampled_from(some), min_size=1, max_size=10)):
        assert read(raw, memo) == read(raw, None)


def test_what_was_seen_twice_is_known() -> None:
    """A system prompt, then with each question only the question is parsed."""
    memo = BodyMemo()
    system = {"role": "system", "content": "a" * WORTH_A_LOOK}
    known = []
    for question in "abc":
        messages = [system, {"role": "user", "content": question}]
        raw = json.dumps({"model": "m", "messages": messages}).encode()
        parted = memo.part(raw)
        known.append(0 if parted is None else len(parted.known))
        assert parse_chat(raw, BOUNDS, memo).messages == messages

    assert known == [0, 0, 1]


def test_a_conversation_that_grows_by_long_messages_is_known_up_to_the_last_turn() -> None:
    """And what all share stays known, however many go on from there."""
    memo = BodyMemo()
    system = {"role": "system", "content": "a" * WORTH_A_LOOK}

    def parsed(*contents: str) -> int:
        messages = [system, *({"role": "user", "content": text} for text in contents)]
        raw = json.dumps({"model": "m", "messages": messages}, separators=(",", ":")).encode()
        parted = memo.part(raw)
        parse_chat(raw, Bounds(), memo)
        return 0 if parted is None else len(parted.known)

    parsed("x")
    parsed("y")
    turns = [letter * 2000 for letter in "bcdef"]
    grown = [parsed(*turns[: end + 1]) for end in range(5)]

    assert grown == [1, 1, 3, 3, 5]
    for letter in "ghijklmnopqrstu":
        parsed(letter * 2000)
    assert parsed("z") == 1
