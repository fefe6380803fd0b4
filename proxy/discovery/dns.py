"""Backends by DNS: every address of a name is one. A headless Kubernetes Service has a record for
each of its pods that are ready.
"""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import Awaitable, Callable, Collection
from ipaddress import ip_address
from typing import Literal

from prefold.proxy.discovery.sources import DiscoveryError
from prefold.proxy.settings import Backend

RESOLVE_S = 5.0
Family = Literal["any", "ipv4", "ipv6"]
FAMILIES: dict[Family, int] = {
    "any": socket.AF_UNSPEC,
    "ipv4": socket.AF_INET,
    "ipv6": socket.AF_INET6,
}
Resolve = Callable[[str, int], Awaitable[Collection[str]]]
"""From a name and a family of addresses (socket.AF_*) to its addresses; raises OSError."""


async def resolve(host: str, family: int) -> Collection[str]:
    """As the machine resolves names, with its search list and its hosts file, off the loop."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, family=family, type=socket.SOCK_STREAM)
    return {str(sockaddr[0]) for *_, sockaddr in found}


class DnsSource:
    name = "dns"

    def __init__(
        self,
        *,
        host: str,
        port: int,
        family: Family,
        template: Backend,
        resolve: Resolve = resolve,
        timeout_s: float = RESOLVE_S,
    ) -> None:
        """`template`: what the backends are, but for their names and URLs."""
        self._host = host
        self._port = port
        self._family = FAMILIES[family]
        self._template = template
        self._resolve = resolve
        self._timeout_s = timeout_s

    async def look(self) -> tuple[Backend, ...]:
        """Named ADDRESS:PORT each, in the order of addresses, so that names are stable."""
        addresses = await self._addresses()
        return tuple(
            self._backend(address)
            for address in sorted(addresses, key=lambda text: (":" in text, ip_address(text)))
        )

    async def _addresses(self) -> frozenset[str]:
        """At least one: a name without any is a name that is not there yet, or not any more."""
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await self._resolve(self._host, self._family)
        except TimeoutError:
            raise DiscoveryError(f"{self._host}: no answer in {self._timeout_s:g} s") from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise DiscoveryError(f"{self._host}: {reason}") from None
        except UnicodeError:  # a label that is too long, or no name at all
            raise DiscoveryError(f"{self._host}: not a name") from None
        # An address with a scope (fe80::1%eth0) is this link's alone.
        addresses = frozenset(address for address in found if "%" not in address)
        if not addresses:
            raise DiscoveryError(f"{self._host}: no addresses")
        return addresses

    def _backend(self, address: str) -> Backend:
        host = f"[{address}]" if ":" in address else address
        name = f"{host}:{self._port}"
        return dataclasses.replace(self._template, url=f"http://{name}", name=name)
