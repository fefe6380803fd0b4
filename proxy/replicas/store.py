"""Redis as three streams, and how it is reached: the one module that knows redis-py, which is an
extra (`prefold[redis]`).

All keys have one hash tag, so that a cluster keeps them in one slot and one command reads them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from prefold.proxy.replicas.messages import Stream
from prefold.proxy.replicas.window import BEGIN, Id

CLUSTER = "+cluster"
FIELD = b"v"
READ_ENTRIES = 64
BLOCK_S = 1.0


class RedisMissing(ImportError):
    """redis-py, or what seals, is not installed."""


class StoreFailed(Exception):
    """Redis refused, did not answer in time, or is not there. Its text is the kind of error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`url`: redis://, rediss:// or either with +cluster, without a password."""

    url: str
    password: str
    ca_file: str
    name: str
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """An entry to be written; what is older than `least` is no longer needed."""

    stream: Stream
    content: bytes
    least: Id
    ttl_s: float


class Store:
    """Use `opened`. All methods raise StoreFailed."""

    def __init__(self, writing: Any, reading: Any, name: str, timeout_s: float) -> None:
        self._writing = writing
        self._reading = reading
        self._timeout_s = timeout_s
        self._keys = {stream: f"{{{name}}}:{stream}" for stream in Stream}
        self._streams = {key.encode(): stream for stream, key in self._keys.items()}

    async def last(self, stream: Stream) -> Id:
        """The newest entry; BEGIN if there is none."""
        async with failing(self._timeout_s):
            found = await self._writing.xrevrange(self._keys[stream], count=1)
        return _id(found[0][0]) if found else BEGIN

    async def add(self, additions: Sequence[Addition]) -> None:
        """In this order. Where it fails, some of them may have been written."""
        async with failing(self._timeout_s):
            pipeline = self._writing.pipeline(transaction=False)
            for one in additions:
                key = self._keys[one.stream]
                least = _text(one.least) if one.least != BEGIN else None
                pipeline.xadd(key, {FIELD: one.content}, minid=least, approximate=True)
            for key, ttl_s in {self._keys[one.stream]: one.ttl_s for one in additions}.items():
                pipeline.pexpire(key, round(ttl_s * 1000))
            await pipeline.execute()

    async def read(self, after: Mapping[Stream, Id]) -> list[tuple[Stream, Id, bytes]]:
        """What comes behind these entries, in the order of each stream; waits a second for it."""
        keys = {self._keys[stream]: _text(last) for stream, last in after.items()}
        async with failing(self._timeout_s + BLOCK_S):
            found = await self._reading.xread(keys, count=READ_ENTRIES, block=round(BLOCK_S * 1000))
        pairs = found.items() if isinstance(found, dict) else found or ()
        return [
            (self._streams[key], _id(entry), fields[FIELD])
            for key, entries in pairs
            for entry, fields in _flat(entries)
            if fields and FIELD in fields
        ]


@asynccontextmanager
async def opened(address: Address) -> AsyncIterator[Store]:
    """Connections are made when they are needed. Raises RedisMissing."""
    writing = client_of(address, address.timeout_s)
    reading = client_of(address, address.timeout_s + BLOCK_S)
    try:
        yield Store(writing, reading, address.name, address.timeout_s)
    finally:
        for client in (writing, reading):
            await client_closed(client, address.timeout_s)


def check_installed() -> None:
    """Raises RedisMissing, which says what to install."""
    try:
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401
        import redis.asyncio  # noqa: F401
    except ImportError:
        raise RedisMissing("redis.url: needs the extra: pip install 'prefold[redis]'") from None


def client_of(address: Address, timeout_s: float) -> Any:
    """Every retry is ours: redis-py's would wait inside."""
    from redis.asyncio import Redis
    from redis.asyncio.cluster import RedisCluster
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    parts = urlsplit(address.url)
    scheme, cluster, _ = parts.scheme.partition(CLUSTER)
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
    }
    if address.password:
        options["password"] = address.password
    if scheme == "rediss" and address.ca_file:
        options["ssl_ca_certs"] = address.ca_file
    url = urlunsplit(parts._replace(scheme=scheme))
    return (RedisCluster if cluster else Redis).from_url(url, **options)


async def client_closed(client: Any, timeout_s: float) -> None:
    try:
        async with failing(timeout_s):
            await client.aclose()
    except StoreFailed:
        pass  # it is given up in any case


@asynccontextmanager
async def failing(timeout_s: float) -> AsyncIterator[None]:
    """Errors of Redis, of the connection and of time become StoreFailed. Their texts are dropped:
    they may quote what was written."""
    from redis.exceptions import RedisClusterException, RedisError

    try:
        async with asyncio.timeout(timeout_s):
            yield
    except (RedisError, RedisClusterException, OSError, TimeoutError) as error:
        raise StoreFailed(type(error).__name__) from None


def _flat(entries: Any) -> Any:
    """RESP3 answers hold one list more."""
    return entries[0] if entries and isinstance(entries[0], list) else entries


def _id(raw: bytes) -> Id:
    milliseconds, _, number = raw.partition(b"-")
    return int(milliseconds), int(number)


def _text(entry: Id) -> str:
    return f"{entry[0]}-{entry[1]}"
