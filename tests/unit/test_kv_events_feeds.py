"""Feeds of KV events: one for each backend, for as long as it is of use."""

from __future__ import annotations

import logging

import pytest

from prefold.backends.kv_events.subscriber import Source
from prefold.proxy.kv_events import Feeds

NOBODY = Source(endpoint="tcp://127.0.0.1:1")


async def test_a_feed_goes_on_while_nothing_changed_and_is_replaced_when_something_did() -> None:
    """A probe that finds a backend as it was does not lose what its cache knows."""
    async with Feeds(secret=b"s", on_change=lambda *_: None) as feeds:
        await feeds.open("b0", NOBODY, block_tokens=16, capacity_tokens=1600)
        first = feeds.cache("b0")
        assert first is not None
        await feeds.open("b0", NOBODY, block_tokens=16, capacity_tokens=1600)
        assert feeds.cache("b0") is first
        await feeds.open("b0", NOBODY, block_tokens=32, capacity_tokens=1600)
        second = feeds.cache("b0")
        assert second is not None
        assert second is not first
        assert second.block_tokens == 32
        assert feeds.cache("b1") is None
    assert feeds.cache("b0") is None


async def test_an_endpoint_that_is_none_is_logged_and_claims_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The backend works on as if it had no events."""
    told: list[tuple[str, str]] = []
    with caplog.at_level(logging.ERROR):
        async with Feeds(secret=b"s", on_change=lambda *change: told.append(change)) as feeds:
            await feeds.open("b0", Source(endpoint="none"), block_tokens=1, capacity_tokens=9)
            feed = feeds._feeds["b0"]
            await feed._task
            assert feed.cache.problem
    assert "cannot be followed" in caplog.text
    assert told[-1] == ("b0", "the event stream is not followed any more")
