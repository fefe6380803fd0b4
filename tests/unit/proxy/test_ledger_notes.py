"""Keys of prompts and of conversations, by which the ledger tells what is equal."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from prefold.backends.backend import Mode
from prefold.measurement.record import RequestRecord
from prefold.prefix_index.chain_memo import ChainMemo
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.errors import NotEncodable
from prefold.proxy.ledger_notes import BLOCK_TOKENS, BlockKeys, LedgerNotes
from prefold.proxy.messages import MessagesBody
from prefold.proxy.openai import Body, ChatBody, CompletionBody
from prefold.proxy.prompt import Prompt
from prefold.proxy.responses import ResponsesBody

NONE = CIMultiDictProxy(CIMultiDict[str]())


def notes(*headers: str, secret: bytes = b"s") -> LedgerNotes:
    return LedgerNotes(secret, headers)


def key(body: Body, *, tenant: str = "", model: str = "m", made: LedgerNotes | None = None) -> Any:
    return (made or notes()).conversation(body, NONE, tenant, model)


def chat(*turns: tuple[str, Any]) -> ChatBody:
    return ChatBody(messages=[{"role": role, "content": content} for role, content in turns])


HELLO = (("system", "Be kind."), ("user", "hello"))


def test_the_turns_of_a_conversation_share_a_key() -> None:
    """All of what comes after the first turn of a user counts for nothing."""
    first = key(chat(*HELLO))

    assert first is not None
    assert key(chat(*HELLO, ("assistant", "hi"), ("user", "and?"))) == first
    assert key(chat(*HELLO), made=notes("X-Session-ID")) == first  # it sent none


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
        key(chat(("user", "x" * 20000))),
        key(chat(("user", "x" * 20001))),
        key(chat(*HELLO), tenant="acme"),
        key(chat(*HELLO), model="other"),
        key(chat(*HELLO), made=notes(secret=b"t")),
    ]

    assert len(set(others)) == len(others)


def test_a_name_that_the_client_gives_decides() -> None:
    """By the first header that it sent, within its tenant."""
    named = notes("X-Session-ID", "X-Other")

    def of(body: ChatBody, tenant: str = "", **headers: str) -> int | None:
        sent = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
        return named.conversation(body, CIMultiDictProxy(sent), tenant, "m")

    one = of(chat(*HELLO), x_session_id="a")
    assert of(chat(("user", "more")), x_session_id="a", x_other="b") == one
    assert len({one, of(chat(*HELLO)), of(chat(*HELLO), x_session_id="b")}) == 3
    assert of(chat(*HELLO), "acme", x_session_id="a") != one
    assert of(chat(*HELLO), x_other="a") == one


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


@given(
    prompts=st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.integers(0, 1), max_size=6), st.integers(0, 511)),
        max_size=20,
    ),
    memo=st.sampled_from([0, 3 * 4 * BLOCK_TOKENS, 2**20]),
    worth=st.integers(1, 4),
)
def test_the_memo_changes_no_key(
    prompts: list[tuple[int, list[int], int]], memo: int, worth: int
) -> None:
    """Prompts that share some blocks: keys are those of a chain made from nothing."""
    remembering = BlockKeys(memo, worth)
    for seed, contents, rest in prompts:
        blocks = [np.full(BLOCK_TOKENS, content, np.uint32) for content in contents]
        units = np.concatenate([*blocks, np.zeros(rest, np.uint32)])
        fresh = ChainMemo(0).chain(units, seed, BLOCK_TOKENS)
        assert remembering.of(Prefix.of_tokens(units, seed)) == fresh


async def test_a_prompt_whose_ids_come_late_is_noted_whole() -> None:
    """And not at all if they never came: its beginning alone would pass for all of it."""
    loop = asyncio.get_running_loop()
    ids = np.arange(3 * BLOCK_TOKENS + 5, dtype=np.uint32)
    whole = Prefix.of_tokens(ids, 1)
    beginning = Prefix.of_tokens(ids[:BLOCK_TOKENS], 1, length=len(ids))

    def noted(come: asyncio.Future[Prefix]) -> tuple[int | None, int]:
        record = RequestRecord(endpoint="", received=0.0)
        notes().prompt(Prompt({Mode.FEEDBACK: beginning}, len(ids), come), record)
        return record.prefix_tokens, len(record.blocks)

    come: asyncio.Future[Prefix] = loop.create_future()
    assert noted(come) == (None, 0)
    come.set_result(whole)
    assert noted(come) == (len(ids), 3)
    failed: asyncio.Future[Prefix] = loop.create_future()
    failed.set_exception(NotEncodable("it is not known"))
    assert noted(failed) == (None, 0)
