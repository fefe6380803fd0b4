"""Ids from the memo are those of the whole prompt, and only new messages cost anything."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as HuggingFaceTokenizer

from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens.chat_request import Chat
from prefold.proxy.tokens.encoder import WORTH_WAITING_FOR, Encoder
from prefold.proxy.tokens.tokenizer import LoadedTokenizer, load_tokenizer
from tests.support.tiny_tokenizer import (
    CHATML,
    TOOLS_CHATML,
    WEATHER_CALL,
    WEATHER_TOOL,
    tiny_bpe,
    tiny_unigram,
    write_folder,
)


class Encoders:
    """Makes encoders in a folder, closed at the end of the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[Encoder] = []
        self.loaded: LoadedTokenizer

    def __call__(
        self,
        tokenizer: HuggingFaceTokenizer | None = None,
        *,
        template: str | None = CHATML,
        memo_bytes: int = 1 << 20,
        inline_chars: int = 1 << 20,
        alone: bool = True,
    ) -> Encoder:
        folder = write_folder(self._folder, tokenizer or tiny_bpe(), template=template)
        self.loaded = load_tokenizer(str(folder))
        self._made.append(
            Encoder(
                self.loaded.tokenizer,
                self.loaded.template,
                memo_bytes=memo_bytes,
                inline_chars=inline_chars,
                alone=alone,
            )
        )
        return self._made[-1]

    def whole(self, messages: list[dict[str, str]]) -> list[int]:
        """Ids of the prompt rendered and encoded in one piece."""
        assert self.loaded.template is not None
        text = self.loaded.template.render(messages, None, {})
        return [int(token_id) for token_id in self.loaded.tokenizer.encode(text)]

    def close(self) -> None:
        for encoder in self._made:
            encoder.close()


@pytest.fixture
def encoders(tmp_path: Path) -> Iterator[Encoders]:
    made = Encoders(tmp_path)
    yield made
    made.close()


def conversation(turns: int) -> list[dict[str, str]]:
    roles = ["user", "assistant"] * turns
    return [
        {"role": role, "content": f"hello {number} and in"}
        for number, role in enumerate(roles[: 2 * turns - 1])
    ]


async def test_a_next_turn_encodes_only_what_is_new(encoders: Encoders) -> None:
    """Of the second prompt, the answer and the new question are encoded; the rest is a hit."""
    encoder = encoders()
    assert encoder.cut == "<|im_start|>"
    for turns in (5, 6):
        before = encoder.stats()["tokens_encoded"]
        messages = conversation(turns)
        ids = await encoder.encode_chat(messages, None, {})
        assert ids.tolist() == encoders.whole(messages)
    after = encoder.stats()
    new = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages[-2:])
    assert after["tokens_encoded"] - before == len(encoders.loaded.tokenizer.encode(new))
    # Both prompts hold a default system message, their turns and a generation prompt.
    assert after["segment_hits"] + after["segment_misses"] == (9 + 2) + (11 + 2)
    assert after["segment_misses"] == (9 + 2) + 2


async def test_special_tokens_in_a_message_are_what_the_engine_takes_them_for(
    encoders: Encoders,
) -> None:
    """A client that writes markup into its text gets markup, with the memo as without."""
    encoder = encoders()
    for content in ("<|im_start|>", "a<|im_end|>\n<|im_start|>system\nhello", "<|im_<|im_start|>"):
        messages = [{"role": "user", "content": content}]
        for _ in range(2):
            ids = await encoder.encode_chat(messages, None, {})
            assert ids.tolist() == encoders.whole(messages)


async def test_tools_are_part_of_the_prompt(encoders: Encoders) -> None:
    """Tools and calls are encoded as rendered, and met again in the memo."""
    encoder = encoders(template=TOOLS_CHATML)
    call: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [WEATHER_CALL]}
    result = {"role": "tool", "tool_call_id": "call00001", "content": "17"}
    messages = [{"role": "user", "content": "hello"}, call, result]
    ids = await encoder.encode_chat(messages, [WEATHER_TOOL], {})
    again = await encoder.encode_chat(messages, [WEATHER_TOOL], {})
    text = encoders.loaded.tokenizer.encode
    assert encoders.loaded.template is not None
    rendered = encoders.loaded.template.render(messages, [WEATHER_TOOL], {})
    assert ids.tolist() == again.tolist() == text(rendered).tolist()
    assert "get_weather" in rendered


async def test_a_plain_prompt_begins_with_the_bos_unless_told_otherwise(
    encoders: Encoders,
) -> None:
    """As /v1/completions does, where the tokenizer adds one at all."""
    encoder = encoders(tiny_bpe(bos="<|endoftext|>"))
    bos = tiny_bpe().token_to_id("<|endoftext|>")
    plain = tiny_bpe().encode("hello", add_special_tokens=False).ids
    assert (await encoder.encode_text("hello")).tolist() == [bos, *plain]
    assert (await encoder.encode_text("hello", add_bos=False)).tolist() == plain
    assert (await encoder.encode_text("")).tolist() == [bos]


async def test_without_a_template_only_plain_prompts_are_encoded(encoders: Encoders) -> None:
    """A base model answers completions; its chats have no known ids."""
    encoder = encoders(template=None)
    assert (await encoder.encode_text("hello")).size == 1
    with pytest.raises(NotEncodable):
        await encoder.encode_chat(conversation(1), None, {})


async def test_a_tokenizer_that_cannot_be_cut_is_memoised_whole(encoders: Encoders) -> None:
    """Where a special token could be hidden by another, prompts are looked up in one piece."""
    tokenizer = tiny_bpe()
    tokenizer.add_special_tokens([AddedToken("<", normalized=False)])
    encoder = encoders(tokenizer)
    assert encoder.cut is None
    assert "whole prompts only" in encoder.describe()
    for turns in (2, 2, 3):
        messages = conversation(turns)
        assert (await encoder.encode_chat(messages, None, {})).tolist() == encoders.whole(messages)
    assert (encoder.stats()["segment_hits"], encoder.stats()["segment_misses"]) == (1, 2)


async def test_long_texts_are_encoded_in_the_encoders_own_thread(encoders: Encoders) -> None:
    """The event loop encodes what is short; more than `inline_chars` goes to a thread."""
    encoder = encoders(inline_chars=200)
    names = {thread.name for thread in threading.enumerate()}
    await encoder.encode_text("a" * 200)
    assert {thread.name for thread in threading.enumerate()} == names
    ids = await encoder.encode_text("b" * 201)
    assert {thread.name for thread in threading.enumerate()} - names == {"prefold-encode_0"}
    assert ids.size == 201


async def test_the_slow_tokenizer_never_holds_the_event_loop(encoders: Encoders) -> None:
    """Where fastokens was not proved, even short texts are encoded in the thread."""
    encoder = encoders(tiny_unigram())
    names = {thread.name for thread in threading.enumerate()}
    await encoder.encode_text("a")
    assert {thread.name for thread in threading.enumerate()} - names == {"prefold-encode_0"}


async def test_a_cancelled_call_leaves_the_encoder_usable(encoders: Encoders) -> None:
    """The client went away while its prompt was in the thread: the next one is not disturbed."""
    encoder = encoders(inline_chars=0)
    text = "hello in " * 200
    calls = [asyncio.create_task(encoder.encode_text(text + str(number))) for number in range(5)]
    await asyncio.sleep(0)  # each has handed its text to the thread
    for call in calls:
        call.cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    assert encoder.stats()["memo_entries"] == 0

    ids = await encoder.encode_text(text)
    assert ids.tolist() == encoders.loaded.tokenizer.encode(text).tolist()
    assert encoder.stats()["memo_entries"] == 1


async def test_concurrent_calls_do_not_mix_their_ids(encoders: Encoders) -> None:
    """Some pieces come from the memo, some from the thread; each call gets its own, in order."""
    encoder = encoders(inline_chars=0)
    chats = [conversation(turns) for turns in (1, 4, 2, 4, 3, 6, 1)]
    results = await asyncio.gather(*(encoder.encode_chat(chat, None, {}) for chat in chats))
    assert [ids.tolist() for ids in results] == [encoders.whole(chat) for chat in chats]


async def test_a_memo_too_small_for_anything_changes_no_ids(encoders: Encoders) -> None:
    """The bound is a matter of cost only."""
    encoder = encoders(memo_bytes=0)
    for _ in range(2):
        messages = conversation(3)
        assert (await encoder.encode_chat(messages, None, {})).tolist() == encoders.whole(messages)
    assert encoder.stats()["segment_hits"] == 0
    assert encoder.stats()["memo_bytes"] == 0


async def test_lone_surrogates_are_not_encodable(encoders: Encoders) -> None:
    """In a message, a tool or a plain prompt: one exception, and nothing is remembered."""
    encoder = encoders(template=TOOLS_CHATML)
    bad = "a\udc00"
    with pytest.raises(NotEncodable):
        await encoder.encode_text(bad)
    with pytest.raises(NotEncodable):
        await encoder.encode_chat([{"role": "user", "content": bad}], None, {})
    replaced = await encoder.encode_chat([{"role": "user", "content": "a\ufffd"}], None, {})
    assert replaced.size > 0  # U+FFFD itself is a character like any other
    before = encoder.stats()["memo_entries"]
    tool = {"type": "function", "function": {"name": bad}}
    with pytest.raises(NotEncodable):
        await encoder.encode_chat(conversation(1), [tool], {})
    assert encoder.stats()["memo_entries"] == before


def document(seed: int, end: str = "") -> list[dict[str, str]]:
    words = random.Random(seed).choices(["hello", "and", "in", "the"], k=WORTH_WAITING_FOR // 3)
    return [{"role": "user", "content": " ".join(words) + end}]


async def test_of_a_text_that_begins_as_none_before_the_rest_comes_later(
    encoders: Encoders,
) -> None:
    """What is known at once is its beginning, up to the first new piece; the rest is exact too."""
    encoder = encoders()
    await encoder.encode_chat([{"role": "user", "content": "in"}], None, {})
    beginning = await encoder.begin_chat(Chat(messages=document(1)))
    expected = encoders.whole(document(1))

    assert beginning.whole is not None
    assert beginning.ids.tolist() == expected[: len(beginning.ids)]
    assert 0 < len(beginning.ids) < len(expected) < 4 * beginning.length
    assert (await beginning.whole).tolist() == expected
    other = await encoder.begin_chat(Chat(messages=document(2)))
    assert other.after != beginning.after


@pytest.mark.parametrize(
    "messages", [document(1), document(1, " and more"), [{"role": "user", "content": "in"}]]
)
async def test_what_may_be_cached_in_part_is_waited_for(
    encoders: Encoders, messages: list[dict[str, str]]
) -> None:
    """The same text, one that goes on differently, and one too short to matter."""
    encoder = encoders()
    await encoder.encode_chat(document(1), None, {})
    beginning = await encoder.begin_chat(Chat(messages=messages))

    assert beginning.whole is None
    assert beginning.ids.tolist() == encoders.whole(messages)
    assert beginning.length == len(beginning.ids)


async def test_where_others_serve_too_nothing_is_known_to_be_new(encoders: Encoders) -> None:
    """Another process may have sent the same text to an engine."""
    beginning = await encoders(alone=False).begin_chat(Chat(messages=document(1)))

    assert beginning.whole is None
    assert beginning.ids.tolist() == encoders.whole(document(1))
