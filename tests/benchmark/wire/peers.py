"""The proxies that are compared: how each is had, started and found ready.

All of them run as they come, access logs included where those are their default, with one thread
that does the work.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tests.benchmark.wire.bodies import bodies
from tests.benchmark.wire.install import debian_program, virtual_environment
from tests.benchmark.wire.processes import Child, Cores, child, module

HERE = Path(__file__).parent
EXACT = "mode=feedback"
ONE_THREAD = {"TOKIO_WORKER_THREADS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a peer is started with."""

    program: Path
    port: int
    engines: Sequence[str]
    """URLs of the stub's ports."""
    folder: Path
    """Of its own, for what it wants to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    name: str
    about: str
    install: Callable[[], Path]
    """The program that runs it, fetched if need be. Raises Unavailable."""
    version: Callable[[Path], str]
    argv: Callable[[Start], list[str]]
    env: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""
    """What the head of each of its answers must hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Something that takes requests."""

    name: str
    url: str
    needs: str = ""
    child: Child | None = None
    """None for `direct`, which is the stub itself."""


@contextmanager
def running(
    peer: Peer, program: Path, engines: Sequence[str], cores: Cores, *, realtime: bool = False
) -> Iterator[Running]:
    """Started, and seen to answer a chat as it must. Raises ProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        start = Start(program=program, port=_free_port(), engines=engines, folder=Path(folder))
        url = f"http://127.0.0.1:{start.port}"
        argv = peer.argv(start)
        with child(peer.name, argv, cores.proxy, env=peer.env, realtime=realtime) as process:
            process.wait_until(lambda: _answers(url, peer.needs))
            yield Running(name=peer.name, url=url, needs=peer.needs, child=process)


def _answers(url: str, needs: str) -> bool:
    body = next(bodies(size=1024, shared=False, stream=False, seed="ready"))
    chat = Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    try:
        with urlopen(chat, timeout=5.0) as answer:
            json.load(answer)
            return needs in str(answer.headers)
    except (HTTPError, URLError, ConnectionError, TimeoutError, json.JSONDecodeError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _prefold(start: Start) -> list[str]:
    return module("prefold.proxy.cli", *prefold_arguments(start))


def prefold_arguments(start: Start) -> list[str]:
    backends = [part for url in start.engines for part in ("--backend", url)]
    ports = ["--port", str(start.port), "--admin-port", "0"]
    return ["serve", *backends, *ports, "--exit-with-stdin"]


def _rust_router(launcher: str, quiet: str) -> Callable[[Start], list[str]]:
    def argv(start: Start) -> list[str]:
        address = ["--host", "127.0.0.1", "--port", str(start.port)]
        metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(_free_port())]
        policy = ["--policy", "cache_aware", "--log-level", quiet]
        program = [str(start.program), "-m", launcher]
        return [*program, *address, *metrics, *policy, "--worker-urls", *start.engines]

    return argv


def _nginx(start: Start) -> list[str]:
    """nginx.conf.in with the ports and folders of this run in it."""
    conf = (HERE / "nginx.conf.in").read_text()
    servers = " ".join(f"server {url.removeprefix('http://')};" for url in start.engines)
    for name, value in {
        "FOLDER": str(start.folder),
        "SERVERS": servers,
        "PORT": str(start.port),
    }.items():
        conf = conf.replace(f"@{name}@", value)
    file = start.folder / "nginx.conf"
    file.write_text(conf)
    return [str(start.program), "-p", str(start.folder), "-c", str(file), "-e", "stderr"]


def _nginx_version(program: Path) -> str:
    said = subprocess.run([str(program), "-v"], capture_output=True, text=True, check=True).stderr
    found = re.search(r"nginx/([\d.]+)", said)
    return found[1] if found else said.strip()


def _aiohttp(start: Start) -> list[str]:
    script = str(HERE.parent / "bare_copy.py")
    return [sys.executable, script, start.engines[0], str(start.port)]


def _ours() -> Path:
    return Path(sys.executable)


PREFOLD = Peer(
    name="prefold",
    about="routing by prefix, exact tokens, accounting, access log: its defaults",
    install=_ours,
    version=lambda _: version("prefold"),
    argv=_prefold,
    needs=EXACT,
)
PEERS = {
    peer.name: peer
    for peer in (
        PREFOLD,
        Peer(
            name="sglang-router",
            about="cache_aware, one tokio worker",
            install=lambda: virtual_environment("sglang-router", "0.3.2"),
            version=lambda _: "0.3.2",
            argv=_rust_router("sglang_router.launch_router", "warn"),
            env=ONE_THREAD,
        ),
        Peer(
            name="vllm-router",
            about="cache_aware, one tokio worker; the stub renders for it at no cost",
            install=lambda: virtual_environment("vllm-router", "0.1.17"),
            version=lambda _: "0.1.17",
            argv=_rust_router("vllm_router.launch_router", "warning"),
            env=ONE_THREAD,
        ),
        Peer(
            name="nginx",
            about="one process, round robin, unbuffered answers, no access log",
            install=lambda: debian_program("nginx", "nginx"),
            version=_nginx_version,
            argv=_nginx,
        ),
        Peer(
            name="aiohttp",
            about="a body in, the same body out, nothing looked at; one backend",
            install=_ours,
            version=lambda _: version("aiohttp"),
            argv=_aiohttp,
        ),
    )
}
DIRECT = "direct"
