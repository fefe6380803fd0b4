"""Whatever the conversations, memoised ids are the ids of the whole prompt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from prefold.proxy.tokens.chat_template import ChatTemplate
from prefold.proxy.tokens.encoder import Encoder
from prefold.proxy.tokens.long_texts import LONG
from prefold.proxy.tokens.tokenizer import Tokenizer, load_tokenizer
from tests.support.tiny_tokenizer import CHATML, SPECIALS, TOOLS_CHATML, tiny_bpe, write_folder

PIECES = st.one_of(
    st.sampled_from([*SPECIALS, "<|im_", "start|>", "<|", "|>", "hello", " ", "\n", "12", "<s>"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
CONTENTS = st.lists(PIECES, max_size=8).map("".join)
ROLES = st.sampled_from(["user", "assistant", "system", "tool", "<|im_start|>"])
# So long that a mark stands for them while the chat is rendered.
LONG_CONTENTS = st.tuples(CONTENTS, st.sampled_from(["hello and ", "in"]), CONTENTS).map(
    lambda parts: parts[0] + parts[1] * LONG + parts[2]
)
MESSAGES = st.fixed_dictionaries({"role": ROLES, "content": CONTENTS | LONG_CONTENTS})
CONVERSATIONS = st.lists(MESSAGES, min_size=1, max_size=6)


@pytest.fixture(scope="module", params=[CHATML, TOOLS_CHATML], ids=["chatml", "tools"])
def parts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, ChatTemplate]:
    tokenizer = tiny_bpe()
    # One that takes the white space around it, next to those at which prompts are cut.
    tokenizer.add_special_tokens([AddedToken("<s>", lstrip=True, rstrip=True, normalized=False)])
    folder: Path = tmp_path_factory.mktemp("model")
    loaded = load_tokenizer(str(write_folder(folder, tokenizer, template=request.param)))
    assert loaded.template is not None
    return loaded.tokenizer, loaded.template


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    conversations=st.lists(CONVERSATIONS, min_size=1, max_size=4),
    memo_bytes=st.sampled_from([0, 1500, 20_000, 1 << 20]),
    inline_chars=st.sampled_from([0, 1 << 20]),
)
def test_memoised_ids_are_those_of_the_whole_prompt(
    parts: tuple[Tokenizer, ChatTemplate],
    conversations: list[list[dict[str, Any]]],
    memo_bytes: int,
    inline_chars: int,
) -> None:
    """Every prefix of every conversation, in an encoder that has seen the ones before."""
    tokenizer, template = parts
    encoder = Encoder(tokenizer, template, memo_bytes=memo_bytes, inline_chars=inline_chars)
    assert encoder.cut == "<|im_start|>"

    async def check() -> None:
        for conversation in conversations:
            for length in range(1, len(conversation) + 1):
                messages = [*conversation[:length], {"role": "user", "content": "in"}]
                ids = await encoder.encode_chat(messages, None, {})
                text = template.render(messages, None, {})
                assert ids.tolist() == tokenizer.encode(text).tolist()

    try:
        asyncio.run(check())
    finally:
        encoder.close()


@settings(max_examples=100, deadline=None)
@given(text=CONTENTS)
def test_plain_prompts_with_markup_are_cut_as_exactly(
    parts: tuple[Tokenizer, ChatTemplate], text: str
) -> None:
    """A client that renders its own template sends special tokens in a completion prompt."""
    tokenizer, template = parts
    encoder = Encoder(tokenizer, template, memo_bytes=1 << 20, inline_chars=1 << 20)
    try:
        for _ in range(2):
            ids = asyncio.run(encoder.encode_text(text))
            assert ids.tolist() == tokenizer.encode(text).tolist()
    finally:
        encoder.close()
