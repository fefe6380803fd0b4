"""A text in the chunks of the package `llmlingua` 0.2.2, with each token's place in the source."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

CHUNK_ENDS = frozenset((".", "\n"))
Offsets = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk as the model sees it: ids without special tokens, and each token's place in the
    source, (0, 0) where it has none."""

    ids: list[int]
    tokens: list[str]
    offsets: Offsets


def chunks_of(text: str, tokenizer: Any) -> list[Chunk]:
    """As the package cuts: at most 511 tokens, through the last "." or newline if there is one.

    A chunk's text is made of its tokens and tokenized again.
    """
    encoding = tokenizer.encode(text, add_special_tokens=False)
    tokens, offsets = encoding.tokens, encoding.offsets
    chunks = []
    start, most = 0, 510
    while start < len(tokens):
        end = start + most
        if end > len(tokens) - 1:
            end = len(tokens) - 1
        else:
            ends = (place for place in range(end, start, -1) if tokens[place] in CHUNK_ENDS)
            end = next(ends, end)
        chunks.append(_again(tokenizer, tokens[start : end + 1], offsets[start : end + 1]))
        start = end + 1
    return chunks


def _again(tokenizer: Any, tokens: list[str], offsets: Offsets) -> Chunk:
    """What the package's second tokenization makes of a chunk, placed in the source."""
    again = tokenizer.encode(tokenizer.decoder.decode(tokens), add_special_tokens=False)
    if again.tokens == tokens:
        return Chunk(again.ids, again.tokens, offsets)
    placed: Offsets = []
    matcher = SequenceMatcher(None, tokens, again.tokens, autojunk=False)
    for kind, before, after, first, last in matcher.get_opcodes():
        if kind == "equal":
            placed += offsets[before:after]
        elif kind == "replace":
            placed += [(offsets[before][0], offsets[after - 1][1])] * (last - first)
        elif kind == "insert":
            placed += [(0, 0)] * (last - first)
    return Chunk(again.ids, again.tokens, placed)
