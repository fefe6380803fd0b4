"""Read the tokenizer out of a GGUF file and write it as Hugging Face files.

The vocabulary, the merges and the chat template are in the file. The rules that split a text are
not: they are code inside llama.cpp, chosen by `tokenizer.ggml.pre`. A rule that cannot be written
exactly is refused. Knows nothing of requests.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefold.proxy.errors import TokenizerError
from prefold.proxy.tokens.gguf_metadata import read_metadata

_PREFIX = "tokenizer.ggml."
# Values of token_type, from the GGUF specification.
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4

# In llama.cpp two steps: each digit alone, then GPT-2's rule on what lies between. As one pattern,
# which is what `fastokens` is fast at: white space before a digit then ends a piece.
_SMOLLM_WORDS = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?=\p{N})|\s+(?!\S)|\s+"
)
_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Not `(?i:'s|...)` as in the models' own files: that also matches U+017F, a long s.
_CASELESS_WORDS = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreTokenizer:
    """One value of `tokenizer.ggml.pre`: how text is split and what llama.cpp implies by it."""

    words: str
    ignore_merges: bool = False
    add_bos: bool = False


# Each was compared with a running llama.cpp, ids for ids.
_GPT2 = _PreTokenizer(words=_GPT2_WORDS)
_QWEN2 = _PreTokenizer(words=_CASELESS_WORDS % "")
_LLAMA3 = _PreTokenizer(words=_CASELESS_WORDS % "{1,3}", ignore_merges=True, add_bos=True)
_PRE_TOKENIZERS = {
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "smollm": _PreTokenizer(words=_SMOLLM_WORDS),
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

    Raises `TokenizerError` naming the key and the value that is not supported, `OSError` if the
    file cannot be read.
    """
    meta = read_metadata(gguf_path)
    pre = _known_rules(meta)
    try:
        tokens, types, merges = (
            meta[f"{_PREFIX}{name}"] for name in ("tokens", "token_type", "merges")
        )
        bos, eos = (_token(meta, f"{name}_token_id") for name in ("bos", "eos"))
    except (KeyError, IndexError) as error:
        raise TokenizerError(f"{gguf_path.name}: the vocabulary is incomplete") from error
    add_bos = bos is not None and meta.get(f"{_PREFIX}add_bos_token", pre.add_bos)
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
        "added_tokens": _added_tokens(tokens, types),
        "normalizer": None,
        "pre_tokenizer": _pre_tokenizer(pre),
        "post_processor": _bos_processor(bos, tokens.index(bos)) if bos and add_bos else None,
        "decoder": _byte_level(use_regex=True),
        "model": _bpe(tokens, merges, ignore_merges=pre.ignore_merges),
    }
    return TokenizerParts(tokenizer_json=json.dumps(tokenizer, ensure_ascii=False), config=config)


def _known_rules(meta: dict[str, Any]) -> _PreTokenizer:
    model, pre_name = meta.get(f"{_PREFIX}model"), meta.get(f"{_PREFIX}pre")
    if model != "gpt2":
        raise TokenizerError(f"{_PREFIX}model is {model!r}, only 'gpt2' is known")
    if pre_name not in _PRE_TOKENIZERS:
        known = ", ".join(_PRE_TOKENIZERS)
        raise TokenizerError(f"{_PREFIX}pre is {pre_name!r}, known are: {known}")
    if meta.get(f"{_PREFIX}add_eos_token"):
        raise TokenizerError(f"{_PREFIX}add_eos_token is true: prompts would end with EOS")
    return _PRE_TOKENIZERS[pre_name]


def _token(meta: dict[str, Any], id_key: str) -> str | None:
    token_id = meta.get(f"{_PREFIX}{id_key}")
    if token_id is None:
        return None
    token: str = meta[f"{_PREFIX}tokens"][token_id]
    return token


def _added_tokens(tokens: list[str], types: list[int]) -> list[dict[str, Any]]:
    """Tokens that are found in a text before anything else is done to it."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": token_id, "content": token, **flags, "special": kind != _USER_DEFINED}
        for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]


def _pre_tokenizer(pre: _PreTokenizer) -> dict[str, Any]:
    words = {
        "type": "Split",
        "pattern": {"Regex": pre.words},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [words, _byte_level(use_regex=False)]}


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


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
