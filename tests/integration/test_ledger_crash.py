"""A proxy that is killed under load: its ledger goes on."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import time
from pathlib import Path

import aiohttp

from tests.support.ledger import rows_of
from tests.support.upstream import scripted, whole
from tests.support.workers import eventually
from tests.wire.process import proxy_process, toml

ANSWER = whole({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}})
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi " * 1000}]})


async def test_killed_under_load_it_loses_the_last_second_at_most(tmp_path: Path) -> None:
    """Three times in a row, and never the file nor what an earlier process wrote."""
    path = tmp_path / "l"
    answered: list[tuple[float, str]] = []
    async with scripted(ANSWER) as up:
        config = toml(
            {
                "server": {"port": 0, "admin_port": 0, "log_requests": False},
                "ledger": {"path": str(path)},
                "backends": [{"url": up.url}],
            }
        )
        for round_number in range(3):
            killed = await killed_under_load(config, answered, round_number)

            rows = {row.request_id for row in rows_of(path)}
            early = {name for at, name in answered if at < killed - 1.0}
            assert early
            assert early <= rows
            connection = sqlite3.connect(path)
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            connection.close()
            answered = [(at, name) for at, name in answered if name in rows]
    assert len(rows_of(path)) == len({row.request_id for row in rows_of(path)})


async def killed_under_load(
    config: str, answered: list[tuple[float, str]], round_number: int
) -> float:
    """Answers go to `answered`, with their times and ids; when it was killed."""
    async with proxy_process(config) as proxy:

        async def client(number: int) -> None:
            async with aiohttp.ClientSession(proxy.url) as http:
                for turn in range(100_000):
                    name = f"{round_number}-{number}-{turn}"
                    headers = {"X-Request-Id": name, "Content-Type": "application/json"}
                    try:
                        async with http.post(
                            "/v1/chat/completions", data=BODY, headers=headers
                        ) as answer:
                            if answer.status == 200:
                                await answer.read()
                                answered.append((time.monotonic(), name))
                    except aiohttp.ClientError:
                        if proxy.process.returncode is not None:
                            return
                    await asyncio.sleep(0)

        clients = [asyncio.create_task(client(number)) for number in range(4)]
        began = time.monotonic()

        async def loaded() -> bool:
            """Long enough that what was written first is more than a second old."""
            return len(answered) > 100 and time.monotonic() - began > 1.7

        await eventually(loaded)
        killed = time.monotonic()
        proxy.process.send_signal(signal.SIGKILL)
        await proxy.process.wait()
        await asyncio.gather(*clients)
        return killed
