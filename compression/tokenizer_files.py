"""A fast tokenizer and its special tokens, from a folder: without transformers, or weights."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from prefold.compression.compressor import CompressorUnavailable

TOKENIZER = "tokenizer.json"
CONFIGS = ("special_tokens_map.json", "tokenizer_config.json")  # the later before the earlier


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """Ids of [CLS], [SEP] and [UNK] (<s>, </s> and <unk>). `digest`: of tokenizer.json."""

    tokenizer: Tokenizer
    begin_id: int
    end_id: int
    unknown_id: int
    digest: str


def tokenizer_files(folder: Path) -> TokenizerFiles:
    """Raises CompressorUnavailable where a file is missing, or is something else."""
    try:
        body = (folder / TOKENIZER).read_bytes()
        tokenizer = Tokenizer.from_str(body.decode("utf-8"))
    except OSError:
        raise CompressorUnavailable(f"{folder} holds no {TOKENIZER}") from None
    except Exception as error:  # noqa: BLE001 - the library raises bare Exception
        kind = type(error).__name__
        raise CompressorUnavailable(f"{folder / TOKENIZER} is no tokenizer: {kind}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    names = _special_tokens(folder)
    ids = [tokenizer.token_to_id(names.get(kind, "")) for kind in ("cls", "sep", "unk")]
    begin, end, unknown = ids
    if begin is None or end is None or unknown is None:
        raise CompressorUnavailable(f"{folder} names no [CLS], [SEP] and [UNK]")
    return TokenizerFiles(
        tokenizer=tokenizer,
        begin_id=begin,
        end_id=end,
        unknown_id=unknown,
        digest=hashlib.sha256(body).hexdigest()[:16],
    )


def _special_tokens(folder: Path) -> dict[str, str]:
    found: dict[str, Any] = {}
    for name in CONFIGS:
        try:
            read = json.loads((folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            raise CompressorUnavailable(f"{folder / name} cannot be read") from None
        if isinstance(read, dict):
            found |= read
    return {kind: _text(found.get(f"{kind}_token")) for kind in ("cls", "sep", "unk")}


def _text(token: Any) -> str:
    """Written as a text, or as an object with it."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else ""
