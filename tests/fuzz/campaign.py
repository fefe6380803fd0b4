"""Many cases at once against a real `prefold serve` process, before an upstream in this one."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from prefold.proxy.tokens.encoder import Encoder
from prefold.proxy.tokens.tokenizer import load_tokenizer
from tests.chaos.figures import all_up, in_flight, unexpected
from tests.chaos.processes import Child, footprint, start
from tests.fuzz.client import Connection, Malformed, Reply
from tests.fuzz.judge import defects
from tests.fuzz.requests import Case, case
from tests.fuzz.upstream import Engine, listen
from tests.support.tiny_tokenizer import tiny_bpe, write_folder

CONNECTIONS = 64
KEPT_CASES = 5
"""For each defect, so many cases are written to files."""

# Ejections are off: nearly every backend here fails. The limits are short, as some stay silent. The
# memo is small, so that memory which grows would be seen.
SETTINGS = """
[timeouts]
connect_s = 2.0
first_byte_s = 1.0
idle_s = 1.0
write_s = 5.0
queue_s = 2.0
[tokens]
memo_mib = 1.0
[health]
interval_s = 1.0
failures_to_eject = 1000000000
slow_start_s = 0.0
[retry]
budget = 1.0
[models.m]
tokenizer = {folder}
aliases = ["alias"]
[[backends]]
name = "b0"
engine = "llama.cpp"
url = {first}
[[backends]]
name = "b1"
engine = "vllm"
url = {second}
"""


@dataclass(slots=True, kw_only=True)
class Result:
    """Mutable: what came of a campaign."""

    seed: int
    exchanges: int = 0
    replies: Counter[str] = field(default_factory=Counter)
    """By status, or what came instead of an answer."""
    requests: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    defects: dict[str, list[int]] = field(default_factory=dict)
    """Numbers of cases, by defect."""
    seconds: float = 0.0
    leases_left: int = 0
    hidden: int = 0
    log_faults: int = 0
    alive: bool = True
    rss_kib: tuple[int, int] = (0, 0)

    def broken(self) -> list[str]:
        found = [
            f"{len(numbers)} x {what}, e.g. number {numbers[0]}"
            for what, numbers in sorted(self.defects.items())
        ]
        if self.leases_left:
            found.append(f"{self.leases_left} leases left")
        if self.hidden:
            found.append(f"{self.hidden} requests were smuggled")
        if self.log_faults:
            found.append(f"{self.log_faults} unexpected exceptions in the log")
        if not self.alive:
            found.append("the proxy died")
        return found

    def as_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "exchanges": self.exchanges,
            "per_second": round(self.exchanges / max(self.seconds, 1e-9)),
            "replies": dict(self.replies.most_common()),
            "requests": dict(self.requests.most_common()),
            "answers": dict(self.answers.most_common()),
            "leases_left": self.leases_left,
            "smuggled": self.hidden,
            "log_faults": self.log_faults,
            "rss_kib": list(self.rss_kib),
            "broken": self.broken(),
        }


async def campaign(
    folder: Path, *, seed: int, numbers: Iterator[int], failures: Path | None = None
) -> Result:
    """All cases of those numbers; failing ones are written to the folder `failures`."""
    tokenizer = write_folder(folder / "tokenizer", tiny_bpe())
    loaded = load_tokenizer(str(tokenizer))
    assert loaded.template is not None
    encoder = Encoder(loaded.tokenizer, loaded.template, memo_bytes=2**20, inline_chars=2**20)
    engine = Engine(seed, loaded.template, encoder)
    first, first_url = await listen(engine)
    second, second_url = await listen(engine)
    settings = SETTINGS.format(
        folder=json.dumps(str(tokenizer)),
        first=json.dumps(first_url),
        second=json.dumps(second_url),
    )
    config = folder / "prefold.toml"
    config.write_text(settings)
    arguments = ["-m", "prefold.proxy.cli", "serve", "--config", str(config)]
    options = ["--port", "0", "--admin-port", "0", "--exit-with-stdin", "--log-level", "error"]
    proxy = start([*arguments, *options], folder / "prefold.log")
    try:
        url, admin_url = await asyncio.to_thread(proxy.addresses, 2)
        return await _run(proxy, url, admin_url, engine, seed, numbers, failures)
    finally:
        await asyncio.to_thread(proxy.stop)
        first.close()
        second.close()


async def _run(
    proxy: Child,
    url: str,
    admin_url: str,
    engine: Engine,
    seed: int,
    numbers: Iterator[int],
    failures: Path | None,
) -> Result:
    result = Result(seed=seed)
    async with aiohttp.ClientSession() as http:
        if not await all_up(http, url, 2, seconds=20):
            raise RuntimeError("the backends were not ready")
        before = footprint(proxy.pid).rss_kib
        began = time.monotonic()
        port = int(url.rpartition(":")[2])
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONNECTIONS):
                tasks.create_task(_worker(port, engine, result, seed, numbers, failures))
        result.seconds = time.monotonic() - began
        result.leases_left = await in_flight(http, admin_url, seconds=10)
        result.alive = proxy.process.poll() is None
        result.rss_kib = (before, footprint(proxy.pid).rss_kib)
    result.answers = engine.kinds
    result.hidden = engine.hidden
    result.log_faults = unexpected(proxy.log.read_text(errors="replace"))
    return result


async def _worker(
    port: int,
    engine: Engine,
    result: Result,
    seed: int,
    numbers: Iterator[int],
    failures: Path | None,
) -> None:
    connection = Connection(port)
    before = 0
    for number in numbers:
        made = case(seed, number)
        replies, found = await _one(connection, made, engine, result)
        for defect in found:
            known = result.defects.setdefault(defect, [])
            known.append(number)
            if failures is not None and len(known) <= KEPT_CASES:
                _keep(failures, made, engine, replies, [defect, f"after number {before}"])
        engine.said.pop(number, None)
        engine.asked.pop(number, None)
        before = number
    connection.close()


async def _one(
    connection: Connection, made: Case, engine: Engine, result: Result
) -> tuple[list[Reply], list[str]]:
    """The replies, and what is wrong with them."""
    result.exchanges += max(made.answers, 1)
    result.requests[made.kind] += 1
    try:
        replies = await connection.exchange(made.pieces, made.answers)
    except TimeoutError:
        result.replies["hang"] += 1
        return [], ["hang"]
    except Malformed as error:
        result.replies["malformed"] += 1
        return [], [f"malformed: {error}"]
    for reply in replies:
        result.replies[str(reply.status) if reply.whole else f"{reply.status}, cut"] += 1
    if not replies:
        result.replies["closed" if made.answers else "left without an answer"] += 1
    attempts = engine.asked[made.number]
    return replies, defects(made, replies, engine.said.get(made.number), attempts)


def _keep(failures: Path, made: Case, engine: Engine, replies: list[Reply], why: list[str]) -> None:
    """The request as bytes; beside it what the upstream did and what came of it. The case before on
    the same connection is named: a connection that ends early is that one's doing."""
    failures.mkdir(parents=True, exist_ok=True)
    (failures / f"{made.number}.request").write_bytes(made.raw)
    said = engine.said.get(made.number)
    lines = [*why, f"request: {made.kind}, in pieces of {[len(piece) for piece in made.pieces]}"]
    if said is not None:
        lines += [f"upstream: {said.kind}", *(repr(step) for step in said.steps)]
    lines += [f"reply: {reply}" for reply in replies]
    (failures / f"{made.number}.txt").write_text("\n".join(lines) + "\n")
