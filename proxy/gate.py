"""What every request passes before its handler: it gets an id, a browser's preflight is answered,
its key is checked, its rate is counted. Thin: `keys` and `rate_limit` decide.

The middlewares are for inside the one that turns errors into answers. Headers are added where a
response is prepared, since a stream's are long gone when its handler returns.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from aiohttp import web

from prefold.proxy.addresses import host_is_loopback
from prefold.proxy.errors import Forbidden, Unauthorized
from prefold.proxy.keys import KeyRing
from prefold.proxy.rate_limit import Allowance, RateLimiter
from prefold.proxy.request_keys import TENANT

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Middleware = Any
"""aiohttp's own type is not public."""

REQUEST_ID = web.RequestKey("request_id", str)
"""In `X-Request-Id` and in logs: the client's own where it sent a usable one."""
_PREFLIGHT = web.RequestKey("preflight", web.Response)
_ALLOWANCE = web.RequestKey("allowance", Allowance)

MAX_REQUEST_ID_CHARS = 128
OPEN_PATHS = frozenset(("/health", "/ready"))
EXPOSED = (
    "X-Request-Id, Retry-After, x-ratelimit-limit-requests, x-ratelimit-remaining-requests,"
    " X-Prefold-Decision"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Of the data port. `key_ring` is asked for at each request: keys may change while running.
    `cors_origins` are origins as browsers write them, or "*" for every one; none: no CORS."""

    key_ring: Callable[[], KeyRing]
    limiter: RateLimiter
    cors_origins: frozenset[str]
    clock: Callable[[], float]

    def install(self, app: web.Application) -> None:
        """Behind the middlewares that `app` has; before it runs."""
        app.middlewares.extend(self.middlewares())
        app.on_response_prepare.append(self.add_headers)

    def middlewares(self) -> list[Middleware]:
        return [self._with_id, self._preflight, self._with_key]

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """For `on_response_prepare`."""
        headers = response.headers
        if REQUEST_ID in request:
            headers.setdefault("X-Request-Id", request[REQUEST_ID])  # an engine's own stays
        if (allowance := request.get(_ALLOWANCE)) is not None:
            headers["x-ratelimit-limit-requests"] = str(allowance.limit)
            headers["x-ratelimit-remaining-requests"] = str(allowance.remaining)
        # Engines have a say of their own here (llama.cpp allows every origin): it is not theirs.
        for name in [name for name in headers if name.lower().startswith("access-control-")]:
            if response is not request.get(_PREFLIGHT):
                headers.popall(name, None)
        if (origin := self._allowed_origin(request)) is not None:
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = EXPOSED
            if origin != "*":
                headers.add("Vary", "Origin")

    @web.middleware
    async def _with_id(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        request[REQUEST_ID] = _usable(request.headers.get("X-Request-Id", "")) or _new_id()
        return await handler(request)

    @web.middleware
    async def _preflight(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        asked = request.headers.get("Access-Control-Request-Method")
        if request.method != "OPTIONS" or not asked or self._allowed_origin(request) is None:
            return await handler(request)
        names = request.headers.get("Access-Control-Request-Headers", "")
        request[_PREFLIGHT] = web.Response(
            status=204,
            headers={
                "Access-Control-Allow-Methods": "GET, POST, DELETE",
                # By name: "*" would not cover Authorization.
                "Access-Control-Allow-Headers": names,
                "Access-Control-Max-Age": "600",
            },
        )
        return request[_PREFLIGHT]

    @web.middleware
    async def _with_key(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        # The route's own path, so that what is checked is what is served.
        resource = request.match_info.route.resource
        if resource is not None and resource.canonical in OPEN_PATHS:
            return await handler(request)
        tenant = self.key_ring().authenticate(request.headers)
        request[TENANT] = tenant.name
        if not tenant.key_digest:
            return await handler(request)
        key, limits = tenant.key_digest, tenant.limits
        per_minute, now = limits.requests_per_minute, self.clock()
        try:
            self.limiter.admit(
                key, requests_per_minute=per_minute, parallel=limits.parallel, now=now
            )
        finally:
            allowance = self.limiter.allowance(key, requests_per_minute=per_minute, now=now)
            if allowance is not None:
                request[_ALLOWANCE] = allowance
        try:
            return await handler(request)
        finally:
            self.limiter.release(key)

    def _allowed_origin(self, request: web.Request) -> str | None:
        origin = request.headers.get("Origin")
        if origin is None or not self.cors_origins:
            return None
        if "*" in self.cors_origins:
            return "*"
        return origin if origin in self.cors_origins else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminGate:
    """Of the admin port. `key` "": whoever reaches the port, a loopback address then, may use it,
    but no web page that a browser on this machine shows."""

    key: str

    def install(self, app: web.Application) -> None:
        app.middlewares.append(self._guarded)

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if "Origin" in request.headers:
            raise Forbidden("The admin port is not for web pages.")
        if self.key:
            if not _is_bearer(request.headers.get("Authorization", ""), self.key):
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


def _new_id() -> str:
    return f"req-{secrets.token_hex(16)}"
