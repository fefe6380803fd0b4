"""A few scripted backends and a proxy process of one scenario's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.upstream import Script, ScriptedUpstream, listening
from tests.wire.process import ProxyProcess, proxy_process, toml
from tests.wire.raw_client import RawAnswer, ask, post
from tests.wire.stage import SETTINGS, all_up, backend_name

CHAT = "/v1/chat/completions"
MODEL = "m"


@dataclass(frozen=True, slots=True)
class Fleet:
    proxy: ProxyProcess
    upstreams: Sequence[ScriptedUpstream]

    async def ask(
        self, body: Any, path: str = CHAT, headers: Mapping[str, str] | None = None
    ) -> RawAnswer:
        return await ask(self.proxy.url, post(path, json.dumps(body).encode(), headers))

    def served(self) -> list[int]:
        """How many requests each backend got."""
        return [len(upstream.received) for upstream in self.upstreams]


@asynccontextmanager
async def fleet(
    *scripts: Script,
    settings: Mapping[str, Any] | None = None,
    log_level: str = "warning",
) -> AsyncIterator[Fleet]:
    """One backend for each script; tables of `settings` replace those of the common ones."""
    async with AsyncExitStack() as stack:
        upstreams = [
            await stack.enter_async_context(listening(ScriptedUpstream([script], model=MODEL)))
            for script in scripts
        ]
        backends = [
            {"name": backend_name(MODEL, number), "url": upstream.url, "engine": "openai"}
            for number, upstream in enumerate(upstreams)
        ]
        config = toml({**SETTINGS, **(settings or {}), "backends": backends})
        proxy = await stack.enter_async_context(proxy_process(config, "--log-level", log_level))
        await all_up(proxy, len(backends))
        yield Fleet(proxy, upstreams)
