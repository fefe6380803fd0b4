"""The scenarios by the name that cases use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tests.wire import lifecycle, routes, security

SCENARIOS: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[list[str]]]] = {
    play.__name__: play
    for play in (
        lifecycle.keep_alive_race,
        lifecycle.client_leaves,
        lifecycle.slow_reader,
        lifecycle.pipelined,
        lifecycle.drain,
        routes.nonce,
        routes.long_url,
        routes.response_follows,
        security.labels,
        security.sentinels,
        security.credentials,
        security.admin,
    )
}
