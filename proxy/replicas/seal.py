"""What leaves for Redis: sealed under the deployment's secret, and names that only it can make.

Knows nothing of Redis and of what is sealed. `cryptography` is an extra (`prefold[redis]`).
"""

from __future__ import annotations

import os
import struct
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SOURCE_BYTES = 16
HEAD = struct.Struct(f"<{SOURCE_BYTES}sQ")
MAX_SOURCES = 256
"""Whose keys are kept at hand."""


class Unreadable(Exception):
    """It was not sealed under this secret, or it was changed."""


class Seal:
    """Authenticated encryption of entries, AES-256-GCM.

    Each life of a process (a source) has a key of its own, derived from the secret and from a
    random number that its entries begin with. So a counter is a nonce that never comes again, which
    a random one of 96 bits would not be for long.
    """

    def __init__(self, secret: bytes) -> None:
        self._key = blake2b(secret, person=b"prefold.replicas").digest()
        self.source = os.urandom(SOURCE_BYTES)
        self._ciphers: OrderedDict[bytes, AESGCM] = OrderedDict()

    def close(self, stream: str, number: int, plain: bytes) -> bytes:
        """`number` must be another one for each entry of a stream: see the class."""
        head = HEAD.pack(self.source, number)
        return head + self._cipher(self.source).encrypt(_nonce(stream, number), plain, head)

    def open(self, stream: str, entry: bytes) -> tuple[bytes, int, bytes]:
        """Source, number and content. Raises Unreadable."""
        from cryptography.exceptions import InvalidTag

        if len(entry) < HEAD.size:
            raise Unreadable
        source, number = HEAD.unpack_from(entry)
        head, sealed = entry[: HEAD.size], entry[HEAD.size :]
        try:
            plain = self._cipher(source).decrypt(_nonce(stream, number), sealed, head)
        except InvalidTag:
            raise Unreadable from None
        return source, number, plain

    def backend(self, url: str, rank: int | None) -> str:
        """The name of a backend in Redis: the same in all replicas, whatever they call it."""
        which = "" if rank is None else str(rank)
        return self._digest(b"backend", f"{url} {which}".encode(), size=8).hex()

    def response(self, tenant: str, response_id: str) -> bytes:
        """Who knows the id, and the secret, can make this; nobody can make the id of it."""
        named = tenant.encode("utf-8", "surrogatepass")
        raw = response_id.encode("utf-8", "surrogatepass")
        return self._digest(b"response", len(named).to_bytes(8, "little") + named + raw, size=16)

    def _digest(self, purpose: bytes, content: bytes, *, size: int) -> bytes:
        return blake2b(content, key=self._key, person=purpose, digest_size=size).digest()

    def _cipher(self, source: bytes) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        cipher = self._ciphers.get(source)
        if cipher is None:
            cipher = self._ciphers[source] = AESGCM(self._digest(b"entries", source, size=32))
            if len(self._ciphers) > MAX_SOURCES:
                self._ciphers.popitem(last=False)
        return cipher


def _nonce(stream: str, number: int) -> bytes:
    """96 bits: the stream's name, four bytes of it, and the number. Streams differ in those."""
    return stream.encode()[:4].ljust(4, b"\0") + number.to_bytes(8, "little")
