"""What is noted on a request while it is served."""

from __future__ import annotations

from aiohttp import web

TENANT = web.RequestKey("tenant", str)
"""Whose key it came with; unset where no keys are configured."""
STARTED = web.RequestKey("started", bool)
"""Its response has begun: an error can no longer become a status."""
CUT = web.RequestKey("cut", bool)
"""It is ended because the process ends."""


def tenant_of(request: web.Request) -> str:
    tenant: str = request.get(TENANT, "")
    return tenant
