"""Feeds of KV events: one for each backend, for as long as it is of use."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import zmq

from prefold.backends.kv_events.subscriber import Source
from prefold.proxy.kv_events import Feeds
from tests.support.mocker import free_ports
from tests.support.proxy import until

NOBODY = Source(endpoint="tcp://127.0.0.1:1")


async def test_a_feed_goes_on_while_nothing_changed_and_is_replaced_when_something_did() -> None:
    """A probe that finds a backend as it was does not lose what its cache knows."""
    async with Feeds(secret=b"s", on_change=lambda *_: None) as feeds:
        first = feeds.open("b0", NOBODY, block_tokens=16, capacity_tokens=1600)
        assert feeds.open("b0", NOBODY, block_tokens=16, capacity_tokens=1600) is first
        second = feeds.open("b0", NOBODY, block_tokens=32, capacity_tokens=1600)
        assert second is not first
        assert second.block_tokens == 32
        feed = feeds.get("b0")
        assert feed is not None
        assert feed.cache is second
        assert feeds.get("b1") is None
    assert feeds.get("b0") is None
    assert not feed.alive


async def test_a_port_is_bound_again_by_the_next_feed() -> None:
    """The one before has let go of it first, though it was busy, and is not heard any more."""
    told: list[tuple[str, str]] = []
    [port] = free_ports(1)
    bound = Source(endpoint=f"tcp://*:{port}")
    busy = replace(bound, replay_endpoint="tcp://127.0.0.1:1")
    async with Feeds(secret=b"s", on_change=lambda *change: told.append(change)) as feeds:
        first = feeds.open("b0", busy, block_tokens=16, capacity_tokens=1600)
        with zmq.Context() as context, context.socket(zmq.PUB) as engine:
            engine.setsockopt(zmq.LINGER, 0)
            engine.connect(f"tcp://127.0.0.1:{port}")
            await until(lambda: "replay is awaited" in first.problem)
            feeds.close("b0")
            told.clear()
            second = feeds.open("b1", bound, block_tokens=16, capacity_tokens=1600)
            await until(lambda: "before" in second.problem)
    assert first.problem == second.problem == "the event stream is not followed any more"
    assert told == [("b1", "what the engine stored before is not known yet")]


async def test_a_feed_that_has_ended_is_begun_again() -> None:
    """Where the next probe asks for it."""
    async with Feeds(secret=b"s", on_change=lambda *_: None) as feeds:
        none = Source(endpoint="none")
        first = feeds.open("b0", none, block_tokens=1, capacity_tokens=9)
        feed = feeds.get("b0")
        assert feed is not None
        await until(lambda: not feed.alive)
        assert feeds.open("b0", none, block_tokens=1, capacity_tokens=9) is not first


async def test_an_endpoint_that_is_none_is_logged_and_claims_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The backend works on as if it had no events."""
    told: list[tuple[str, str]] = []
    with caplog.at_level(logging.ERROR):
        async with Feeds(secret=b"s", on_change=lambda *change: told.append(change)) as feeds:
            feeds.open("b0", Source(endpoint="none"), block_tokens=1, capacity_tokens=9)
            feed = feeds.get("b0")
            assert feed is not None
            await until(lambda: not feed.alive)
            assert feed.cache.problem
    assert "cannot be followed" in caplog.text
    assert told[-1][0] == "b0"
    assert "Invalid argument" in told[-1][1]
