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
NOT_DOWNSTREAM = HOP_BY_HOP | {"content-length", "set-cookie"}


def upstream_headers(
    client: CIMultiDictProxy[str], backend: Mapping[str, str], *, pass_keys: bool
) -> CIMultiDict[str]:
    """The client's headers with the backend's own (its credentials) in place of the same names, and
    without the client's credentials unless `pass_keys`."""
    dropped = NOT_UPSTREAM | _named_by_connection(client)
    if not pass_keys:
        dropped |= KEYS
    kept = CIMultiDict(
        (name, value)
        for name, value in client.items()
        if name.lower() not in dropped and not name.lower().startswith("x-prefold-")
    )
    # A compressed stream could not be cut into events without decoding it.
    kept["Accept-Encoding"] = "identity"
    for name, value in backend.items():
        kept[name] = value
    return kept


def downstream_headers(upstream: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    dropped = NOT_DOWNSTREAM | _named_by_connection(upstream)
    return CIMultiDict(
        (name, value)
        for name, value in upstream.items()
        # Who may read an answer in a browser is for us to say: llama.cpp allows every origin.
        if name.lower() not in dropped and not name.lower().startswith("access-control-")
    )


def _named_by_connection(headers: CIMultiDictProxy[str]) -> set[str]:
    return {
        name.strip().lower()
        for value in headers.getall("Connection", ())
        for name in value.split(",")
    }
