"""llama.cpp splits SmolLM's text in two steps; our one pattern must split it in the same places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers

from prefold.proxy.tokens.gguf_tokenizer import tokenizer_parts
from tests.support.tiny_gguf import write_gguf

CHARACTERS = st.one_of(
    st.sampled_from(" \n\r\t\u00a0\u3000\u200b"),
    st.sampled_from("0189٣३Ⅷ½²"),
    st.sampled_from("abé한'sſ"),
    st.sampled_from(["'s", "'ll", "'S", "’s"]),
    st.sampled_from(".,-_$%\u0301\u200d\U0001f469"),
    st.characters(exclude_categories=["Cs"]),
)
TEXTS = st.lists(CHARACTERS, max_size=20).map("".join)
TWO_STEPS = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ]
)


@pytest.fixture(scope="module")
def one_pattern(tmp_path_factory: pytest.TempPathFactory) -> pre_tokenizers.PreTokenizer:
    path: Path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    parts = tokenizer_parts(write_gguf(path, pre="smollm"))
    assert len(json.loads(parts.tokenizer_json)["pre_tokenizer"]["pretokenizers"]) == 2
    pre_tokenizer = Tokenizer.from_str(parts.tokenizer_json).pre_tokenizer
    assert isinstance(pre_tokenizer, pre_tokenizers.PreTokenizer)
    return pre_tokenizer


@settings(max_examples=500, deadline=None)
@given(text=TEXTS)
def test_one_pattern_splits_as_two_steps_do(
    one_pattern: pre_tokenizers.PreTokenizer, text: str
) -> None:
    """White space before digits, contractions after them, numerals of all scripts."""
    pieces = [piece for piece, _ in one_pattern.pre_tokenize_str(text)]
    assert pieces == [piece for piece, _ in TWO_STEPS.pre_tokenize_str(text)]
