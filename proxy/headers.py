"""Which headers cross the proxy, in each direction."""

from __future__ import annotations

from collections.abc import Mapping

from multidict import CIMultiDict, CIMultiDictProxy

# RFC 9110 section 7.6.1, and the old names that some clients still send.
HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
# Host would confuse an engine's own checks, cookies are another site's, the body's framing and
# coding are made anew (aiohttp has decoded the request), Expect is answered by us.
NOT_UPSTREAM = HOP_BY_HOP | {
    "host",
    "cookie",
    "content-length",
    "content-encoding",
    "accept-encoding",
    "expect",
    "forwarded",
}
# Of prefold's own clients: an engine that logs its headers would log them.
KEYS = frozenset(("authorization", "x-api-key", "api-key"))
NOT_UPSTREAM_NOR_KEYS = NOT_UPSTREAM | KEYS
NOT_DOWNSTREAM = HOP_BY_HOP | {"content-length", "set-cookie"}


def upstream_headers(
    client: CIMultiDictProxy[str], backend: Mapping[str, str], *, pass_keys: bool
) -> CIMultiDict[str]:
    """The client's headers with the backend's own (its credentials) in place of the same names, and
    without the client's credentials unless `pass_keys`."""
    dropped = NOT_UPSTREAM if pass_keys else NOT_UPSTREAM_NOR_KEYS
    kept = _kept(client, dropped, "x-prefold-")
    # A compressed stream could not be cut into events without decoding it.
    kept["Accept-Encoding"] = "identity"
    for name, value in backend.items():
        kept[name] = value
    return kept


def downstream_headers(upstream: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    # Who may read an answer in a browser is for us to say: llama.cpp allows every origin.
    return _kept(upstream, NOT_DOWNSTREAM, "access-control-")


def _kept(headers: CIMultiDictProxy[str], dropped: frozenset[str], prefix: str) -> CIMultiDict[str]:
    """Less those that are dropped, by name or by the prefix of it, or named by Connection."""
    if "Connection" in headers:
        values = headers.getall("Connection")
        dropped |= {name.strip().lower() for value in values for name in value.split(",")}
    return CIMultiDict(
        [
            (name, value)
            for name, value in headers.items()
            if (lowered := name.lower()) not in dropped and not lowered.startswith(prefix)
        ]
    )
