"""Read the tokenizer out of a GGUF file and write it as Hugging Face files.

Knows the GGUF header and llama.cpp's names of pre-tokenizers; knows nothing of requests. The
vocabulary, the merges and the chat template are in the file, the splitting rules are not: they are
code inside llama.cpp, chosen by `tokenizer.ggml.pre`. A rule we cannot write exactly is refused.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from prefold.proxy.encoding_errors import TokenizerError

# tokenizer.ggml.token_type, from the GGUF specification.
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4

_SCALARS = dict(enumerate("BbHhIif?", start=0)) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CASELESS_WORDS = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreTokenizer:
    """One value of `tokenizer.ggml.pre`: how text is split and what llama.cpp implies by it."""

    words: str
    split_digits: bool = False
    ignore_merges: bool = False
    add_bos: bool = False


_GPT2 = _PreTokenizer(words=_GPT2_WORDS)
_QWEN2 = _PreTokenizer(words=_CASELESS_WORDS % "")
_LLAMA3 = _PreTokenizer(words=_CASELESS_WORDS % "{1,3}", ignore_merges=True, add_bos=True)
_PRE_TOKENIZERS = {
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "smollm": _PreTokenizer(words=_GPT2_WORDS, split_digits=True),
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerParts:
    """What `tokenizer.json` and `tokenizer_config.json` hold, still in memory."""

    tokenizer_json: str
    config: dict[str, Any]


def convert(gguf_path: Path, out_dir: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` of the model into `out_dir`."""
    parts = tokenizer_parts(gguf_path)
    out_dir.mkdir(parents=True, exist_ok=True)
    (out_dir / "tokenizer.json").write_text(parts.tokenizer_json, encoding="utf-8")
    config = json.dumps(parts.config, ensure_ascii=False, indent=2)
    (out_dir / "tokenizer_config.json").write_text(config, encoding="utf-8")


def tokenizer_parts(gguf_path: Path) -> TokenizerParts:
    """Convert the tokenizer of a GGUF file.

    Raises `TokenizerError` naming the key and the value that is not supported,
    `OSError` if the file cannot be read.
    """
    meta = read_metadata(gguf_path)
    model, pre_name = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre")
    if model != "gpt2":
        raise TokenizerError(f"tokenizer.ggml.model is {model!r}, only 'gpt2' is known")
    if pre_name not in _PRE_TOKENIZERS:
        known = ", ".join(_PRE_TOKENIZERS)
        raise TokenizerError(f"tokenizer.ggml.pre is {pre_name!r}, known are: {known}")
    if meta.get("tokenizer.ggml.add_eos_token"):
        raise TokenizerError("tokenizer.ggml.add_eos_token is true")
    pre = _PRE_TOKENIZERS[pre_name]

    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    bos, eos = (
        _token(tokens, meta.get(f"tokenizer.ggml.{name}_token_id")) for name in ("bos", "eos")
    )
    add_bos = bool(meta.get("tokenizer.ggml.add_bos_token", pre.add_bos)) and bos is not None
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": add_bos,
        "bos_token": bos,
        "eos_token": eos,
        "chat_template": meta.get("tokenizer.chat_template"),
    }
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(tokens, meta["tokenizer.ggml.token_type"]),
        "normalizer": None,
        "pre_tokenizer": _pre_tokenizer(pre),
        "post_processor": _bos_processor(bos, tokens.index(bos)) if add_bos and bos else None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": _bpe(tokens, meta["tokenizer.ggml.merges"], ignore_merges=pre.ignore_merges),
    }
    return TokenizerParts(tokenizer_json=json.dumps(tokenizer, ensure_ascii=False), config=config)


def _token(tokens: list[str], token_id: int | None) -> str | None:
    return None if token_id is None else tokens[token_id]


def _added_tokens(tokens: list[str], types: list[int]) -> list[dict[str, Any]]:
    """Tokens that are found in a text before anything else is done to it."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": token_id, "content": token, **flags, "special": kind != _USER_DEFINED}
        for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]


def _pre_tokenizer(pre: _PreTokenizer) -> dict[str, Any]:
    def split(pattern: str) -> dict[str, Any]:
        regex = {"Regex": pattern}
        return {"type": "Split", "pattern": regex, "behavior": "Isolated", "invert": False}

    digits = [{"type": "Digits", "individual_digits": True}] if pre.split_digits else []
    to_bytes = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    return {"type": "Sequence", "pretokenizers": [*digits, split(pre.words), to_bytes]}


def _bos_processor(bos: str, bos_id: int) -> dict[str, Any]:
    start = {"SpecialToken": {"id": bos, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [start, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [start, *({"Sequence": {"id": name, "type_id": 0}} for name in "AB")],
        "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}},
    }


def _bpe(tokens: list[str], merges: list[str], *, ignore_merges: bool) -> dict[str, Any]:
    pairs = []
    for merge in merges:
        cut = merge.index(" ", 1)
        pairs.append([merge[:cut], merge[cut + 1 :]])
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": ignore_merges,
        "vocab": {token: token_id for token_id, token in enumerate(tokens)},
        "merges": pairs,
    }


def read_metadata(gguf_path: Path) -> dict[str, Any]:
    """Read the key-value section at the head of a GGUF file (versions 2 and 3, little-endian).

    The tensors are not touched, so the cost does not depend on the size of the model.
    """
    with gguf_path.open("rb") as file:
        magic, version, _, n_pairs = struct.unpack("<4sIQQ", file.read(24))
        if magic != b"GGUF" or version not in (2, 3):
            raise TokenizerError(f"{gguf_path.name} is not a GGUF file of version 2 or 3")
        return {_string(file): _value(file, *_unpack(file, "I")) for _ in range(n_pairs)}


def _unpack(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    packed = struct.Struct("<" + layout)
    return packed.unpack(file.read(packed.size))


def _string(file: BinaryIO) -> str:
    return file.read(*_unpack(file, "Q")).decode("utf-8")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _unpack(file, _SCALARS[kind])[0]
    item_kind, length = _unpack(file, "IQ")
    if item_kind in _SCALARS:
        return list(_unpack(file, f"{length}{_SCALARS[item_kind]}"))
    return [_value(file, item_kind) for _ in range(length)]
