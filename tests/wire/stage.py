"""All cases' upstreams, the real proxy before them, and the clients: set up once, played on often.

Each case has a model and a backend of its own (two where `backends: 2`), so that the proxy's own
figures tell what became of it. Requests given byte by byte all name the model `m`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.upstream import Received, Script, ScriptedUpstream, listening
from tests.wire.cases import Case
from tests.wire.clients import Ask, NodeClients, Seen, Task, python_clients
from tests.wire.process import ProxyProcess, proxy_process, toml
from tests.wire.raw_client import RawAnswer, ask
from tests.wire.requests import CHAT, request_bytes
from tests.wire.script import answers

CLIENTS = {
    CHAT: ("python", "node", "node7", "ai"),
    "/v1/completions": ("python", "node", "node7", "ai"),
    "/v1/responses": ("python", "node", "node7", "ai"),
    "/v1/messages": ("anthropic",),
}
SHARED = "m"
SETTINGS: Mapping[str, Any] = {
    "server": {"port": 0, "admin_port": 0, "lame_duck_s": 0, "drain_s": 0.5},
    # One failure shows at once, and the next request is let through all the same.
    "health": {
        "interval_s": 60,
        "failures_to_eject": 1,
        "eject_s": 0.001,
        "eject_max_s": 0.001,
        "slow_start_s": 0,
    },
    "timeouts": {"connect_s": 2, "first_byte_s": 2, "idle_s": 1},
    "retry": {"budget": 1.0},
    f'models."{SHARED}"': {"aliases": ["an-alias"]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What the raw client and the upstream saw of one play; `answer` is None if none came."""

    answer: RawAnswer | None
    received: Sequence[Received]
    request: bytes
    outcomes: Sequence[str]
    states: Mapping[str, str]
    """Of each backend of the case, after it."""


@dataclass(slots=True, kw_only=True)
class Stage:
    proxy: ProxyProcess
    python: Mapping[str, Ask]
    node: NodeClients | None
    upstreams: Mapping[str, Sequence[ScriptedUpstream]]
    """By model; those of one model share `received`, and so the turn."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    async def play_raw(self, case: Case, script: Script | None = None) -> Played:
        """Through the proxy; `script` replaces that of the case, and its outcome is not read."""
        upstreams = self._set(case, script)
        before = await self.proxy.outcomes() if script is None else {}
        request = request_bytes(case, model_of(case), self._prompt())
        try:
            awaited = case.expected.get("closes") == "awaited"
            answer = await ask(self.proxy.url, request, await_close=awaited)
        except ConnectionError:
            answer = None
        outcomes = await self._counted(before) if script is None else []
        states = await self.proxy.states() if "breaker" in case.expected else {}
        names = {backend_name(model_of(case), number) for number in range(len(upstreams))}
        return Played(
            answer=answer,
            received=list(upstreams[0].received),
            request=request,
            outcomes=outcomes,
            states={name: state for name, state in states.items() if name in names},
        )

    async def play_direct(self, case: Case) -> RawAnswer | None:
        """Without the proxy."""
        upstream = self._set(case)[0]
        try:
            return await ask(
                upstream.url, request_bytes(case, model_of(case), self._prompt()), seconds=3
            )
        except (ConnectionError, TimeoutError):
            return None

    async def play_client(self, case: Case, client: str, *, direct: bool = False) -> Seen:
        upstreams = self._set(case)
        task = Task(
            url=upstreams[0].url if direct else self.proxy.url,
            path=case.input.get("path", CHAT),
            model=model_of(case),
            stream=case.input.get("stream", True),
            prompt=self._prompt(),
        )
        if client in self.python:
            return await self.python[client](task)
        assert self.node is not None
        return await self.node.ask(client, task)

    def _prompt(self) -> str:
        """A new one each time: what broke two backends would be refused when it comes again."""
        return f"hello {next(self._numbers)}"

    def _set(self, case: Case, script: Script | None = None) -> Sequence[ScriptedUpstream]:
        upstreams = self.upstreams[model_of(case)]
        scripts = [given.script for given in answers(case.input)] if script is None else [script]
        for upstream in upstreams:
            upstream.scripts = scripts
            upstream.pause_s = case.input.get("pause_s", 0.002)
        upstreams[0].received.clear()
        return upstreams

    async def _counted(self, before: Mapping[str, int]) -> list[str]:
        """The outcomes counted since; none if none comes: the request was not even read."""
        for _ in range(25):
            after = await self.proxy.outcomes()
            if after != before:
                return [name for name, count in after.items() if count != before.get(name)]
            await asyncio.sleep(0.004)
        return []


def model_of(case: Case) -> str:
    return SHARED if "request" in case.input else f"wire-{case.id}"


def backend_name(model: str, number: int) -> str:
    return f"{model}.{number}"


@asynccontextmanager
async def staged(cases: Sequence[Case], node: NodeClients | None) -> AsyncIterator[Stage]:
    """Upstreams and the proxy for these cases, every backend probed."""
    async with AsyncExitStack() as stack:
        upstreams: dict[str, list[ScriptedUpstream]] = {}
        for case in cases:
            model = model_of(case)
            received: list[Received] = []
            for _ in range(case.input.get("backends", 1) if model not in upstreams else 0):
                made = ScriptedUpstream([[]], model=model, received=received)
                upstreams.setdefault(model, []).append(
                    await stack.enter_async_context(listening(made))
                )
        backends = [
            {"name": backend_name(model, number), "url": upstream.url, "engine": "openai"}
            for model, several in upstreams.items()
            for number, upstream in enumerate(several)
        ]
        config = toml({**SETTINGS, "backends": backends})
        proxy = await stack.enter_async_context(proxy_process(config, "--log-level", "warning"))
        python = await stack.enter_async_context(python_clients())
        stage = Stage(proxy=proxy, python=python, node=node, upstreams=upstreams)
        await all_up(proxy, len(backends))
        yield stage


async def all_up(proxy: ProxyProcess, count: int) -> None:
    """Until every backend was probed; raises RuntimeError."""
    for _ in range(400):
        states = list((await proxy.states()).values())
        if states.count("up") == count:
            return
        await asyncio.sleep(0.05)
    raise RuntimeError("not all backends came up")
