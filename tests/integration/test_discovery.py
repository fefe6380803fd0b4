"""Discovery at work: backends come and go with a file's list and a name's addresses, under load."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp

from prefold.proxy.check import check_backends
from prefold.proxy.discovery.following import Following, sources_of
from prefold.proxy.serve import Running, running
from prefold.proxy.settings import Discovery, Health, Settings
from tests.support.proxy import BASE, until
from tests.support.upstream import DONE, ScriptedUpstream, delta, scripted, stream
from tests.support.workers import HEALTH, SERVER, WorkersProcess, eventually
from tests.wire.process import proxy_process, toml
from tests.wire.raw_client import ask as raw_ask
from tests.wire.raw_client import post

GOOD = stream(delta("hi"), delta(finish="stop"), DONE)
CLIENTS = 16


def listing(path: Path, upstreams: Sequence[ScriptedUpstream]) -> None:
    """Written as a careful writer does: another file takes the place of the old one."""
    fresh = path.with_name("fresh")
    fresh.write_text(
        json.dumps([{"url": one.url, "name": f"u{one.port}"} for one in upstreams]),
        encoding="utf-8",
    )
    fresh.replace(path)


def with_discovery(**wanted: Any) -> Settings:
    return replace(
        BASE,
        discovery=Discovery(interval_s=0.02, **wanted),
        health=Health(interval_s=0.2, slow_start_s=0.0),
    )


def names(server: Running) -> set[str]:
    return {backend.name for backend in server.proxy.pool if backend.health.reachable}


class Clients:
    """So many that ask one question after the other, each another one, until they are told."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = False
        self.answers: list[tuple[int, bytes]] = []

    async def run(self, number: int) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(self._url, connector=connector) as http:
            asked = 0
            while not self._stop:
                asked += 1
                text = f"{number} {asked} " * 50
                body = {
                    "model": "m",
                    "stream": True,
                    "messages": [{"role": "user", "content": text}],
                }
                async with http.post("/v1/chat/completions", json=body) as answer:
                    self.answers.append((answer.status, await answer.read()))

    def stop(self) -> None:
        self._stop = True


@asynccontextmanager
async def under_load(url: str) -> AsyncIterator[Clients]:
    """None of their requests failed."""
    clients = Clients(url)
    tasks = [asyncio.create_task(clients.run(number)) for number in range(CLIENTS)]
    try:
        yield clients
    finally:
        clients.stop()
        await asyncio.gather(*tasks)
    assert {status for status, _ in clients.answers} == {200}
    assert all(body.endswith(DONE) for _, body in clients.answers)


async def test_backends_come_and_go_with_a_file_and_no_request_fails(tmp_path: Path) -> None:
    """What is added serves, what is removed gets nothing new and finishes what it has."""
    path = tmp_path / "backends.json"
    async with scripted(GOOD) as one, scripted(GOOD) as two, scripted(GOOD) as three:
        listing(path, [one])
        async with running(with_discovery(file=str(path))) as server:
            await until(lambda: names(server) == {f"u{one.port}"})
            async with under_load(server.url) as clients:
                for there in ([one, two], [two], [two, three], [three], [one, three], [one]):
                    listing(path, there)
                    await until(lambda there=there: names(server) == {f"u{u.port}" for u in there})
                    before = [len(u.received) for u in there]
                    await until(
                        lambda there=there, before=before: all(
                            len(u.received) > count for u, count in zip(there, before, strict=True)
                        )
                    )
                gone = len(three.received)
                answered = len(clients.answers)
                await until(lambda: len(clients.answers) > answered + CLIENTS)
                assert len(three.received) == gone
            assert [backend.in_flight for backend in server.proxy.pool] == [0]


async def test_a_list_that_breaks_leaves_the_fleet_as_it_is(tmp_path: Path) -> None:
    """A reload leaves it there too, as does a file that is gone; named backends stay beside it."""
    path = tmp_path / "backends.json"
    async with scripted(GOOD) as one, scripted(GOOD) as two:
        listing(path, [one])
        async with running(with_discovery(file=str(path))) as server:
            reloader = server.proxy.reloader
            await until(lambda: names(server) == {f"u{one.port}"})
            follows = Following(sources_of(server.proxy.settings.discovery), reloader.discovered)
            path.write_text("{", encoding="utf-8")
            await follows.look()
            path.unlink()
            await follows.look()
            assert names(server) == {f"u{one.port}"}
            async with aiohttp.ClientSession(server.admin_url) as admin:
                async with admin.post("/backends", json={"url": two.url, "name": "two"}) as added:
                    assert added.status == 201
                async with admin.delete(f"/backends/u{one.port}") as refused:
                    assert refused.status == 400
                    assert "discovered" in await refused.text()
            listing(path, [one, two])
            await until(lambda: names(server) == {"two", f"u{one.port}"})
            assert len(list(server.proxy.pool)) == 2


async def test_a_name_is_resolved_to_its_addresses() -> None:
    """By the machine's own resolver."""
    async with scripted(GOOD) as one:
        wanted = with_discovery(dns=f"http://localhost:{one.port}", dns_family="ipv4")
        async with running(wanted) as server:
            await until(lambda: names(server) == {f"127.0.0.1:{one.port}"})
            async with under_load(server.url) as clients:
                await until(lambda: len(clients.answers) > 10)


async def test_workers_follow_what_their_parent_discovers(tmp_path: Path) -> None:
    """The parent looks; each worker is told, and serves from the list as it is now."""
    path = tmp_path / "backends.json"
    async with scripted(GOOD) as one, scripted(GOOD) as two:
        listing(path, [one])
        tables = {
            "server": SERVER,
            "health": {**HEALTH, "slow_start_s": 0.0},
            "discovery": {"file": str(path), "interval_s": 0.05},
        }
        async with proxy_process(toml(tables)) as proxy:
            made = WorkersProcess(proxy)
            await made.until_ready(1)
            assert (await chat(proxy.url)) == 200
            listing(path, [one, two])
            await made.until_ready(2)
            listing(path, [two])
            await made.until_ready(1)
            before = len(one.received)
            for _ in range(8):
                assert (await chat(proxy.url)) == 200
            assert (len(one.received), len(two.received)) == (before, 8)

            async def told() -> bool:
                return [one["name"] for one in await made.backends()] == [f"u{two.port}"]

            await eventually(told)
            for writer in made.writers:
                writer.close()


async def chat(url: str) -> int:
    """On a connection of its own, which some worker takes."""
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}
    return (await raw_ask(url, post("/v1/chat/completions", json.dumps(body).encode()))).status


async def test_check_shows_what_is_discovered(tmp_path: Path, capsys: Any) -> None:
    """With what is wrong, which is no reason to show nothing else."""
    path = tmp_path / "backends.json"
    async with scripted(GOOD) as one:
        listing(path, [one])
        wanted = with_discovery(file=str(path), dns="http://no-such-name.invalid:8000")
        assert await check_backends(wanted)

    shown = capsys.readouterr().out
    assert f"discovered: u{one.port}" in shown
    assert f"backend u{one.port}: up" in shown
    assert "no-such-name.invalid: " in shown
