"""Chats as SGLang prepares them, by its source: what is told exactly, and what is not claimed."""

from __future__ import annotations

from typing import Any

import pytest

from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens.chat_template import ChatTemplate, Dialect
from tests.support.tiny_tokenizer import CHATML, TOOLS_CHATML, WEATHER_CALL, WEATHER_TOOL

USER = {"role": "user", "content": "hi"}
PARTS = [{"type": "text", "text": text} for text in ("a", "", "b")]
SHOWS = "{% for message in messages %}{{ message }}{% endfor %}{{ add_generation_prompt }}"
ROLES = "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"


def render(source: str, *messages: Any, **more: Any) -> str:
    made = ChatTemplate(source, "<s>", "</s>", dialect=Dialect.SGLANG)
    tools, extra = more.pop("tools", None), more.pop("extra", {})
    return made.render(list(messages), tools, extra, **more)


def test_a_plain_chat_is_rendered_as_the_template_says() -> None:
    """With a generation prompt always: the server knows no other way."""
    whole = (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert render(CHATML, USER) == whole
    assert render(CHATML, USER, add_generation_prompt=False) == whole


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "a  b"),
        ("{% for m in messages %}{{ m.content | length }}{% endfor %}", "4"),
        ("{# image #}{% for m in messages %}{{ m.content | length }}{% endfor %}", "3"),
        (
            "{% for message in messages %}{% for p in message['content'] %}<{{ p.text }}>"
            "{% endfor %}{% endfor %}",
            "<a><><b>",
        ),
        (
            "{% for msg in messages %}{% for p in msg.content | list %}<{{ p.text }}>"
            "{% endfor %}{% endfor %}",
            "<a><><b>",
        ),
        (
            "{% for m in messages %}{% for p in m.content[:2] %}<{{ p.text }}>{% endfor %}"
            "{% endfor %}",
            "<a><>",
        ),
        (
            "{% for x in messages %}{% for p in x.content %}{{ p }}{% endfor %}{% endfor %}",
            "a  b",
        ),
    ],
    ids=["text", "one text", "speaks of media", "loop", "filter", "slice", "another name"],
)
def test_lists_of_text_are_joined_unless_the_template_reads_them(source: str, shown: str) -> None:
    """By the words and the names in its source, not by what it does."""
    assert render(source, {"role": "user", "content": PARTS}) == shown


def test_a_text_stays_a_text_for_every_template() -> None:
    """Where vLLM would make a list of it."""
    source = "{% for m in messages %}{% for p in m.content %}[{{ p }}]{% endfor %}{% endfor %}"
    assert render(source, USER) == "[h][i]"


def test_of_messages_only_known_members_reach_the_template() -> None:
    """Of a user's nothing but the content; null is an empty text."""
    system = {"role": "system", "content": "s", "name": "n"}
    answer = {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": None}
    user = {**USER, "name": "bob", "other": 1}
    assert render(SHOWS, system, answer, user) == (
        "{'role': 'system', 'content': 's', 'name': 'n'}"
        "{'role': 'assistant', 'content': '', 'reasoning_content': 'r'}"
        "{'role': 'user', 'content': 'hi'}True"
    )


def test_a_message_that_is_shown_whole_has_its_members_in_the_servers_order() -> None:
    """A list of parts comes last, and no calls are an empty list where the client says so."""
    answer = {
        "role": "assistant",
        "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
        "tool_calls": [],
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
    }
    assert render("{# image #}" + SHOWS, answer, USER) == (
        "{'role': 'assistant', 'tool_calls': [], 'content': [{'type': 'text', 'text': 'a'}]}"
        "{'role': 'user', 'content': 'hi'}True"
    )
    assert render(SHOWS, {**answer, "name": "n"}, USER).startswith(
        "{'role': 'assistant', 'content': 'a', 'name': 'n', 'tool_calls': []}"
    )


def test_variables_of_the_clients_reach_the_template_and_documents_do_not() -> None:
    """chat_template_kwargs are passed on; the server knows no documents."""
    source = "{{ enable_thinking }} {{ documents is none }}"
    more: dict[str, Any] = {"extra": {"enable_thinking": False}, "documents": [{"text": "d"}]}
    assert render(source, USER, **more) == "False True"


def test_the_roles_of_plain_chats_are_kept() -> None:
    """Also the one that vLLM renames."""
    chat = [{"role": role, "content": "x"} for role in ("developer", "assistant", "user")]
    assert render(ROLES, *chat) == "[developer|x][assistant|x][user|x]"


@pytest.mark.parametrize(
    ("messages", "more"),
    [
        ([USER], {"tools": [WEATHER_TOOL]}),
        ([USER, {"role": "assistant", "content": "", "tool_calls": [WEATHER_CALL]}, USER], {}),
        ([{"role": "tool", "content": "17", "tool_call_id": "a"}, USER], {}),
        ([{"role": "latest_reminder", "content": "x"}, USER], {}),
        ([{"role": "System", "content": "x"}, USER], {}),
        ([{"role": "system", "content": "x", "prefix": True}, USER], {}),
        ([USER, {"role": "assistant", "content": "so"}], {}),
        ([USER, {"role": "assistant", "content": "so"}], {"continue_final_message": True}),
        ([USER], {"reasoning_effort": "low"}),
        ([USER], {"extra": {"reasoning_effort": "low"}}),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], {}),
        ([{"role": "user", "content": [{"type": "input_text", "text": "a"}]}], {}),
    ],
)
def test_what_is_not_told_exactly_is_not_claimed(
    messages: list[dict[str, Any]], more: dict[str, Any]
) -> None:
    """Then bytes are compared."""
    with pytest.raises(NotEncodable):
        render(TOOLS_CHATML, *messages, **more)
