"""The processes of a run: backends, networks before them, and a proxy before all.

The first backend is reached directly, so that its death is a refused connection; between the proxy
and each other one lies a relay.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from prefold.backends.embedded import ensure_engine
from prefold.backends.engine_process import EngineProcess, start_engine
from tests.chaos.plan import Event, Fault
from tests.chaos.processes import Child, start


@dataclass(slots=True)
class ScriptedBackend:
    folder: Path
    name: str
    models: list[str]
    child: Child | None = None
    port: int = 0

    def begin(self) -> None:
        named = [part for model in self.models for part in ("--model", model)]
        arguments = ["-m", "tests.chaos.llm_server", "--port", str(self.port), *named]
        self.child = start(arguments, self.folder / f"{self.name}.log")
        [address] = self.child.addresses(1)
        self.port = int(address.rpartition(":")[2])

    def kill(self) -> None:
        assert self.child is not None
        self.child.kill()

    def signal(self, number: signal.Signals) -> None:
        assert self.child is not None
        self.child.signal(number)

    def end(self) -> None:
        if self.child is not None:
            self.child.stop()


@dataclass(slots=True)
class LlamaBackend:
    """An embedded llama.cpp engine."""

    model: str
    engine: EngineProcess | None = None
    port: int = 0

    def begin(self) -> None:
        self.engine = start_engine(ensure_engine(), slots=4, alias=self.model, port=self.port)
        self.port = int(self.engine.wait_ready().rpartition(":")[2])

    def kill(self) -> None:
        assert self.engine is not None
        self.engine.process.kill()
        self.engine.stop()

    def signal(self, number: signal.Signals) -> None:
        if self.engine is not None and self.engine.process.poll() is None:
            self.engine.process.send_signal(number)

    def end(self) -> None:
        if self.engine is not None:
            self.signal(signal.SIGCONT)
            self.engine.stop()


Backend = ScriptedBackend | LlamaBackend


@dataclass(slots=True, kw_only=True)
class Member:
    """A backend, and the network before it if there is one."""

    backend: Backend
    relay: Child | None
    url: str

    async def suffer(self, event: Event) -> None:
        """One fault from its beginning to its end."""
        begin, end = self._fault(event.fault)
        begin()
        try:
            await asyncio.sleep(event.ends - event.begins)
        finally:
            # Starting waits for an address, and the clients run in this loop.
            await asyncio.to_thread(end)

    def _fault(self, fault: Fault) -> tuple[Callable[[], None], Callable[[], None]]:
        backend, relay = self.backend, self.relay
        if fault is Fault.KILL:
            return backend.kill, backend.begin
        if fault is Fault.STOP:
            return (
                lambda: backend.signal(signal.SIGSTOP),
                lambda: backend.signal(signal.SIGCONT),
            )
        assert relay is not None
        line = "delay 0.3" if fault is Fault.DELAY else fault.value
        return lambda: relay.say(line), lambda: relay.say("pass")


SETTINGS = """
[server]
lame_duck_s = {lame_duck_s}
drain_s = {drain_s}
[timeouts]
connect_s = 1.0
first_byte_s = {first_byte_s}
idle_s = 2.0
write_s = 5.0
queue_s = 3.0
[health]
interval_s = 0.5
timeout_s = 1.0
eject_s = 1.0
eject_max_s = 4.0
slow_start_s = 1.0
"""


@contextmanager
def backends(folder: Path, made: list[Backend]) -> Iterator[list[Member]]:
    with ExitStack() as stack:
        members = []
        for number, backend in enumerate(made):
            stack.callback(backend.end)
            backend.begin()
            relay = None
            url = f"http://127.0.0.1:{backend.port}"
            if number:
                arguments = ["-m", "tests.chaos.relay", "--to", str(backend.port)]
                relay = start(arguments, folder / f"relay-{number}.log")
                stack.callback(relay.stop)
                [url] = relay.addresses(1)
            members.append(Member(backend=backend, relay=relay, url=url))
        yield members


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    child: Child
    url: str
    admin_url: str


def start_proxy(
    folder: Path,
    urls: list[str],
    *,
    name: str = "prefold",
    lame_duck_s: float = 0.5,
    drain_s: float = 5.0,
    first_byte_s: float = 4.0,
) -> Proxy:
    """`prefold serve` on free ports; its log is `folder`/`name`.log."""
    config = folder / f"{name}.toml"
    tables = [
        f'[[backends]]\nurl = {json.dumps(url)}\nname = "b{n}"\n' for n, url in enumerate(urls)
    ]
    settings = SETTINGS.format(lame_duck_s=lame_duck_s, drain_s=drain_s, first_byte_s=first_byte_s)
    config.write_text(settings + "".join(tables))
    arguments = ["-m", "prefold.proxy.cli", "serve", "--config", str(config)]
    options = ["--port", "0", "--admin-port", "0", "--exit-with-stdin", "--log-level", "warning"]
    child = start([*arguments, *options], folder / f"{name}.log")
    url, admin_url = child.addresses(2)
    return Proxy(child=child, url=url, admin_url=admin_url)
