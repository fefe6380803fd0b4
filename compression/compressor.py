"""What every prompt compressor offers, and the one that changes nothing.

A compressor shortens one text on its own: the same text gives the same output for ever (for one
revision and options), whatever prompt it stands in, so that compressed prefixes stay shareable in
a KV cache. The output is a subsequence of the source by character offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed:
    """`kept` are the character ranges [start, end) of the source that remain, in order."""

    kept: tuple[tuple[int, int], ...]

    def text(self, source: str) -> str:
        return "".join(source[start:end] for start, end in self.kept)


class Compressor(Protocol):
    """Named by what decides its output, so that results can be cached by content."""

    name: str
    revision: str

    def compress(self, texts: Sequence[str]) -> list[Compressed]:
        """One result for each text, in order; a text that is best left alone is kept whole."""


class NullCompressor:
    """Keeps everything."""

    name = "null"
    revision = "1"

    def compress(self, texts: Sequence[str]) -> list[Compressed]:
        return [Compressed(kept=((0, len(text)),) if text else ()) for text in texts]
