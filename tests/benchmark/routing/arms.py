"""What stands in front of the engines: prefold with its policies, and the two Rust routers."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.benchmark.routing.fleets import Fleet, ask, quiet_ports
from tests.benchmark.wire.peers import PEERS, Start
from tests.benchmark.wire.processes import child, module

READY = "Say that you are ready."


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    name: str
    about: str
    policy: str = ""
    """Of prefold; "" for another program."""
    events: bool = False
    """Needs engines that publish KV events, and follows them."""

    @property
    def mode(self) -> str:
        """That of each of prefold's backends, whatever the policy; "" of another program."""
        if not self.policy:
            return ""
        return "events" if self.events else "feedback"


ARMS = {
    arm.name: arm
    for arm in (
        Arm(name="prefold", about="its defaults", policy="prefix"),
        Arm(
            name="prefold-events",
            about="its defaults, and the engines' KV events followed",
            policy="prefix",
            events=True,
        ),
        Arm(name="round-robin", about="prefold with policy round_robin", policy="round_robin"),
        Arm(name="least-load", about="prefold with policy least_load", policy="least_load"),
        Arm(name="sglang-router", about="cache_aware, its defaults"),
        Arm(name="vllm-router", about="cache_aware, its defaults"),
    )
}


@dataclass(frozen=True, slots=True)
class Program:
    """Where an arm's program is; `version` as its package says."""

    path: Path
    version: str


def installed(arm: Arm) -> Program:
    """Fetched if need be, into an environment of its own. Raises Unavailable."""
    if arm.policy:
        return Program(Path(sys.executable), version("prefold"))
    peer = PEERS[arm.name]
    path = peer.install()
    return Program(path, peer.version(path))


@contextmanager
def in_front(arm: Arm, program: Program, fleet: Fleet, folder: Path) -> Iterator[str]:
    """Its URL, once a chat was answered and, of prefold, every backend is in the arm's mode. Raises
    ProcessError."""
    port, admin = quiet_ports(2)
    env: Mapping[str, str]
    if arm.policy:
        config = folder / "prefold.toml"
        config.write_text(settings(arm, fleet, port, admin), encoding="utf-8")
        argv = module("prefold.proxy.cli", "serve", "--config", str(config), "--exit-with-stdin")
        env = {}
    else:
        peer = PEERS[arm.name]
        urls = [engine.url for engine in fleet.engines]
        argv = peer.argv(Start(program=program.path, port=port, engines=urls, folder=folder))
        env = peer.env
    url = f"http://127.0.0.1:{port}"
    cores = frozenset(os.sched_getaffinity(0))
    with child(arm.name, argv, cores, env=env) as process:
        process.wait_until(lambda: ask(url, READY))
        if arm.mode:
            process.wait_until(lambda: modes(admin) == {arm.mode})
        yield url


def settings(arm: Arm, fleet: Fleet, port: int, admin: int) -> str:
    """The TOML for `prefold serve`; JSON strings are valid TOML. Beside addresses and policy, all
    is left at its default, but for the time that its end would take."""
    lines = ["[server]", f"port = {port}", f"admin_port = {admin}", "lame_duck_s = 0.0"]
    lines += ["[routing]", f"policy = {json.dumps(arm.policy)}"]
    for engine in fleet.engines:
        lines += ["[[backends]]", f"url = {json.dumps(engine.url)}"]
        if arm.events:
            lines += [f"kv_events = {json.dumps(engine.events)}"]
            lines += [f"kv_replay = {json.dumps(engine.replay)}"]
    return "\n".join(lines) + "\n"


def modes(admin_port: int) -> set[str]:
    """Those that prefold's backends are in now."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/backends", timeout=5.0) as page:
            return {str(backend["mode"]) for backend in json.load(page)["backends"]}
    except OSError:
        return set()
