"""The protocol of prompt compressors, the check of what they return, and one that keeps all.

    passage = Passage(text=text, rate=0.5, protected=protect(text))
    [compressed] = compress_checked(compressor, [passage])
    shorter = compressed.text(text)

`compress` is pure: what is kept of a passage depends on that passage and on `compressor.digest`
alone, never on the passages beside it or on the prompt around it. So results may be cached under
`cache_key`, and a compressed passage stays a shareable prefix in a KV cache. Many passages of many
requests may be given at once, which model tiers use to fill their batches. `compress` blocks for
as long as it computes; an instance is used by one thread at a time.

Nothing here knows of requests, settings or deadlines.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Spans = tuple[tuple[int, int], ...]  # character ranges [start, end), in order, disjoint, not empty


class CompressorFault(Exception):
    """A compressor broke the protocol: what it returned must not be used. Holds no text."""


class CompressorUnavailable(Exception):
    """A compressor's package or model is not here; the message says what to install or give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One text to shorten on its own.

    `rate` is the share of its words (or tokens, as the compressor says) to keep, in (0, 1]; 1 keeps
    the text whole. `protected` are ranges that must stay whole. They count towards the rate, as
    far as that leaves half the rate to the words around them.
    """

    text: str
    rate: float
    protected: Spans = ()

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ValueError("rate must be above 0 and at most 1")
        if not _in_order(self.protected, len(self.text)):
            raise ValueError("protected spans must be in order, disjoint and inside the text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed:
    """`kept` are the character ranges of the source that remain, in order."""

    kept: Spans

    def text(self, source: str) -> str:
        """The source without what was cut: a subsequence of it by construction."""
        return "".join([source[start:end] for start, end in self.kept])


class CompressorGone(Exception):
    """What a compressor works with has failed, or become something else: it is of no more use
    until it is opened again. `cause` is a word for a metric; neither it nor the message hold text.
    """

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class Compressor(Protocol):
    """Named by what decides its output: passages with equal `digest` give equal bytes for ever."""

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str:
        """Of the model's weights, the word list or the code, whichever the output depends on."""

    @property
    def digest(self) -> str:
        """Hexadecimal, over name, revision and options: see `digest_of`."""

    def compress(self, passages: Sequence[Passage]) -> list[Compressed]:
        """One result for each passage, in order; one that is best left alone is kept whole."""


def digest_of(name: str, revision: str, options: Mapping[str, object]) -> str:
    """Hexadecimal digest of a compressor's identity; `options` hold plain values only."""
    items = sorted((key, repr(value)) for key, value in options.items())
    return hashlib.blake2b(repr((name, revision, items)).encode(), digest_size=16).hexdigest()


def cache_key(digest: str, passage: Passage, *, key: bytes = b"") -> bytes:
    """16 bytes under which a passage's result may be stored; `key` makes it a secret's digest.

    It covers the text, the rate and the protected spans.
    """
    body = hashlib.blake2b(digest.encode(), key=key, digest_size=16)
    body.update(struct.pack("<dq", passage.rate, len(passage.protected)))
    body.update(b"".join(struct.pack("<qq", *span) for span in passage.protected))
    body.update(passage.text.encode("utf-8", "surrogatepass"))
    return body.digest()


def whole(text: str) -> Compressed:
    return Compressed(kept=((0, len(text)),) if text else ())


def compress_checked(compressor: Compressor, passages: Sequence[Passage]) -> list[Compressed]:
    """What `compressor` returns, if it is a subsequence that holds all that is protected.

    Raises CompressorFault otherwise.
    """
    results = compressor.compress(passages)
    if len(results) != len(passages):
        raise CompressorFault(f"{len(results)} results for {len(passages)} passages")
    for result, passage in zip(results, passages, strict=True):
        if not _in_order(result.kept, len(passage.text)):
            raise CompressorFault("kept spans are out of order or outside the text")
        if not _covers(result.kept, passage.protected):
            raise CompressorFault("a protected span was cut")
    return results


def _in_order(spans: Spans, length: int) -> bool:
    last = 0
    for start, end in spans:
        if not last <= start < end:
            return False
        last = end
    return last <= length


def _covers(kept: Spans, protected: Spans) -> bool:
    """Both in order. Kept spans that touch count as one."""
    at = 0
    for start, end in protected:
        while at < len(kept) and kept[at][1] <= start:
            at += 1
        while at < len(kept) and kept[at][0] <= start and kept[at][1] < end:
            start = kept[at][1]
            at += 1
        if at == len(kept) or kept[at][0] > start:
            return False
    return True


class NullCompressor:
    """Keeps everything."""

    name = "null"
    revision = "1"
    digest = digest_of("null", "1", {})

    def compress(self, passages: Sequence[Passage]) -> list[Compressed]:
        return [whole(passage.text) for passage in passages]
