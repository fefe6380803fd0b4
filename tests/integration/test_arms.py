"""Arms before real backends: who is served where, what the ledger holds of it, and weights that
change while requests go on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp

from prefold.measurement.ledger.reader import LedgerRow
from prefold.proxy.serve import Running, running
from prefold.proxy.settings import Arm, Backend, Ledger, Settings
from tests.support.ledger import rows_of
from tests.support.proxy import BASE
from tests.support.upstream import DONE, delta, scripted, stream
from tests.support.workers import eventually, workers
from tests.wire.raw_client import post

ANSWER = stream(delta("a"), delta("b"), delta(finish="stop"), DONE)
ARMS = (Arm(name="control"), Arm(name="fp8", labels={"precision": "fp8"}))


def settings(path: Path, urls: Mapping[str, str], *arms: Arm, **more: Any) -> Settings:
    """Backends are named by the precision that is their label."""
    backends = tuple(
        Backend(name=name, url=url, labels={"precision": name}) for name, url in urls.items()
    )
    kept = Ledger(path=str(path))
    return replace(BASE, ledger=kept, arms=arms, backends=backends, **more)


@asynccontextmanager
async def serving(given: Settings) -> AsyncIterator[tuple[Running, aiohttp.ClientSession]]:
    async with running(given) as server, aiohttp.ClientSession(server.url) as http:
        for backend in server.proxy.pool:
            await server.proxy.monitor.probe(backend)
        yield server, http


async def talk(http: aiohttp.ClientSession, number: int, turns: int = 1) -> None:
    """The turns of one conversation."""
    messages = [{"role": "user", "content": f"conversation {number}"}]
    for _ in range(turns):
        body = {"model": "m", "stream": True, "messages": messages}
        async with http.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200
            await answer.read()
        messages += [{"role": "assistant", "content": "ab"}, {"role": "user", "content": "more"}]


def by_arm(rows: list[LedgerRow]) -> dict[str | None, set[str | None]]:
    """The backends of each."""
    found: dict[str | None, set[str | None]] = {}
    for row in rows:
        found.setdefault(row.arm, set()).add(row.backend)
    return found


async def test_conversations_keep_their_arm_and_arms_their_backends(tmp_path: Path) -> None:
    """Every turn of one is in the same arm; an arm with labels goes nowhere else."""
    path = tmp_path / "l"
    async with scripted(ANSWER) as one, scripted(ANSWER) as two:
        given = settings(path, {"bf16": one.url, "fp8": two.url}, *ARMS)
        async with serving(given) as (_, http):
            for number in range(24):
                await talk(http, number, turns=2)
    rows = rows_of(path)
    arms: dict[bytes | None, set[str | None]] = {}
    for row in rows:
        arms.setdefault(row.conversation, set()).add(row.arm)

    assert len(rows) == 48
    assert len(arms) == 24
    assert all(len(found) == 1 for found in arms.values())
    assert by_arm(rows) == {"control": {"bf16", "fp8"}, "fp8": {"fp8"}}


async def test_an_experiment_refuses_nobody(tmp_path: Path) -> None:
    """Where no backend of the arm is up, any is taken; the arm stays what was drawn."""
    path = tmp_path / "l"
    only_fp8 = Arm(name="fp8", labels={"precision": "fp8"})
    async with scripted(ANSWER) as one:
        given = settings(path, {"bf16": one.url, "fp8": "http://127.0.0.1:9"}, only_fp8)
        async with serving(given) as (_, http):
            await talk(http, 1)

    assert by_arm(rows_of(path)) == {"fp8": {"bf16"}}


async def test_what_has_no_conversation_has_no_arm(tmp_path: Path) -> None:
    """It could not be kept together; without arms nothing is drawn at all."""
    path = tmp_path / "l"
    async with scripted(ANSWER) as one:
        async with serving(settings(path, {"bf16": one.url}, Arm(name="a"))) as (_, http):
            body = {"model": "m", "prompt": "p", "stream": True}
            async with http.post("/v1/completions", json=body) as answer:
                await answer.read()
        async with serving(settings(path, {"bf16": one.url})) as (_, http):
            await talk(http, 1)

    assert [row.arm for row in rows_of(path)] == [None, None]


async def test_a_ledger_without_digests_holds_none_of_conversations(tmp_path: Path) -> None:
    """Arms are drawn all the same."""
    path = tmp_path / "l"
    async with scripted(ANSWER) as one:
        given = settings(path, {"bf16": one.url}, Arm(name="a"))
        given = replace(given, ledger=replace(given.ledger, digests=False))
        async with serving(given) as (_, http):
            await talk(http, 1)

    [row] = rows_of(path)
    assert (row.arm, row.conversation, row.blocks) == ("a", None, [])


async def test_weights_change_while_requests_go_on(tmp_path: Path) -> None:
    """On the admin port: what is drawn from then on; unknown arms and no weights are refused."""
    path = tmp_path / "l"
    async with scripted(ANSWER) as one:
        given = settings(path, {"bf16": one.url}, Arm(name="a"), Arm(name="b", weight=0.0))
        async with (
            serving(given) as (server, http),
            aiohttp.ClientSession(server.admin_url) as admin,
        ):
            await talk(http, 1)
            async with admin.patch("/arms", json={"a": 0.0, "b": 2.0}) as answer:
                assert answer.status == 200
                told = await answer.json()
            for weights, status in (({"c": 1.0}, 404), ({"b": 0.0}, 400), ({"b": -1}, 400)):
                async with admin.patch("/arms", json=weights) as answer:
                    assert answer.status == status
            async with admin.get("/arms") as answer:
                assert await answer.json() == told
            await talk(http, 1)

    assert [(arm["name"], arm["weight"], arm["share"]) for arm in told["arms"]] == [
        ("a", 0.0, 0.0),
        ("b", 2.0, 1.0),
    ]
    assert [row.arm for row in rows_of(path)] == ["a", "b"]


async def test_every_worker_draws_alike_and_hears_of_other_weights(tmp_path: Path) -> None:
    """Whatever process has the request."""
    path = tmp_path / "l"
    tables = {
        "ledger": {"path": str(path)},
        "arms": [{"name": "a"}, {"name": "b"}],
    }
    async with scripted(ANSWER) as one, workers([one.url], tables) as serving_workers:
        connections = [await serving_workers.connect(pid) for pid in serving_workers.pids()]

        async def arms_of_all() -> dict[bytes | None, set[str | None]]:
            """Each worker is told each conversation once; those in the ledger since then."""
            before = len(chats(path))
            for connection in connections:
                for number in range(8):
                    body = {"model": "m", "messages": [{"role": "user", "content": str(number)}]}
                    await connection.ask(post("/v1/chat/completions", json.dumps(body).encode()))
            wanted = before + 8 * len(connections)

            async def written() -> bool:
                return len(chats(path)) >= wanted

            await eventually(written)
            found: dict[bytes | None, set[str | None]] = {}
            for row in chats(path)[before:]:
                found.setdefault(row.conversation, set()).add(row.arm)
            return found

        drawn = await arms_of_all()
        await serving_workers.admin("PATCH", "/arms", b'{"a": 0}')

        async def all_in_b() -> bool:
            return set().union(*(await arms_of_all()).values()) == {"b"}

        await eventually(all_in_b)

    assert len(connections) == 2
    assert len(drawn) == 8
    assert all(len(arms) == 1 for arms in drawn.values())
    assert set().union(*drawn.values()) == {"a", "b"}


def chats(path: Path) -> list[LedgerRow]:
    return [row for row in rows_of(path) if row.endpoint == "/v1/chat/completions"]
