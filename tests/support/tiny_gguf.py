"""GGUF files without tensors, written by the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gguf import GGUFWriter

from tests.support.tiny_tokenizer import CHATML, MERGES, SPECIALS, vocabulary

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


def write_gguf(
    path: Path, *, model: str = "gpt2", pre: str = "smollm", without: str = "", **extra: Any
) -> Path:
    """`without` is a token to leave out; `extra` are more keys under `tokenizer.ggml.`."""
    tokens = [token for token in (*vocabulary(), "[tag]") if token != without]
    kinds = [CONTROL if token in SPECIALS else NORMAL for token in tokens]
    kinds[-1] = USER_DEFINED
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_chat_template(CHATML)
    for key, value in extra.items():
        add = writer.add_bool if isinstance(value, bool) else writer.add_uint32
        add(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
