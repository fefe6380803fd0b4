"""What every request passes before its handler: it gets an id, a browser's preflight is answered,
its key is checked, its rate is counted. Thin: `keys` and `rate_limit` decide.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256

from aiohttp import web
from multidict import CIMultiDict

from prefold.proxy.addresses import host_is_loopback
from prefold.proxy.errors import Forbidden, Unauthorized
from prefold.proxy.http.request import Request
from prefold.proxy.keys import KeyRing
from prefold.proxy.rate_limit import RateLimiter

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_REQUEST_ID_CHARS = 128
OPEN_PATHS = frozenset(("/health", "/ready"))
EXPOSED = (
    "X-Request-Id, Retry-After, x-ratelimit-limit-requests, x-ratelimit-remaining-requests,"
    " X-Prefold-Decision, X-Prefold-Documents, X-Prefold-Compression"
)


def new_id() -> str:
    """A random one: a count would tell clients of each other's traffic."""
    return f"req-{os.urandom(12).hex()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Of the data port. `cors_origins` are origins as browsers write them, or "*" for every one;
    none: no CORS."""

    key_ring: KeyRing
    limiter: RateLimiter
    cors_origins: frozenset[str]
    clock: Callable[[], float]

    def begin(self, request: Request) -> None:
        """First of all: whatever the answer, it carries what is noted here."""
        given = request.headers.get("X-Request-Id")
        request.request_id = (_usable(given) if given else "") or new_id()
        request.answer.on_begin = lambda headers: self._add_headers(request, headers)

    def preflight(self, request: Request) -> CIMultiDict[str] | None:
        """The headers that a browser's question before its request is answered with; None if this
        is no such question, or none of an origin that may ask."""
        asked = request.headers.get("Access-Control-Request-Method")
        if request.method != "OPTIONS" or not asked or self._allowed_origin(request) is None:
            return None
        return CIMultiDict(
            {
                "Access-Control-Allow-Methods": "GET, POST, DELETE",
                # By name: "*" would not cover Authorization.
                "Access-Control-Allow-Headers": request.headers.get(
                    "Access-Control-Request-Headers", ""
                ),
                "Access-Control-Max-Age": "600",
            }
        )

    def admit(self, request: Request) -> bytes:
        """The key that it came with, to be given to `release` when it has been answered; b"" for
        none. Raises Unauthorized or RateLimited."""
        if request.path in OPEN_PATHS:
            return b""
        tenant = self.key_ring.authenticate(request.headers)
        request.tenant = tenant.name
        key, limits = tenant.key_digest, tenant.limits
        if not key:
            return b""
        per_minute, now = limits.requests_per_minute, self.clock()
        try:
            self.limiter.admit(
                key, requests_per_minute=per_minute, parallel=limits.parallel, now=now
            )
        finally:
            request.allowance = self.limiter.allowance(key, requests_per_minute=per_minute, now=now)
        return key

    def release(self, key: bytes) -> None:
        if key:
            self.limiter.release(key)

    def _add_headers(self, request: Request, headers: CIMultiDict[str]) -> None:
        headers.setdefault("X-Request-Id", request.request_id)  # an engine's own stays
        if (allowance := request.allowance) is not None:
            headers["x-ratelimit-limit-requests"] = str(allowance.limit)
            headers["x-ratelimit-remaining-requests"] = str(allowance.remaining)
        if (origin := self._allowed_origin(request)) is not None:
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = EXPOSED
            if origin != "*":
                headers.add("Vary", "Origin")

    def _allowed_origin(self, request: Request) -> str | None:
        if not self.cors_origins:
            return None
        origin = request.headers.get("Origin")
        if origin is None or "*" in self.cors_origins:
            return origin and "*"
        return origin if origin in self.cors_origins else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminGate:
    """Of the admin port. `key` "": whoever reaches the port, a loopback address then, may use it,
    but no web page that a browser on this machine shows, except the port's own. `open_paths` need
    no key: what is the same for everybody and tells nothing."""

    key: str
    open_paths: frozenset[str] = frozenset()

    def install(self, app: web.Application) -> None:
        app.middlewares.append(self._guarded)

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if "Origin" in request.headers:
            raise Forbidden("The admin port is not for web pages.")
        if self.key:
            is_open = request.path in self.open_paths and request.method == "GET"
            if not is_open and not _is_bearer(request.headers.get("Authorization", ""), self.key):
                raise Unauthorized("The admin port needs its own key.")
        elif not host_is_loopback(request.headers.get("Host", "")):
            # A page whose own name was made to resolve to 127.0.0.1 sends no Origin.
            raise Forbidden("Without a key the admin port is reached by its address only.")
        return await handler(request)


def _is_bearer(value: str, key: str) -> bool:
    scheme, _, token = value.partition(" ")
    digests = [sha256(text.strip().encode("utf-8", "surrogateescape")) for text in (token, key)]
    same = hmac.compare_digest(digests[0].digest(), digests[1].digest())
    return same and scheme.lower() == "bearer"


def _usable(request_id: str) -> str:
    """ "" for one that would do harm in a header or a log line."""
    fits = 0 < len(request_id) <= MAX_REQUEST_ID_CHARS
    return request_id if fits and request_id.isascii() and request_id.isprintable() else ""
