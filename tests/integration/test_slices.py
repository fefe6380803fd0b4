"""Arms by time slices before real backends: how requests are routed, and what the ledger holds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from prefold.measurement.ledger.reader import LedgerRow
from prefold.proxy import settings as given
from prefold.proxy.arms import Arm
from prefold.proxy.serve import running
from prefold.proxy.settings import Backend, Experiment, Ledger, Routing, Settings
from prefold.proxy.slices import Slice, Slices
from tests.support.ledger import rows_of
from tests.support.proxy import BASE
from tests.support.upstream import DONE, delta, scripted, stream
from tests.support.workers import eventually, workers
from tests.wire.raw_client import post

ANSWER = stream(delta("a"), delta(finish="stop"), DONE)
SECRET = "a secret of the tests"
POLICIES = {"turns": "round_robin", "hashed": "rendezvous"}


def now(length: float) -> Slice:
    """The slice that everybody with this secret is in."""
    arms = [Arm(name) for name in POLICIES]
    return Slices(SECRET.encode(), arms, slice_s=length, washout_s=0.0).at(time.time())


def length_with(arm: str) -> float:
    """Of slices of which the one that it is now has this arm, and is in its middle."""
    lengths = (float(10**6 + number * 10**4) for number in range(1000))
    return next(
        length
        for length in lengths
        if now(length).arm.name == arm and 0.2 < (time.time() - now(length).start) / length < 0.8
    )


def settings(path: Path, urls: list[str], length: float, washout_s: float = 0.0) -> Settings:
    return Settings(
        server=BASE.server,
        ledger=Ledger(path=str(path)),
        routing=Routing(secret=SECRET),
        experiment=Experiment(slice_s=length, washout_s=washout_s),
        arms=tuple(
            given.Arm(name=name, policy=policy)  # type: ignore[arg-type]
            for name, policy in POLICIES.items()
        ),
        backends=tuple(Backend(name=f"b{number}", url=url) for number, url in enumerate(urls)),
    )


async def served(made: Settings, path: Path) -> list[LedgerRow]:
    """Six chats and a completion, one after the other."""
    async with running(made) as server, aiohttp.ClientSession(server.url) as http:
        for backend in server.proxy.pool:
            await server.proxy.monitor.probe(backend)
        for number in range(7):
            chat = {"messages": [{"role": "user", "content": f"conversation {number}"}]}
            what: dict[str, Any] = chat if number < 6 else {"prompt": "p"}
            where = "/v1/chat/completions" if number < 6 else "/v1/completions"
            async with http.post(where, json={"model": "m", "stream": True, **what}) as answer:
                assert answer.status == 200
                await answer.read()
    return rows_of(path)


@pytest.mark.parametrize("arm", list(POLICIES))
async def test_all_requests_are_routed_as_the_slices_arm_has_it(tmp_path: Path, arm: str) -> None:
    """Those of no known conversation too; the ledger has arm, slice and round of each."""
    length = length_with(arm)
    async with scripted(ANSWER) as one, scripted(ANSWER) as two:
        rows = await served(settings(tmp_path / "l", [one.url, two.url], length), tmp_path / "l")
    slice_now = now(length)

    assert len(rows) == 7
    assert {row.arm for row in rows} == {arm}
    assert {row.reason for row in rows} == {POLICIES[arm]}
    assert {row.slice_start for row in rows} == {slice_now.start}
    assert {row.round_start for row in rows} == {slice_now.round_start}
    if arm == "turns":
        assert {row.backend for row in rows[:2]} == {"b0", "b1"}


async def test_a_wash_out_is_served_under_the_arm_and_recorded_with_none(tmp_path: Path) -> None:
    """No difference can count it, and what it does to the caches is the arm's doing."""
    length = length_with("turns")
    async with scripted(ANSWER) as one, scripted(ANSWER) as two:
        made = settings(tmp_path / "l", [one.url, two.url], length, washout_s=length - 1.0)
        rows = await served(made, tmp_path / "l")

    assert {row.arm for row in rows} == {None}
    assert {row.reason for row in rows} == {"round_robin"}
    assert {row.slice_start for row in rows} == {now(length).start}


async def test_every_worker_is_in_the_same_slice(tmp_path: Path) -> None:
    """Without a word between them, and with the one ledger of the parent."""
    length, path = length_with("hashed"), tmp_path / "l"
    tables = {
        "ledger": {"path": str(path)},
        "routing": {"secret": SECRET},
        "experiment": {"slice_s": length, "washout_s": 0.0},
        "arms": [{"name": name, "policy": policy} for name, policy in POLICIES.items()],
    }
    async with scripted(ANSWER) as one, workers([one.url], tables) as serving:
        connections = [await serving.connect(pid) for pid in serving.pids()]
        before = len(chats(path))
        for number, connection in enumerate(connections):
            body = {"model": "m", "messages": [{"role": "user", "content": str(number)}]}
            await connection.ask(post("/v1/chat/completions", json.dumps(body).encode()))

        async def written() -> bool:
            return len(chats(path)) >= before + len(connections)

        await eventually(written)
        rows = chats(path)[before:]

    assert len(connections) == 2
    assert {(row.arm, row.slice_start) for row in rows} == {("hashed", now(length).start)}


def chats(path: Path) -> list[LedgerRow]:
    return [row for row in rows_of(path) if row.endpoint == "/v1/chat/completions"]
