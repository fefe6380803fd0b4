"""Parts of prompts that differ in each request: what they change, and what they must not."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.backends.backend import Mode
from prefold.prefix_index.chain_memo import ChainMemo
from prefold.proxy.masks import HEAD_CHARS, MAX_MATCHES, MAX_TEXTS, MaskRule, Masks, edited
from prefold.proxy.messages import MessagesBody
from prefold.proxy.openai import ChatBody, CompletionBody
from prefold.proxy.prompt import approximate_units, encode
from prefold.proxy.responses import ResponsesBody

NONCE = r"nonce=[0-9]+;"
MASKS = Masks([MaskRule(pattern=NONCE)])
STRIPS = Masks([MaskRule(pattern=NONCE, stripped=True)])


def chat(nonce: int | None, question: str = "why?", *more: str) -> ChatBody:
    system = "You are terse." if nonce is None else f"nonce={nonce};You are terse."
    contents = [("system", system), ("user", question), *(("user", text) for text in more)]
    return ChatBody(messages=[{"role": role, "content": text} for role, text in contents])


def affinity(masks: Masks, body: Any, model: str = "m") -> int | None:
    masked = masks.look(model, body.key_parts())
    return None if masked is None else masked.affinity(7)


def test_turns_of_a_conversation_meet_whatever_their_nonce() -> None:
    """Its system message and its first question tell it from others."""
    first = affinity(MASKS, chat(1))

    assert first is not None
    assert first == affinity(MASKS, chat(2, "why?", "and then?"))
    assert first != affinity(MASKS, chat(3, "how?"))
    assert affinity(MASKS, chat(None)) is None


def test_a_rule_holds_for_the_models_that_it_names() -> None:
    """Named as backends list them."""
    masks = Masks([MaskRule(pattern=NONCE, models=("m", "n"))])

    assert affinity(masks, chat(1), "n") is not None
    assert affinity(masks, chat(1), "other") is None


@pytest.mark.parametrize(
    "make",
    [
        lambda nonce: CompletionBody(prompt=f"nonce={nonce};Once upon"),
        lambda nonce: ResponsesBody(instructions=f"nonce={nonce};Be terse.", input="why?"),
        lambda nonce: ResponsesBody(
            input=[{"role": "developer", "content": [{"type": "input_text", "text": nonce}]}]
        ),
        lambda nonce: MessagesBody(
            system=[{"type": "text", "text": f"nonce={nonce};"}, {"type": "text", "text": "Be."}],
            messages=[{"role": "user", "content": "why?"}],
        ),
    ],
)
def test_texts_are_found_in_every_kind_of_body(make: Any) -> None:
    """As parts, items or plain texts."""
    one, other = make("nonce=1;"), make("nonce=2;")

    assert affinity(MASKS, one) is not None
    assert affinity(MASKS, one) == affinity(MASKS, other)
    parts, others = (STRIPS.look("m", body.key_parts()) for body in (one, other))
    assert parts is not None
    assert others is not None
    assert parts.parts == others.parts


def test_what_is_masked_stays_in_the_keys_of_what_is_held() -> None:
    """No engine reuses what follows a part that differs: nothing is expected there."""
    body = chat(1)
    before = approximate_units(body).tobytes()
    masked = MASKS.look("m", body.key_parts())

    assert masked is not None
    assert masked.parts is None
    assert approximate_units(body, masked.parts).tobytes() == before


def test_what_the_engine_takes_out_is_not_compared() -> None:
    """Where bytes stand for tokens; the request itself is as it was."""
    body = chat(1)
    stripped, other = (STRIPS.look("m", chat(nonce).key_parts()) for nonce in (1, 2))
    assert stripped is not None
    assert other is not None
    units = approximate_units(body, stripped.parts).tobytes()

    assert units == approximate_units(chat(2), other.parts).tobytes()
    assert units == approximate_units(chat(None)).tobytes()
    assert body.messages[0]["content"].startswith("nonce=1;")


async def test_exact_tokens_are_never_masked() -> None:
    """The parts stand for bytes only, and the affinity is beside the prefixes."""
    body = CompletionBody(prompt=[5, 6, 7])
    seen = await encode(body, None, 7, {Mode.APPROXIMATE}, ChainMemo(), affinity=3, parts=["xxxx"])

    assert seen.affinity == 3
    assert seen.prefix(Mode.APPROXIMATE).units.tobytes() == b'"xxx'
    assert STRIPS.look("m", body.key_parts()) is None


def test_only_the_head_of_a_text_is_looked_at() -> None:
    """And only so many texts and matches: a long chat is not searched to its end."""
    far = CompletionBody(prompt="x" * HEAD_CHARS + "nonce=1;")
    near = CompletionBody(prompt="nonce=1;" + "x" * HEAD_CHARS + "nonce=2;")
    many = ChatBody(messages=[{"role": "system", "content": "a"}] * MAX_TEXTS + chat(1).messages)

    assert affinity(MASKS, far) is None
    assert affinity(MASKS, many) is None
    everywhere = STRIPS.look("m", ["nonce=1;" * (MAX_MATCHES + 2)])
    assert everywhere is not None
    assert everywhere.parts == ["nonce=1;" * 2]
    stripped = STRIPS.look("m", near.key_parts())
    assert stripped is not None
    assert stripped.parts == ["x" * HEAD_CHARS + "nonce=2;"]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing"),
        ("a(?=b)", "perl"),
        (r"(a)\1", "escape"),
        ("a*", "empty"),
        (r"\b", "empty"),
        ("", "empty"),
        ("a" * 1001, "1000"),
    ],
)
def test_patterns_that_cannot_be_used_are_refused(pattern: str, reason: str) -> None:
    """When the settings are read, not when a request comes."""
    with pytest.raises(ValueError, match=reason):
        Masks([MaskRule(pattern=pattern)])


def test_a_pattern_that_backtracks_elsewhere_takes_linear_time_here() -> None:
    """It would take Python's own engine longer than the world is old; this test, it would hang."""
    masks = Masks([MaskRule(pattern=r"(a+)+(b|a+)+\z!")])

    assert affinity(masks, CompletionBody(prompt="a" * HEAD_CHARS)) is None


TEXTS = st.text(st.sampled_from("ab1;é\ud800\n"), max_size=30)


@given(st.lists(TEXTS, max_size=4), st.sampled_from(["a[^;]*;", "b+", "[0-9]", "é", "a|b1"]))
def test_what_is_taken_out_is_what_pythons_patterns_take_out(
    texts: Sequence[str], pattern: str
) -> None:
    """Of the same simple pattern, on texts that RE2 takes; surrogates never fail."""
    body = ChatBody(messages=[{"role": "system", "content": text} for text in texts])
    masked = Masks([MaskRule(pattern=pattern, stripped=True)]).look("m", body.key_parts())
    plain = [text.encode("utf-8", "replace").decode() for text in texts]

    if not any(re.search(pattern, text) for text in plain):
        assert masked is None
        return
    assert masked is not None
    assert masked.parts is not None
    for before, after in zip(plain, masked.parts[1], strict=True):
        after_text = after["content"].encode("utf-8", "replace").decode()
        assert after_text == re.sub(pattern, "", before)


def test_editing_copies_what_it_changes() -> None:
    """Messages are shared with other requests that began alike."""
    parts = [
        [{"type": "function", "function": {"name": "f"}}],
        [
            {"role": "system", "content": [{"type": "text", "text": "a"}, "odd"]},
            {"role": "assistant", "content": None},
            {"role": "user", "content": "b"},
        ],
        None,
        [1, 2],
    ]
    copy = repr(parts)
    made = edited(parts, str.upper)

    assert repr(parts) == copy
    assert made[0] == parts[0]
    assert made[1][0]["content"] == [{"type": "text", "text": "A"}, "odd"]
    assert made[1][2]["content"] == "b"
    assert made[2:] == parts[2:]
