"""Where an engine's KV events are to be had, by its own words."""

from __future__ import annotations

from typing import Any

import pytest

from prefold.backends.kv_events.discovery import NoEvents, source
from prefold.backends.kv_events.subscriber import Source

# As vLLM 0.32.0 answered.
ANSWER: dict[str, Any] = {
    "enable_kv_cache_events": True,
    "publisher": "zmq",
    "endpoint": "tcp://*:18081",
    "replay_endpoint": "tcp://*:18082",
    "buffer_steps": 10000,
    "hwm": 100000,
    "max_queue_size": 100000,
    "topic": "kv@pod0@smollm2",
}


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://10.0.0.7:8000", "10.0.0.7"),
        ("https://gpu0/v1", "gpu0"),
        ("http://[::1]:1", "[::1]"),
    ],
)
def test_the_host_is_the_one_that_the_engine_is_reached_at(url: str, host: str) -> None:
    """Of what the engine binds only the port is of use elsewhere."""
    assert source({"0": ANSWER}, url) == Source(
        endpoint=f"tcp://{host}:18081",
        replay_endpoint=f"tcp://{host}:18082",
        topic="kv@pod0@smollm2",
    )


def test_a_replay_endpoint_is_optional() -> None:
    """And so is a topic."""
    answer = {**ANSWER, "replay_endpoint": None, "topic": ""}
    assert source({"0": answer}, "http://a") == Source(endpoint="tcp://a:18081")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "does not tell"),
        ({}, "does not tell"),
        ([], "does not tell"),
        ({"0": ANSWER, "1": ANSWER}, "data-parallel"),
        ({"0": None}, "publishes no"),
        ({"0": {**ANSWER, "enable_kv_cache_events": False}}, "publishes no"),
        ({"0": {**ANSWER, "endpoint": "tcp://collector:5557"}}, "binds no TCP port"),
        ({"0": {**ANSWER, "endpoint": "ipc:///run/events"}}, "binds no TCP port"),
        ({"0": {**ANSWER, "endpoint": "tcp://*:0"}}, "binds no TCP port"),
        ({"0": {**ANSWER, "endpoint": "tcp://*:x"}}, "binds no TCP port"),
        ({"0": {**ANSWER, "endpoint": 5557}}, "binds no TCP port"),
    ],
)
def test_a_stream_that_cannot_be_followed_has_a_reason(answer: Any, reason: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(NoEvents, match=reason):
        source(answer, "http://a")
