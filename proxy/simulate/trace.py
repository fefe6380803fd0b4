"""Requests to simulate, and the reader of traces in Mooncake's format.

A trace holds no text: for each request its time, its lengths, and ids of the blocks of its prompt.
"""

from __future__ import annotations

import gzip
import lzma
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from prefold.prefix_index.prefix import Prefix

MOONCAKE_BLOCK = 512


class TraceError(Exception):
    """The trace cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Request:
    arrival_s: float
    prefix: Prefix
    output_tokens: int
    opening: int
    """The same for prompts that begin alike after what (nearly) all prompts begin with: what a
    router that hashes the beginning of the first user message would see."""

    @property
    def prompt_tokens(self) -> int:
        return self.prefix.length


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival, the first at 0 s."""

    name: str
    block_tokens: int
    requests: Sequence[Request]

    @property
    def prompt_tokens(self) -> int:
        return sum(request.prompt_tokens for request in self.requests)

    @property
    def duration_s(self) -> float:
        """Until the last arrival."""
        return self.requests[-1].arrival_s


@dataclass(frozen=True, slots=True)
class Row:
    """One request as a file or a generator has it; `blocks` are ids, one a block, equal where the
    blocks' contents are."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: Sequence[int]


class _Line(msgspec.Struct):
    """Milliseconds, tokens, and one id a block, of which the last block may be partial."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


def read_mooncake(path: Path, block_tokens: int = MOONCAKE_BLOCK) -> Trace:
    """JSON lines, plain or compressed (.gz, .xz). Raises TraceError."""
    try:
        with _opened(path) as file:
            return build_trace(path.name, block_tokens, _rows(file, path.name, block_tokens))
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise TraceError(f"{path.name}: {error}") from None


def _opened(path: Path) -> IO[bytes] | gzip.GzipFile | lzma.LZMAFile:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    if path.suffix == ".xz":
        return lzma.open(path, "rb")
    return path.open("rb")


def _rows(file: Iterable[bytes], name: str, block_tokens: int) -> Iterator[Row]:
    decoder = msgspec.json.Decoder(_Line)
    for number, raw in enumerate(file, 1):
        if raw.isspace():
            continue
        try:
            line = decoder.decode(raw)
            yield _row(line, block_tokens)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise TraceError(f"{name}, line {number}: {error}") from None


def _row(line: _Line, block_tokens: int) -> Row:
    """Raises ValueError."""
    full, rest = divmod(line.input_length, block_tokens)
    if line.input_length < 1 or line.output_length < 0 or line.timestamp < 0:
        raise ValueError("times and lengths must not be negative, nor a prompt empty")
    if len(line.hash_ids) not in (full, full + bool(rest)):
        raise ValueError(
            f"{len(line.hash_ids)} hash_ids for {line.input_length} tokens in blocks of"
            f" {block_tokens}"
        )
    return Row(line.timestamp / 1000, line.input_length, line.output_length, line.hash_ids[:full])


def build_trace(name: str, block_tokens: int, rows: Iterable[Row]) -> Trace:
    """Sorted by arrival. Raises TraceError if there are no requests."""
    ordered = sorted(rows, key=lambda row: row.arrival_s)
    if not ordered:
        raise TraceError(f"{name}: no requests")
    start = ordered[0].arrival_s
    known: dict[tuple[int, int], int] = {}
    chains = [_chained(row.blocks, known) for row in ordered]
    common = _common_blocks(chains)
    return Trace(
        name,
        block_tokens,
        [
            Request(
                row.arrival_s - start,
                Prefix.of_blocks(chain, block_tokens, row.prompt_tokens),
                row.output_tokens,
                _opening(chain, common, index),
            )
            for index, (row, chain) in enumerate(zip(ordered, chains, strict=True))
        ],
    )


def _chained(blocks: Sequence[int], known: dict[tuple[int, int], int]) -> list[int]:
    """Keys that are equal only where all before them is equal too, whatever the ids promise."""
    chain = []
    key = 0
    for block in blocks:
        key = known.setdefault((key, block), len(known) + 1)
        chain.append(key)
    return chain


def _common_blocks(chains: Sequence[Sequence[int]]) -> int:
    """So many leading blocks are shared by most of the prompts: a template's, a system prompt's."""
    depth = 0
    while True:
        at_depth = Counter(chain[depth] for chain in chains if len(chain) > depth)
        if not at_depth or at_depth.most_common(1)[0][1] * 2 <= len(chains):
            return depth
        depth += 1


def _opening(chain: Sequence[int], common: int, index: int) -> int:
    if len(chain) > common:
        return chain[common]
    return -1 - index  # shorter than what all share: like no other
