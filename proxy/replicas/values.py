"""Redis as values under keys, each of which expires; beside the streams of `store`.

Knows neither what the values are nor who asks for them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from prefold.proxy.replicas.store import Address, StoreFailed, client_closed, client_of, failing


class Values:
    """Use `values_opened`. All methods raise StoreFailed."""

    def __init__(self, client: Any, name: str, timeout_s: float) -> None:
        """`name` is their common hash tag, so that a cluster answers for all of them at once."""
        self._client = client
        self._prefix = f"{{{name}}}:kept:"
        self._timeout_s = timeout_s

    async def get(self, keys: Sequence[bytes], max_bytes: int) -> list[bytes]:
        """In the order of the keys, b"" for what is not there or no value; of a longer one its
        first `max_bytes`: who can write to Redis must not fill our memory."""
        async with failing(self._timeout_s):
            pipeline = self._client.pipeline(transaction=False)
            for key in keys:
                pipeline.getrange(self._named(key), 0, max_bytes - 1)
            found = await pipeline.execute(raise_on_error=False)
        return [_value(one) for one in found]

    async def put(self, values: Sequence[tuple[bytes, bytes]], ttl_s: float) -> int:
        """How many it took; the others it refused, being full or read-only."""
        async with failing(self._timeout_s):
            pipeline = self._client.pipeline(transaction=False)
            for key, value in values:
                pipeline.set(self._named(key), value, px=round(ttl_s * 1000))
            results = await pipeline.execute(raise_on_error=False)
        return sum(not isinstance(result, Exception) for result in results)

    def _named(self, key: bytes) -> str:
        return self._prefix + key.hex()


@asynccontextmanager
async def values_opened(address: Address) -> AsyncIterator[Values]:
    """One connection, made when it is needed. Raises RedisMissing."""
    client = client_of(address, address.timeout_s)
    try:
        yield Values(client, address.name, address.timeout_s)
    finally:
        await client_closed(client, address.timeout_s)


def _value(found: Any) -> bytes:
    """Something else than a value under our key is as good as nothing; any other error is not."""
    if isinstance(found, Exception):
        if str(found).startswith("WRONGTYPE"):
            return b""
        raise StoreFailed(type(found).__name__)
    return bytes(found)
