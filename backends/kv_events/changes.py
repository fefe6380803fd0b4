"""What a batch of KV events means for a prefix cache: blocks that came, moved to host memory, went.

Pure. Where engines say the same thing in different ways, this is where it becomes one; what cannot
be read with certainty is refused with a reason, never guessed.

Held is what an engine can reuse without prefill and faster than it: GPU memory, and the host's
(`CPU`, `CPU_PINNED`). Disks and remote stores are passed over: how fast they are is not known, and
what all backends can load tells none from another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from prefold.backends.kv_events.codec import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    Handle,
)

DEVICE = frozenset({None, "GPU"})
HOST = frozenset({"CPU", "CPU_PINNED"})
WHOLE_PREFIX = frozenset({None, "full_attention", "mla_attention", "sink_full_attention"})
"""Kinds of layers that need every block of a prefix, so that a block held is a block reused."""
OTHER_KINDS = frozenset(
    {"sliding_window", "sliding_window_mla", "mamba", "chunked_local_attention", "cross_attention"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Consecutive blocks of a prompt, known by their tokens."""

    handles: tuple[Handle, ...]
    parent: Handle | None
    """The block before the first; None where the prompt begins."""
    tokens: NDArray[np.uint32]
    block_tokens: int
    host: bool
    adapter: str | None
    salt: str | None
    foreign: tuple[bytes, ...] | None
    """For each block, what it is keyed by beside tokens, adapter and salt (an image, say); b"" for
    nothing. None: nothing in any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedToHost:
    """Blocks that are in host memory too, known only by their handles."""

    handles: tuple[Handle, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    handles: tuple[Handle, ...]
    host: bool


@dataclass(frozen=True, slots=True)
class Cleared:
    """Nothing is held any more."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine's cache works in a way that is not modelled. Its events are of no use."""

    reason: str


Change = Stored | CopiedToHost | Removed | Cleared | Refused


def changes(batch: EventBatch) -> list[Change]:
    """In order."""
    return [change for event in batch.events for change in _changes(event)]


def _changes(event: BlockStored | BlockRemoved | AllBlocksCleared) -> Iterator[Change]:
    if isinstance(event, AllBlocksCleared):
        yield Cleared()
        return
    host = event.medium in HOST
    if not (host or event.medium in DEVICE) or event.locality == "REMOTE":
        return
    if event.group_idx:
        yield Refused("its layers form several groups, each with a cache of its own")
    elif isinstance(event, BlockRemoved):
        yield Removed(handles=event.block_hashes, host=host)
    else:
        yield from _stored(event, host)


def _stored(event: BlockStored, host: bool) -> Iterator[Change]:
    if event.kv_cache_spec_kind not in WHOLE_PREFIX:
        known = event.kv_cache_spec_kind in OTHER_KINDS
        kind = event.kv_cache_spec_kind if known else "unknown"
        yield Refused(f"its layers are of the kind {kind}, which need only parts of a prefix")
    elif event.paired_tokens:
        yield Refused("its blocks are keyed by pairs of tokens (EAGLE)")
    elif host and not len(event.token_ids):
        # vLLM's offloading connector, unless it is asked for self-describing events.
        yield CopiedToHost(handles=event.block_hashes)
    elif event.masked:
        yield Refused("its events leave out blocks that their tokens cover")
    elif event.block_hashes:
        salt, foreign = _keyed_by(event)
        yield Stored(
            handles=event.block_hashes,
            parent=event.parent_block_hash,
            tokens=event.token_ids,
            block_tokens=event.block_size,
            host=host,
            adapter=event.lora_name,
            salt=event.cache_salt if salt is None else salt,
            foreign=foreign,
        )


def _keyed_by(event: BlockStored) -> tuple[str | None, tuple[bytes, ...] | None]:
    """The salt, and what is left of the extra keys of each block once that and the adapter's name
    are taken out."""
    if event.lora_id is None and not any(event.extra_keys or ()):
        return None, None
    keys = [list(of_block or ()) for of_block in event.extra_keys or ()]
    salt = None
    for place, of_block in enumerate(keys):
        if event.lora_name is not None and of_block and of_block[0] == event.lora_name:
            del of_block[0]
        if place == 0 and event.parent_block_hash is None and _is_salt(of_block):
            salt = of_block.pop()
    if event.lora_name is None and event.lora_id is not None:
        # An adapter of which only the engine's number is told: like none that has a name.
        keys = keys or [[] for _ in event.block_hashes]
        for of_block in keys:
            of_block.append(event.lora_id)
    if not any(keys):
        return salt, None
    return salt, tuple(msgspec.msgpack.encode(rest) if rest else b"" for rest in keys)


def _is_salt(keys: list[Any]) -> bool:
    """The salt is the last but for digests of embeddings, which would be texts too: with two texts
    there is no telling, and none is taken for it."""
    return sum(isinstance(key, str) for key in keys) == 1 and isinstance(keys[-1], str)
