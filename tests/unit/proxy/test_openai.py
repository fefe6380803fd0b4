"""Reading the members of a request that matter, and refusing what is no request."""

import json
from typing import Any

import pytest

from prefold.proxy.errors import BadRequest
from prefold.proxy.openai import (
    Bounds,
    ChatBody,
    CompletionBody,
    parse,
)

HELLO = [{"role": "user", "content": "hello"}]


def chat(raw: bytes) -> ChatBody:
    body = parse(ChatBody, raw, Bounds())
    assert isinstance(body, ChatBody)
    return body


def test_members_that_decide_the_prompt_are_read_and_others_are_left_alone() -> None:
    """Unknown members of any type are no error: they belong to the engine."""
    raw = json.dumps({"model": "m", "messages": HELLO, "x": {"y": []}, "seed": 2**70}).encode()
    body = chat(raw)

    assert (body.model, body.messages, body.stream) == ("m", HELLO, None)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"messages":[{"role":"user","content":"\\ud83d"}]}',
        b'{"messages":[{"role":"user","content":"x"}],"top_p":1e999}',
        rb'{"seed":1,"seed":2,"messages":[{"role":"user","content":"\"model\" \"model\""}]}',
        b'{"model":"a","x":{"model":"b"},"messages":[{"role":"user"}]}',
    ],
    ids=["lone surrogate", "huge float", "duplicate", "model elsewhere"],
)
def test_what_engines_accept_is_accepted(raw: bytes) -> None:
    """The strict fast parser is not the last word."""
    assert chat(raw).messages[0]["role"] == "user"


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"\xff\xfe", None),
        (b"[]", None),
        (b"null", None),
        (b'"x"', None),
        (b'{"model":"m"}', "messages"),
        (b'{"messages":"hello"}', "messages"),
        (b'{"messages":[1]}', "messages[0]"),
        (b'{"model":7,"messages":[{}]}', "model"),
        (b'{"stream":"yes","messages":[{}]}', "stream"),
        (b'{"tools":{},"messages":[{}]}', "tools"),
        (b'{"top_p":1e999,"messages":"x"}', "messages"),
        (b'{"temperature":NaN,"messages":[{}]}', None),
        (b'{"temperature":-Infinity,"messages":[{}]}', None),
        (b'{"model":"a","messages":[{}],"model":"b"}', "model"),
    ],
)
def test_what_is_no_request_is_a_400_that_names_the_member(raw: bytes, param: str | None) -> None:
    """OpenAI's `param` says where to look."""
    with pytest.raises(BadRequest) as error:
        parse(ChatBody, raw, Bounds())

    assert (error.value.status, error.value.param) == (400, param)


def test_errors_do_not_quote_the_request() -> None:
    """A prompt must not come back in an error, or get into a log by it."""
    for raw in (b'{"messages": "sentinel"}', b'{"messages": sentinel}', b"sentinel"):
        with pytest.raises(BadRequest) as error:
            parse(ChatBody, raw, Bounds())
        assert "sentinel" not in error.value.message


@pytest.mark.parametrize(
    "raw", [b'{"a":' + b"[" * 100_000, b'{"a":' * 100_000, b'{"messages":' + b"[" * 65]
)
def test_deep_nesting_is_refused_whether_it_is_read_or_not(raw: bytes) -> None:
    """No recursion error, whatever the parser."""
    with pytest.raises(BadRequest, match="deeper than 64"):
        parse(ChatBody, raw, Bounds())


@pytest.mark.parametrize("prompt", ["text", [1, 2, 3], ["a", "b"], [[1, 2], [3]]])
def test_all_forms_of_a_completion_prompt_are_read(prompt: object) -> None:
    """Text, token ids, and lists of either."""
    body = parse(CompletionBody, json.dumps({"prompt": prompt}).encode(), Bounds())

    assert isinstance(body, CompletionBody)
    assert body.prompt == prompt


@pytest.mark.parametrize(
    ("members", "several"),
    [
        ({"prompt": "text"}, False),
        ({"prompt": [1, 2, 3]}, False),
        ({"prompt": ["a"], "n": 1}, False),
        ({"prompt": ["a", "b"]}, True),
        ({"prompt": [[1, 2], [3]]}, True),
        ({"prompt": "text", "n": 2}, True),
        ({"prompt": []}, False),
    ],
)
def test_requests_of_several_sequences_are_told(members: dict[str, Any], several: bool) -> None:
    """vLLM reports the cached tokens of one of them, the last or the first."""
    assert parse(CompletionBody, json.dumps(members).encode(), Bounds()).several is several


def test_several_answers_to_a_chat_are_several_sequences() -> None:
    """Each is prefilled, and the second finds what the first has left."""
    for members, several in (
        ({}, False),
        ({"n": 1}, False),
        ({"n": None}, False),
        ({"n": 2}, True),
    ):
        assert chat(json.dumps({"messages": HELLO, **members}).encode()).several is several


@pytest.mark.parametrize(
    ("kind", "member"),
    [
        (ChatBody, {"chat_template": "x"}),
        (ChatBody, {"add_special_tokens": True}),
        (ChatBody, {"truncate_prompt_tokens": 5}),
        (CompletionBody, {"add_special_tokens": False}),
        (CompletionBody, {"truncate_prompt_tokens": -1}),
        (CompletionBody, {"suffix": "x"}),
        (CompletionBody, {"prompt_embeds": "x"}),
    ],
)
def test_what_changes_how_a_prompt_is_made_is_seen(
    kind: type[ChatBody] | type[CompletionBody], member: dict[str, Any]
) -> None:
    """Such prompts have no ids that we could claim; with the defaults they have."""
    plain: dict[str, Any] = {"messages": HELLO, "prompt": "a"}
    defaults = dict.fromkeys(member)
    assert not parse(kind, json.dumps(plain | defaults).encode(), Bounds()).alters_prompt
    assert parse(kind, json.dumps(plain | member).encode(), Bounds()).alters_prompt


@pytest.mark.parametrize("padding", [0, 10_000])
@pytest.mark.parametrize("key", ["model", "mod\\u0065l", "\\u006d\\u006F\\u0064\\u0065\\u006c"])
def test_a_model_that_is_named_twice_is_refused(key: str, padding: int) -> None:
    """However the second key is written: the engine might read the other one."""
    text = "x" * padding
    raw = f'{{"model":"a","messages":[{{"content":"{text}"}}],"{key}":"b"}}'.encode()

    with pytest.raises(BadRequest, match="more than once"):
        parse(ChatBody, raw, Bounds())
    inner = f'{{"model":"a","messages":[{{"content":"{text}"}}],"metadata":{{"{key}":"b"}}}}'
    assert parse(ChatBody, inner.encode(), Bounds()).model == "a"
