"""KV event frames: recorded ones, the published schemas in both encodings, and malformed ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prefold.backends.kv_events import codec
from prefold.backends.kv_events.codec import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    MalformedEvents,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kv_events"
RECORDED = sorted(path.name for path in FIXTURES.glob("*.json"))
ORDER = (
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
)
STORED: dict[str, Any] = {
    "block_hashes": [1, 2],
    "parent_block_hash": 9,
    "token_ids": [10, 11, 12, 4294967295],
    "block_size": 2,
    "lora_id": 3,
    "medium": "GPU",
    "lora_name": "french",
    "extra_keys": [["french", ["image", 0], "salt"], None],
    "group_idx": 0,
    "kv_cache_spec_kind": "full_attention",
    "kv_cache_spec_sliding_window": 128,
    "locality": "LOCAL",
    "ownership": "tier",
}


def payload(*events: Any, **batch: Any) -> bytes:
    return msgspec.msgpack.encode([1.5, list(events), batch.get("rank", 0)])


def stored(**members: Any) -> dict[str, Any]:
    return {"type": "BlockStored", **STORED, **members}


def first(*events: Any) -> codec.Event:
    return codec.batch(payload(*events)).events[0]


def same(one: codec.Event, other: codec.Event) -> bool:
    if isinstance(one, BlockStored) and isinstance(other, BlockStored):
        names = [name for name in BlockStored.__slots__ if name != "token_ids"]
        return one.token_ids.tolist() == other.token_ids.tolist() and all(
            getattr(one, name) == getattr(other, name) for name in names
        )
    return one == other


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_frames_are_read(name: str) -> None:
    """Each message of a real engine, numbered without a gap, and nothing in it is unknown."""
    live = json.loads((FIXTURES / name).read_text(encoding="utf-8"))["live"]
    assert len(live) > 4
    for number, frames in enumerate(live):
        message = codec.message([bytes.fromhex(frame) for frame in frames])
        batch = codec.batch(message.payload)
        assert message.sequence == number
        assert batch.events
        assert batch.unknown_events == 0
        assert batch.data_parallel_rank == 0


@pytest.mark.parametrize("name", RECORDED)
def test_the_array_encoding_of_the_same_events_says_the_same(name: str) -> None:
    """Old versions sent the members in their published order, without names."""
    live = json.loads((FIXTURES / name).read_text(encoding="utf-8"))["live"]
    for frames in live:
        raw = bytes.fromhex(frames[2])
        ts, events, rank = msgspec.msgpack.decode(raw)
        arrays = []
        for event in events:
            members: tuple[str, ...] = (
                ORDER if event["type"] == "BlockStored" else ("block_hashes", "medium")
            )
            if event["type"] == "BlockRemoved" and "group_idx" in event:
                members = (*members, "group_idx")
            if event["type"] == "AllBlocksCleared":
                members = ()
            arrays.append([event["type"], *(event.get(member) for member in members)])
        decoded = codec.batch(msgspec.msgpack.encode([ts, arrays, rank])).events
        expected = codec.batch(raw).events
        assert all(map(same, decoded, expected))
        assert len(decoded) == len(expected)


def test_every_member_is_read() -> None:
    """What the newest known version tells of a block that it stored."""
    event = first(stored())
    assert isinstance(event, BlockStored)
    assert event.token_ids.tolist() == STORED["token_ids"]
    assert event.block_hashes == (1, 2)
    assert event.extra_keys == (("french", ["image", 0], "salt"), None)
    for name in (*ORDER[3:7], *ORDER[8:], "kv_cache_spec_sliding_window", "locality", "ownership"):
        assert getattr(event, name) == STORED[name]
    assert not event.masked


def test_short_arrays_and_long_ones_are_read() -> None:
    """vLLM 0.9 knew no medium; what a newer version puts behind the known members is ignored."""
    short = first(["BlockStored", [1], None, [5, 6], 2, None])
    long = first(["BlockStored", [1], None, [5, 6], 2, *[None] * 20])
    assert same(short, long)
    assert isinstance(short, BlockStored)
    assert short.medium is None
    assert short.extra_keys is None


def test_batches_without_a_rank_and_of_sglang_are_read() -> None:
    """The third item is newer than the others, and has another name in a map."""
    assert codec.batch(msgspec.msgpack.encode([1, []])).data_parallel_rank is None
    sglang = {"ts": 1.0, "events": [stored(cache_salt="s")], "attn_dp_rank": 2}
    batch = codec.batch(msgspec.msgpack.encode(sglang))
    assert batch.data_parallel_rank == 2
    assert isinstance(batch.events[0], BlockStored)
    assert batch.events[0].cache_salt == "s"


@pytest.mark.parametrize("handle", [0, -(2**63), 2**64 - 1, b"x" * 32])
def test_block_hashes_are_opaque(handle: int | bytes) -> None:
    """Signed, unsigned and bytes: whatever it is comes out as it went in."""
    event = first(stored(block_hashes=[handle, handle], parent_block_hash=handle))
    assert isinstance(event, BlockStored)
    assert event.block_hashes == (handle, handle)
    assert event.parent_block_hash == handle
    assert first(["BlockRemoved", [handle], "CPU", 1]) == BlockRemoved(
        block_hashes=(handle,), medium="CPU", group_idx=1
    )


def test_unknown_members_and_kinds_are_passed_over_and_kinds_are_counted() -> None:
    """A newer engine says more than is known here."""
    batch = codec.batch(
        payload(
            {"type": "AllBlocksCleared", "why": "flush"},
            {"type": "BlockMoved", "block_hashes": [1]},
            ["BlockPinned", 7],
            stored(session_id="abc", lookahead_token_ids=[1]),
        )
    )
    assert batch.events[0] == AllBlocksCleared()
    assert isinstance(batch.events[1], BlockStored)
    assert len(batch.events) == 2
    assert batch.unknown_events == 2


def test_pairs_of_tokens_are_told() -> None:
    """SGLang's EAGLE blocks have no plain token ids."""
    event = first(stored(token_ids=[[1, 2], [2, 3]]))
    assert isinstance(event, BlockStored)
    assert event.paired_tokens
    assert event.token_ids.tolist() == []


@pytest.mark.parametrize(
    "members",
    [
        {"block_hashes": None},
        {"block_hashes": [1.5]},
        {"block_hashes": [True]},
        {"block_hashes": [b""]},
        {"block_hashes": [b"x" * 65]},
        {"block_hashes": "ab"},
        {"parent_block_hash": "a"},
        {"token_ids": None},
        {"token_ids": ["a"]},
        {"token_ids": [-1]},
        {"token_ids": [2**32]},
        {"token_ids": [1, [1, 2]]},
        {"token_ids": [1.5]},
        {"block_size": None},
        {"block_size": -1},
        {"block_size": "16"},
        {"extra_keys": "salt"},
        {"extra_keys": ["salt", "salt"]},
        {"extra_keys": [None]},
        {"lora_name": 3},
        {"lora_id": "3"},
        {"medium": 1},
        {"group_idx": "0"},
        {"kv_cache_spec_kind": 0},
    ],
)
def test_a_malformed_event_fails_the_batch(members: dict[str, Any]) -> None:
    """One clear error, and none of the batch is read; the error quotes nothing of it."""
    with pytest.raises(MalformedEvents) as caught:
        codec.batch(payload({"type": "AllBlocksCleared"}, stored(**members)))
    assert "salt" not in str(caught.value)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode("text"),
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode(["now", []]),
        msgspec.msgpack.encode([1.0, {}]),
        msgspec.msgpack.encode([1.0, ["BlockStored"]]),
        msgspec.msgpack.encode([1.0, [[]]]),
        msgspec.msgpack.encode([1.0, [[3, 4]]]),
        msgspec.msgpack.encode([1.0, [{}]]),
        msgspec.msgpack.encode([1.0, [], "rank"]),
        b"\x91" * 5000,
        msgspec.msgpack.encode([1.0, []]) + b"more",
    ],
)
def test_a_malformed_batch_fails(raw: bytes) -> None:
    """Whatever it is, the error is the same one."""
    with pytest.raises(MalformedEvents):
        codec.batch(raw)


def test_a_batch_of_too_many_bytes_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything of it is decoded."""
    monkeypatch.setattr(codec, "MAX_PAYLOAD_BYTES", 10)
    with pytest.raises(MalformedEvents, match="10 bytes"):
        codec.batch(payload(stored()))


@pytest.mark.parametrize("frames", [[], [b"t", b"12345678"], [b"t", b"1", b"p"], [b""] * 4])
def test_other_frames_are_no_message(frames: list[bytes]) -> None:
    """Three frames, and eight bytes in the second."""
    with pytest.raises(MalformedEvents):
        codec.message(frames)
