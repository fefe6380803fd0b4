"""What a source of backends is, and how what it finds stands beside the backends that are named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from prefold.proxy.settings import Backend


class DiscoveryError(Exception):
    """Nothing was learned this time; the message says why, and holds no secret."""


class Source(Protocol):
    name: str
    """Of the setting."""

    async def look(self) -> tuple[Backend, ...]:
        """All backends there are now, by their full names. Raises DiscoveryError."""


def beside(named: Sequence[Backend], found: Sequence[Backend]) -> tuple[Backend, ...]:
    """All of `named`, then of `found` those that are not there yet: a server that has two entries,
    whatever they are called, would be counted twice."""
    backends = list(named)
    names, urls = {one.name for one in named}, {one.url for one in named}
    for one in found:
        if one.name not in names and one.url not in urls:
            backends.append(one)
            names.add(one.name)
    return tuple(backends)
