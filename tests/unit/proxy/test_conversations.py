"""Keys of conversations, which their turns share."""

from __future__ import annotations

from typing import Any

from prefold.proxy.conversations import Conversations
from prefold.proxy.messages import MessagesBody
from prefold.proxy.openai import Body, ChatBody, CompletionBody
from prefold.proxy.responses import ResponsesBody


def conversations(secret: bytes = b"s") -> Conversations:
    return Conversations(secret)


def key(
    body: Body, *, tenant: str = "", model: str = "m", made: Conversations | None = None
) -> Any:
    return (made or conversations()).key(body, None, tenant, model)


def chat(*turns: tuple[str, Any]) -> ChatBody:
    return ChatBody(messages=[{"role": role, "content": content} for role, content in turns])


HELLO = (("system", "Be kind."), ("user", "hello"))


def test_the_turns_of_a_conversation_share_a_key() -> None:
    """All of what comes after the first turn of a user counts for nothing."""
    first = key(chat(*HELLO))

    assert first is not None
    assert key(chat(*HELLO, ("assistant", "hi"), ("user", "and?"))) == first


def test_what_begins_otherwise_is_another_conversation() -> None:
    """System message, first turn, roles, parts, where one text ends, tenant, model, secret."""
    others = [
        key(chat(*HELLO)),
        key(chat(("system", "Be brief."), HELLO[1])),
        key(chat(HELLO[0], ("user", "bye"))),
        key(chat(("developer", "Be kind."), HELLO[1])),
        key(chat(("user", "hello"))),
        key(chat(("system", "Be kind.user"), ("user", "hello"))),
        key(chat(("user", [{"type": "text", "text": "hello"}]))),
        key(chat(("user", [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]))),
        key(chat(("system", None), ("user", "hello"))),
        key(chat(("developer", None), ("user", "hello"))),
        key(chat(("system", None), ("developer", None), ("user", "hello"))),
        key(chat(("other", "Be kind."), ("user", "hello"))),
        key(chat(("user", "x" * 20000))),
        key(chat(("user", "x" * 20001))),
        key(chat(*HELLO), tenant="acme"),
        key(chat(*HELLO), model="other"),
        key(chat(*HELLO), made=conversations(b"t")),
    ]

    assert len(set(others)) == len(others)


def test_a_name_that_the_client_gives_decides() -> None:
    """Within its tenant, whatever the messages are."""
    named = conversations()

    def of(body: ChatBody, session: str | None = None, tenant: str = "") -> int | None:
        return named.key(body, session, tenant, "m")

    one = of(chat(*HELLO), "a")
    assert of(chat(("user", "more")), "a") == one
    assert len({one, of(chat(*HELLO)), of(chat(*HELLO), "b"), of(chat(*HELLO), "a", "acme")}) == 4


def test_each_api_has_its_conversations() -> None:
    """Messages and Responses begin with their system text too; completions have no turns, and what
    a backend stored is not known here."""
    turn = [{"role": "user", "content": "hello"}]
    kinds = [
        key(MessagesBody(messages=turn, system="Be kind.")),
        key(ResponsesBody(input="hello", instructions="Be kind.")),
        key(ResponsesBody(input=turn)),
        key(ResponsesBody(input="more", conversation="conv_1")),
    ]

    assert None not in kinds
    assert key(MessagesBody(messages=turn)) == key(chat(("user", "hello")))
    assert len(set(kinds)) == len(kinds)
    more = [*turn, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "so?"}]
    assert key(ResponsesBody(input=more)) == kinds[2]
    assert key(ResponsesBody(input="again", conversation="conv_1")) == kinds[3]
    assert key(ResponsesBody(input="so?", previous_response_id="resp_1")) is None
    assert key(CompletionBody(prompt="hello")) is None


def test_any_json_has_a_key() -> None:
    """Engines judge what a content is; lone surrogates come through JSON, too."""
    strange: list[Any] = [None, 1.5, True, "\ud800", [None, {"a": [1]}], {"b": "\udfff" * 20000}]
    keys = [key(chat(("user", content))) for content in strange]

    assert len({*keys}) == len(strange)
    assert key(ResponsesBody(input=[3, None])) != key(ResponsesBody(input=[4]))
