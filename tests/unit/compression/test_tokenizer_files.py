"""A classifier's tokenizer from its folder alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefold.compression.compressor import CompressorUnavailable
from prefold.compression.tokenizer_files import tokenizer_files
from tests.support.classifier_tokenizer import tokenizer_folder


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("tokenizer_config.json", {"cls_token": "[CLS]", "sep_token": "[SEP]"}),
        ("special_tokens_map.json", {"cls_token": {"content": "[CLS]"}, "sep_token": "[SEP]"}),
    ],
)
def test_special_tokens_are_told_by_either_file(
    tmp_path: Path, file: str, told: dict[str, Any]
) -> None:
    """As a text, or as an object that holds it."""
    folder = tokenizer_folder(tmp_path)
    (folder / "tokenizer_config.json").unlink()
    (folder / file).write_text(json.dumps({**told, "unk_token": "[UNK]"}), encoding="utf-8")
    files = tokenizer_files(folder)
    assert (files.unknown_id, files.begin_id, files.end_id) == (1, 2, 3)
    assert files.tokenizer.encode("a b", add_special_tokens=False).offsets == [(0, 1), (2, 3)]


def test_its_digest_is_of_its_bytes(tmp_path: Path) -> None:
    """Another vocabulary is another compressor."""
    one, same, other = (
        tokenizer_files(tokenizer_folder(tmp_path / name, letters=letters)).digest
        for name, letters in (("a", ""), ("b", ""), ("c", "é"))
    )
    assert one == same != other


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    """No file, one that is none, no special tokens."""
    with pytest.raises(CompressorUnavailable, match=r"holds no tokenizer\.json"):
        tokenizer_files(tmp_path)
    folder = tokenizer_folder(tmp_path / "a")
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(CompressorUnavailable, match="names no"):
        tokenizer_files(folder)
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(CompressorUnavailable, match=r"tokenizer_config\.json cannot be read"):
        tokenizer_files(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(CompressorUnavailable, match="is no tokenizer"):
        tokenizer_files(folder)
