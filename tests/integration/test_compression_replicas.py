"""Replicas that share a Redis agree on the form in which a message of a conversation is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prefold.proxy.replicas.messages import decode, encode
from prefold.proxy.settings import Compression
from prefold.proxy.workers.messages import Formed
from tests.support.proxy import until
from tests.support.redis_server import RedisServer, redis_server
from tests.support.replica_pair import SOUND, pair, shared


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


async def test_what_one_replica_sent_the_other_one_knows(redis: RedisServer) -> None:
    """By digests: of the message, and of the texts in it that were compressed."""
    settings = replace(shared(redis), compression=Compression(by_header=True, compressor="null"))
    async with pair(settings, SOUND, SOUND) as (both, _):
        one, two = [server.proxy.compression for server in both]
        assert one is not None
        assert two is not None
        one.forms.note(b"m" * 16, (b"t" * 16,))
        await until(lambda: two.forms.recall(b"m" * 16) == frozenset((b"t" * 16,)))
        two.forms.note(b"m" * 16, ())
        two.forms.note(b"n" * 16, ())
        await until(lambda: one.forms.recall(b"n" * 16) == frozenset())
        assert one.forms.recall(b"m" * 16) == frozenset((b"t" * 16,))


def test_it_is_told_as_it_is() -> None:
    """It names no backend."""
    message = Formed(b"m" * 16, (b"t" * 16,))
    assert list(decode(encode([message]))) == [message]
