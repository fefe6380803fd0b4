"""A prompt as the index sees it: exact ids, or bytes where those are not known."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefold.backends.backend import Mode
from prefold.prefix_index.chain_memo import ChainMemo
from prefold.proxy.errors import BadRequest
from prefold.proxy.openai import ChatBody, CompletionBody
from prefold.proxy.prompt import Prompt, approximate_units, encode
from prefold.proxy.tokens.encoder import WORTH_WAITING_FOR, Encoder
from prefold.proxy.tokens.tokenizer import load_tokenizer
from tests.support.tiny_tokenizer import tiny_bpe, write_folder

EVENTS, FEEDBACK, APPROXIMATE = Mode.EVENTS, Mode.FEEDBACK, Mode.APPROXIMATE


def chat(*contents: object) -> ChatBody:
    return ChatBody(messages=[{"role": "user", "content": content} for content in contents])


@pytest.fixture
def encoder(tmp_path: Path) -> Iterator[Encoder]:
    loaded = load_tokenizer(str(write_folder(tmp_path, tiny_bpe())))
    made = Encoder(loaded.tokenizer, loaded.template, memo_bytes=1000, inline_chars=1000)
    yield made
    made.close()


async def made(body: ChatBody | CompletionBody, encoder: Encoder | None, *modes: Mode) -> Prompt:
    told = 8 if EVENTS in modes else None
    return await encode(body, encoder, 7, set(modes), ChainMemo(), told)


async def test_exact_ids_where_they_are_known(encoder: Encoder) -> None:
    """Both of a chat and of a text."""
    exact = await made(chat("hello"), encoder, FEEDBACK)
    expected = await encoder.encode_chat([{"role": "user", "content": "hello"}], None, {})
    assert exact.prefix(FEEDBACK).units.tolist() == expected.tolist()
    assert exact.tokens == len(expected)

    text = await made(CompletionBody(prompt="hello"), encoder, FEEDBACK)
    assert text.prefix(FEEDBACK).units.tolist() == (await encoder.encode_text("hello")).tolist()


async def test_token_ids_are_taken_as_they_are(encoder: Encoder) -> None:
    """Of several prompts, the first stands for all."""
    for prompt in ([5, 6, 7], [[5, 6, 7], [8]]):
        body = CompletionBody(prompt=prompt)  # type: ignore[arg-type]
        assert (await made(body, encoder, FEEDBACK)).prefix(FEEDBACK).units.tolist() == [5, 6, 7]


@pytest.mark.parametrize("prompt", [[], [-1], [2**32], [[-1]], [1, "a"]])
async def test_impossible_token_ids_are_refused(encoder: Encoder, prompt: object) -> None:
    """Never another exception, never a wrapped id."""
    body = CompletionBody(prompt=prompt)  # type: ignore[arg-type]
    with pytest.raises(BadRequest) as error:
        await made(body, encoder, FEEDBACK)
    assert error.value.param == "prompt"


async def test_a_prompt_that_cannot_be_encoded_is_known_by_its_bytes(encoder: Encoder) -> None:
    """An image, say; two different images never look alike."""
    images = [
        chat([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}])
        for data in ("AAAA" * 100 + "B", "AAAA" * 100 + "C")
    ]
    first, second = [await made(body, encoder, FEEDBACK) for body in images]

    assert first.tokens is second.tokens is None
    assert first.prefix(FEEDBACK).chain(1)[-1] != second.prefix(FEEDBACK).chain(1)[-1]


async def test_each_mode_has_its_own_prefix(encoder: Encoder) -> None:
    """A mixed fleet: ids for the exact backends, bytes for the others."""
    both = await made(chat("hello"), encoder, FEEDBACK, APPROXIMATE)
    bytes_only = await made(chat("hello"), None, FEEDBACK, APPROXIMATE)

    assert both.prefix(FEEDBACK).length != both.prefix(APPROXIMATE).length
    assert bytes_only.prefix(FEEDBACK) is bytes_only.prefix(APPROXIMATE)


async def test_engines_that_tell_what_they_hold_part_prompts_in_their_own_way(
    encoder: Encoder,
) -> None:
    """The same ids under another seed; without a candidate of that mode nothing is made for it."""
    prompt = await made(chat("hello"), encoder, EVENTS, FEEDBACK)
    ours, theirs = prompt.prefix(FEEDBACK), prompt.prefix(EVENTS)

    assert (ours.seed, theirs.seed) == (7, 8)
    assert ours.units.tolist() == theirs.units.tolist()
    assert (await made(chat("hello"), encoder, FEEDBACK)).prefixes.keys() == {FEEDBACK}
    image = chat([{"type": "image_url", "image_url": {"url": "data:,"}}])
    assert (await made(image, encoder, EVENTS)).prefix(EVENTS).seed == 7


async def test_of_a_long_new_text_all_is_known_where_an_engine_tells_what_it_holds(
    tmp_path: Path,
) -> None:
    """It is new to us only; elsewhere what was never sent is in no cache, and need not be waited
    for."""
    loaded = load_tokenizer(str(write_folder(tmp_path, tiny_bpe())))
    encoder = Encoder(loaded.tokenizer, loaded.template, memo_bytes=1 << 20, inline_chars=1000)
    try:
        await made(chat("in"), encoder, FEEDBACK)
        later = await made(chat("hello and " * WORTH_WAITING_FOR), encoder, FEEDBACK)
        told = await made(chat("and hello " * WORTH_WAITING_FOR), encoder, EVENTS, FEEDBACK)
        assert later.whole is not None
        assert len(later.prefix(FEEDBACK).units) < len((await later.whole).units)
        assert told.whole is None
        assert len(told.prefix(EVENTS).units) == told.prefix(EVENTS).length == told.tokens
    finally:
        encoder.close()


async def test_a_mode_that_came_up_meanwhile_finds_some_prefix() -> None:
    """The choice may then match nothing, but does not fail."""
    prompt = await made(chat("hello"), None)

    assert prompt.prefix(FEEDBACK).length > 0


def test_a_longer_conversation_extends_a_shorter_ones_bytes() -> None:
    """Up to the last incomplete unit; tools come first, as templates put them."""
    short, long = approximate_units(chat("hello")), approximate_units(chat("hello", "again"))
    assert np.array_equal(short, long[: len(short)])

    other_tools = approximate_units(ChatBody(messages=chat("hello").messages, tools=[{"a": 1}]))
    assert not np.array_equal(short[:4], other_tools[:4])


def test_bytes_of_any_prompt_can_be_taken() -> None:
    """Lone surrogates and empty prompts included."""
    assert len(approximate_units(chat("\ud800" * 8))) > 0
    assert len(approximate_units(CompletionBody(prompt=""))) == 0


def test_media_take_part_in_the_key_as_digests() -> None:
    """Two images never share a key, wherever they differ, and neither fills it."""

    def units(data: str) -> bytes:
        parts = [
            {"type": "text", "text": "x" * 1000},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64," + data}},
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        ]
        return approximate_units(ChatBody(messages=[{"role": "user", "content": parts}])).tobytes()

    long = "A" * 3_000_000
    one, other = units(long + "B"), units(long + "C")
    assert one != other
    assert len(one) < 6000
    assert one == units(long + "B")
    assert b"x" * 1000 in one


def test_a_tool_call_and_an_empty_content_take_part_in_the_key() -> None:
    """`content` may be null."""

    def key(arguments: str) -> bytes:
        call = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        messages: list[dict[str, Any]] = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool"},
        ]
        return approximate_units(ChatBody(messages=messages)).tobytes()

    assert key('{"a":1}') != key('{"a":2}')


def test_texts_that_look_alike_are_different_keys() -> None:
    """No Unicode normalisation: the engine sees other tokens."""
    composed, decomposed = chat("caf\u00e9"), chat("cafe\u0301")

    assert approximate_units(composed).tobytes() != approximate_units(decomposed).tobytes()
