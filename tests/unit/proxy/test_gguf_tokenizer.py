"""The tokenizer of a GGUF file: read as the reference library wrote it, refused where unsure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader, GGUFWriter
from tokenizers import Tokenizer

from prefold.proxy.errors import TokenizerError
from prefold.proxy.tokens.gguf_metadata import read_metadata
from prefold.proxy.tokens.gguf_tokenizer import convert, tokenizer_parts
from tests.support.tiny_gguf import write_gguf
from tests.support.tiny_tokenizer import CHATML, SPECIALS, vocabulary


def tokens_of(path: Path, text: str) -> list[str]:
    tokenizer = Tokenizer.from_str(tokenizer_parts(path).tokenizer_json)
    return tokenizer.encode(text, add_special_tokens=False).tokens


def test_every_kind_of_value_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Our reader of the header and the reference library's agree on all value types."""
    path = tmp_path / "kinds.gguf"
    writer = GGUFWriter(path, "llama")
    for kind, value in {
        "uint8": 255, "int8": -128, "uint16": 65535, "int16": -32768, "uint32": 2**32 - 1,
        "int32": -(2**31), "uint64": 2**64 - 1, "int64": -(2**63), "float32": 0.5,
        "float64": 0.1, "bool": True, "string": "größer 한국어",
    }.items():  # fmt: skip
        getattr(writer, f"add_{kind}")(f"x.{kind}", value)
    writer.add_array("x.strings", ["a", "", "é"])
    writer.add_array("x.numbers", [1, -2, 3])
    writer.add_array("x.floats", [0.5, 1.5])
    writer.add_array("x.flags", [True, False])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    fields = GGUFReader(path).fields
    reference = {key: field.contents() for key, field in fields.items() if "GGUF." not in key}
    assert len(reference) == 17
    assert read_metadata(path) == reference


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGML" + bytes(20), b"GGUF\x09" + bytes(19)])
def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    """An empty, short, foreign or future file is a `TokenizerError`, not a crash in the reader."""
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=r"broken\.gguf"):
        tokenizer_parts(path)


def test_a_truncated_header_is_refused(tmp_path: Path) -> None:
    """A download that broke off inside the vocabulary is a `TokenizerError`."""
    whole = write_gguf(tmp_path / "whole.gguf").read_bytes()
    for size in (30, 100, 1000, len(whole) - 1):
        cut = tmp_path / "cut.gguf"
        cut.write_bytes(whole[:size])
        with pytest.raises(TokenizerError, match=r"cut\.gguf"):
            tokenizer_parts(cut)


def test_merges_and_special_tokens_are_taken_over(tmp_path: Path) -> None:
    """Text merges as the file's list says; control and user-defined tokens are found in it."""
    path = write_gguf(tmp_path / "tiny.gguf")
    assert tokens_of(path, "hello hello<|im_end|>[tag]in") == [
        "hello", "Ġhello", "<|im_end|>", "[tag]", "in",
    ]  # fmt: skip
    added = json.loads(tokenizer_parts(path).tokenizer_json)["added_tokens"]
    assert {token["content"]: token["special"] for token in added} == {
        **dict.fromkeys(SPECIALS, True),
        "[tag]": False,
    }


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("smollm", "12 12", ["1", "2", "Ġ", "1", "2"]),
        ("gpt-2", "12 12", ["12", "Ġ", "12"]),
        ("qwen2", "12", ["1", "2"]),
        ("llama-bpe", "1212", ["12", "1", "2"]),
        ("gpt-2", "(hello", ["(", "hello"]),
        ("qwen2", "\nhello", ["Ċ", "hello"]),
    ],
)
def test_text_is_split_by_the_rules_the_file_names(
    tmp_path: Path, pre: str, text: str, expected: list[str]
) -> None:
    """Digits stay single, pair up or come in threes, depending on `tokenizer.ggml.pre`."""
    assert tokens_of(write_gguf(tmp_path / "tiny.gguf", pre=pre), text) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pre": "default"}, r"tokenizer\.ggml\.pre is 'default'"),
        ({"pre": "smaug-bpe"}, r"tokenizer\.ggml\.pre is 'smaug-bpe'"),
        ({"model": "llama"}, r"tokenizer\.ggml\.model is 'llama'"),
        ({"model": "t5"}, r"tokenizer\.ggml\.model is 't5'"),
        ({"add_eos_token": True}, r"add_eos_token"),
    ],
)
def test_rules_that_are_not_known_exactly_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    """An unknown pre-tokenizer, another model type or an appended EOS is named, not guessed."""
    with pytest.raises(TokenizerError, match=message):
        tokenizer_parts(write_gguf(tmp_path / "tiny.gguf", **settings))


@pytest.mark.parametrize(
    ("settings", "adds"),
    [
        ({}, False),
        ({"add_bos_token": True}, True),
        ({"pre": "llama-bpe"}, True),
        ({"pre": "llama-bpe", "add_bos_token": False}, False),
    ],
)
def test_bos_is_added_where_the_file_or_else_the_pre_tokenizer_says_so(
    tmp_path: Path, settings: dict[str, Any], adds: bool
) -> None:
    """`add_bos_token` decides; without it llama.cpp's default for the pre-tokenizer does."""
    parts = tokenizer_parts(write_gguf(tmp_path / "tiny.gguf", **settings))
    ids = Tokenizer.from_str(parts.tokenizer_json).encode("in", add_special_tokens=True).tokens
    assert ids == (["<|im_start|>", "in"] if adds else ["in"])
    assert parts.config["add_bos_token"] is adds


def test_converted_files_hold_what_memory_held(tmp_path: Path) -> None:
    """`convert` writes a folder that Hugging Face's own loader reads to the same vocabulary."""
    path = write_gguf(tmp_path / "tiny.gguf")
    convert(path, tmp_path / "out")
    loaded = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert [loaded.id_to_token(token_id) for token_id in range(loaded.get_vocab_size())] == [
        *vocabulary(),
        "[tag]",
    ]
    config = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert config["chat_template"] == CHATML
    assert (config["bos_token"], config["eos_token"]) == ("<|im_start|>", "<|im_end|>")
