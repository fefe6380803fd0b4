"""The frames of an engine's KV events as values: vLLM's wire format, which SGLang, TensorRT-LLM and
Dynamo's mocker speak too. Pure; knows no sockets, and nothing of what the events mean to us.

A message is [topic, sequence number (8 bytes, big-endian), payload]; a payload is the msgpack of
[time, events, data-parallel rank]. An event was an array in older versions, its kind first (vLLM
0.16), and is a map with the member `type` in newer ones (0.25); both are read. Members that are not
known are passed over, and so are kinds of events, which are counted. What is malformed fails whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

MAX_PAYLOAD_BYTES = 32 << 20
"""A prompt of a million tokens is 5 MiB."""
MAX_HASH_BYTES = 64

Handle = int | bytes
"""An engine's name for a block and all that precedes it. Nothing is read out of it."""

UINT32 = "I"

T = TypeVar("T")


class MalformedEvents(ValueError):
    """A message that is no batch of KV events. Says what is wrong, and nothing of the content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStored:
    """Consecutive blocks that are in a cache now.

    `token_ids` are those of all the blocks, except where `masked`: a group of sliding-window layers
    may leave blocks out of the list that the tokens cover.
    """

    block_hashes: tuple[Handle, ...]
    parent_block_hash: Handle | None
    token_ids: NDArray[np.uint32]
    block_size: int
    lora_id: int | None = None
    lora_name: str | None = None
    medium: str | None = None
    extra_keys: tuple[tuple[Any, ...] | None, ...] | None = None
    """For each block, what its hash covers beside tokens: LoRA name, [media id, offset] pairs, the
    cache salt (first block only), digests of embeddings. None: not told."""
    cache_salt: str | None = None
    """SGLang's member; vLLM tells it in `extra_keys`."""
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    paired_tokens: bool = False
    """SGLang with EAGLE keys its blocks by pairs of tokens; `token_ids` is empty then."""

    @property
    def masked(self) -> bool:
        blocks = len(self.block_hashes)
        return not self.block_size or blocks * self.block_size != len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRemoved:
    block_hashes: tuple[Handle, ...]
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    pass


Event = BlockStored | BlockRemoved | AllBlocksCleared


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """What one step of the engine changed. `ts` is the engine's wall clock, in seconds."""

    ts: float
    events: tuple[Event, ...]
    data_parallel_rank: int | None
    unknown_events: int
    """So many events of kinds that are not known were passed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    topic: bytes
    sequence: int
    payload: bytes


# The order of the members in the array encoding; new ones came at the end.
_STORED = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "locality",
    "ownership",
)
_REMOVED = ("block_hashes", "medium", "group_idx", "locality", "ownership")
_BATCH = ("ts", "events", "data_parallel_rank")


def message(frames: Sequence[bytes]) -> Message:
    """Raises MalformedEvents unless there are three frames with a number in the second."""
    if len(frames) != 3 or len(frames[1]) != 8:
        raise MalformedEvents("not a topic, a sequence number and a payload")
    return Message(
        topic=frames[0], sequence=int.from_bytes(frames[1], "big", signed=True), payload=frames[2]
    )


def batch(payload: bytes) -> EventBatch:
    """Raises MalformedEvents."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise MalformedEvents(f"a batch of more than {MAX_PAYLOAD_BYTES} bytes")
    try:
        value = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        raise MalformedEvents("a payload that is not msgpack") from None
    members = _members(value, _BATCH, "a batch")
    if "attn_dp_rank" in members:  # SGLang's name for it
        members = {"data_parallel_rank": members["attn_dp_rank"], **members}
    if not isinstance(ts := members.get("ts"), float | int):
        raise MalformedEvents("a batch without a time")
    if not isinstance(events := members.get("events"), list):
        raise MalformedEvents("a batch without events")
    decoded = [_event(event) for event in events]
    return EventBatch(
        ts=float(ts),
        events=tuple(event for event in decoded if event is not None),
        data_parallel_rank=_optional(members, "data_parallel_rank", int),
        unknown_events=sum(event is None for event in decoded),
    )


def _event(value: Any) -> Event | None:
    """None for an event of a kind that is not known."""
    items: Any
    if isinstance(value, list) and value:
        kind, items = value[0], value[1:]
    elif isinstance(value, dict):
        kind, items = value.get("type"), value
    else:
        raise MalformedEvents("an event that is neither a map nor an array with its kind")
    if kind == "BlockStored":
        return _stored(_members(items, _STORED, kind))
    if kind == "BlockRemoved":
        return _removed(_members(items, _REMOVED, kind))
    if kind == "AllBlocksCleared":
        return AllBlocksCleared()
    if isinstance(kind, str):
        return None
    raise MalformedEvents("an event without a kind")


def _stored(members: dict[str, Any]) -> BlockStored:
    tokens, paired = _tokens(members.get("token_ids"))
    hashes = _handles(members)
    size = _optional(members, "block_size", int)
    if size is None or size < 0:
        raise MalformedEvents("BlockStored without a block size")
    parent = members.get("parent_block_hash")
    keys = _extra_keys(members.get("extra_keys"))
    if keys is not None and len(keys) != len(hashes):
        raise MalformedEvents("BlockStored with other extra keys than blocks")
    return BlockStored(
        block_hashes=hashes,
        parent_block_hash=None if parent is None else _handle(parent),
        token_ids=tokens,
        paired_tokens=paired,
        block_size=size,
        lora_id=_optional(members, "lora_id", int),
        lora_name=_optional(members, "lora_name", str),
        medium=_optional(members, "medium", str),
        extra_keys=keys,
        cache_salt=_optional(members, "cache_salt", str),
        group_idx=_optional(members, "group_idx", int),
        kv_cache_spec_kind=_optional(members, "kv_cache_spec_kind", str),
        kv_cache_spec_sliding_window=_optional(members, "kv_cache_spec_sliding_window", int),
        locality=_optional(members, "locality", str),
        ownership=_optional(members, "ownership", str),
    )


def _removed(members: dict[str, Any]) -> BlockRemoved:
    return BlockRemoved(
        block_hashes=_handles(members),
        medium=_optional(members, "medium", str),
        group_idx=_optional(members, "group_idx", int),
        locality=_optional(members, "locality", str),
        ownership=_optional(members, "ownership", str),
    )


def _members(value: Any, names: Sequence[str], what: str) -> dict[str, Any]:
    """Of a map as they are, of an array by their place: it may be shorter, and longer."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        return dict(zip(names, value, strict=False))
    raise MalformedEvents(f"{what} that is neither a map nor an array")


def _handles(members: dict[str, Any]) -> tuple[Handle, ...]:
    hashes = members.get("block_hashes")
    if not isinstance(hashes, list):
        raise MalformedEvents("an event without block hashes")
    return tuple(map(_handle, hashes))


def _handle(value: Any) -> Handle:
    if type(value) is int:
        return value
    if isinstance(value, bytes) and 0 < len(value) <= MAX_HASH_BYTES:
        return value
    raise MalformedEvents("a block hash that is neither a number nor bytes")


def _tokens(value: Any) -> tuple[NDArray[np.uint32], bool]:
    """The ids, and whether they came as pairs (then none)."""
    if not isinstance(value, list):
        raise MalformedEvents("BlockStored without token ids")
    if value and isinstance(value[0], list) and all(isinstance(item, list) for item in value):
        return np.empty(0, dtype=np.uint32), True
    try:
        # A fifth of the time that numpy takes for a list.
        return np.frombuffer(array(UINT32, value), dtype=np.uint32), False
    except (TypeError, OverflowError):
        raise MalformedEvents("a token id that is not one, or out of range") from None


def _extra_keys(value: Any) -> tuple[tuple[Any, ...] | None, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(
        keys is None or isinstance(keys, list) for keys in value
    ):
        raise MalformedEvents("extra keys that are not lists")
    return tuple(None if keys is None else tuple(keys) for keys in value)


def _optional(members: dict[str, Any], name: str, kind: type[T]) -> T | None:
    value = members.get(name)
    if value is None or isinstance(value, kind):
        return value
    raise MalformedEvents(f"the member {name} is of another type than it should be")
