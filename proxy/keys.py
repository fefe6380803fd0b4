"""Whose request this is: from the credentials in its headers to a tenant. Knows nothing of HTTP
beyond header names, keeps digests only, and compares all of them in constant time.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol

from prefold.proxy.errors import Unauthorized


class Headers(Protocol):
    """A multi-dict whose names are case-insensitive, such as aiohttp's."""

    def getall(self, key: str, default: Sequence[str]) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """What one key may do; 0 is no limit."""

    requests_per_minute: float = 0.0
    parallel: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """`key_digest` tells the tenant's keys apart: limits are those of a key."""

    name: str
    key_digest: bytes = field(default=b"", repr=False)
    limits: KeyLimits = KeyLimits()


OPEN = Tenant(name="")
"""Everybody, where no keys are configured."""


class KeyRing:
    """The keys of all tenants, by their SHA-256 digests."""

    def __init__(self, tenants: Sequence[Tenant]) -> None:
        self._tenants = tuple(tenants)

    @classmethod
    def of(cls, keys: Sequence[tuple[str, str, float, int]]) -> KeyRing:
        """From (tenant, hex SHA-256 of the key, requests per minute, parallel requests); raises
        ValueError for a digest that is none."""
        return cls(
            [
                Tenant(
                    name=name,
                    key_digest=_digest_of_hex(digest),
                    limits=KeyLimits(requests_per_minute=per_minute, parallel=parallel),
                )
                for name, digest, per_minute, parallel in keys
            ]
        )

    def __len__(self) -> int:
        return len(self._tenants)

    def authenticate(self, headers: Headers) -> Tenant:
        """The owner of the one key in these headers; `OPEN` where no keys are configured. Raises
        Unauthorized for none, an unknown or malformed one, and for two different ones: a check
        that reads the first and an engine that reads the second would disagree on who asks."""
        if not self._tenants:
            return OPEN
        digests = {sha256(key).digest() for key in _credentials(headers)}
        if len(digests) > 1:
            raise Unauthorized("The request carries two different API keys.")
        found = None
        for digest in digests:
            for tenant in self._tenants:  # to the end: the time must not tell which one it was
                if hmac.compare_digest(tenant.key_digest, digest):
                    found = tenant
        if found is None:
            raise Unauthorized("Incorrect API key provided." if digests else "No API key provided.")
        return found


def _digest_of_hex(text: str) -> bytes:
    digest = bytes.fromhex(text)
    if len(digest) != sha256().digest_size:
        raise ValueError("a SHA-256 digest has 64 hex digits")
    return digest


def _credentials(headers: Headers) -> Iterator[bytes]:
    """The keys in every place where clients put one: OpenAI's, Anthropic's, Azure's."""
    for value in headers.getall("Authorization", ()):
        scheme, _, token = value.strip().partition(" ")
        yield _checked(token.strip() if scheme.lower() == "bearer" else "")
    for name in ("x-api-key", "api-key"):
        for value in headers.getall(name, ()):
            yield _checked(value.strip())


def _checked(token: str) -> bytes:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise Unauthorized("The API key could not be read.")
    return token.encode("ascii")
