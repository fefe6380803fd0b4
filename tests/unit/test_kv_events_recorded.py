"""What a cache model says of recorded engines, against what those engines reported themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefold.backends.kv_events import codec
from prefold.backends.kv_events.changes import changes
from prefold.prefix_index.event_cache import EventCache
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.kv_events import CacheSink, engine_seed

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kv_events"
SECRET = b"secret"
ENGINES = {
    "mocker.json": (16, 64),
    "vllm_int_hashes.json": (32, 48),
    "vllm_byte_hashes.json": (32, 48),
}
"""Tokens in a block, and blocks, as the engines were started."""


def prefix_of(request: dict[str, Any]) -> Prefix:
    tokens = [token for first, count in request["prompt"] for token in range(first, first + count)]
    return Prefix.of_tokens(
        np.array(tokens, dtype=np.uint32), engine_seed(SECRET, None, request["salt"])
    )


@pytest.mark.parametrize("name", ENGINES)
def test_what_is_expected_is_what_the_engine_reported(name: str) -> None:
    """For each request of the recording: repeats, a shared head, a salt, a reset and evictions."""
    block, blocks = ENGINES[name]
    record = json.loads((FIXTURES / name).read_text(encoding="utf-8"))
    cache = EventCache(
        block_tokens=block,
        capacity_tokens=block * blocks,
        seed_of=lambda adapter, salt: engine_seed(SECRET, adapter, salt),
    )
    sink = CacheSink(cache, lambda _: None)
    sink.void(complete=True)
    sink.trust()
    expected, reported = [], []
    for request in record["requests"]:
        expected.append(cache.match(prefix_of(request)).cached_tokens)
        reported.append(request["cached"])
        if request["batch"] is not None:
            frames = [bytes.fromhex(frame) for frame in record["live"][request["batch"]]]
            sink.apply(changes(codec.batch(codec.message(frames).payload)))
    assert expected == reported
    assert sum(reported) > 0
    assert 0 < cache.size_tokens <= cache.capacity_tokens
    assert cache.problem == ""
    assert cache.orphans == 0


@pytest.mark.parametrize("name", ENGINES)
def test_a_recorded_replay_is_the_stream_again(name: str) -> None:
    """From the number that was asked for, with the same payloads, and an end that is negative."""
    record = json.loads((FIXTURES / name).read_text(encoding="utf-8"))
    *again, end = record["replay_from_3"]
    assert [frames[-2:] for frames in again] == [frames[-2:] for frames in record["live"][3:]]
    message = codec.message([b"", *(bytes.fromhex(frame) for frame in end[-2:])])
    assert message.sequence == -1
