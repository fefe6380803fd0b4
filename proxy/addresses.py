"""Which addresses can be reached from this machine only. Text in, no look-up of names."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """An address, or the one name that is always local; every other name may be anywhere."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_is_loopback(header: str) -> bool:
    """The same of a Host header: HOST or HOST:PORT, an IPv6 address in brackets."""
    port_follows = ":" in header and not header.endswith("]")
    return is_loopback(header.rpartition(":")[0] if port_follows else header)
