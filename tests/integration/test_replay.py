"""`prefold replay` as a process, against a server that says what it is told to."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.upstream import DONE, Script, delta, event, scripted, stream

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 2,
    "prompt_tokens_details": {"cached_tokens": 64},
}
ANSWER = stream(
    delta(role="assistant"), delta("a"), delta("b"), delta(finish="stop"),
    event(id="c1", choices=[], usage=USAGE), DONE,
)  # fmt: skip


async def replayed(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "prefold.proxy.cli", "replay", "--json", str(tmp_path / "out.json"),
        "--timelines", str(tmp_path / "timelines.jsonl"), *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    made = tmp_path / "out.json"
    return (
        process.returncode or 0,
        json.loads(made.read_text()) if made.exists() else {},
        output.decode(),
    )


async def test_two_arms_of_a_synthetic_workload(tmp_path: Path) -> None:
    """Both get the same requests; figures, failures and pairs are told apart."""
    scripts: list[Script] = [ANSWER] * 6
    broken: list[Script] = [*[ANSWER] * 5, stream(delta("a"))]
    async with scripted(*scripts) as good, scripted(*broken) as bad:
        code, made, output = await replayed(
            tmp_path, "--synthetic", "shared-prefix", "--num-requests", "6", "--model", "m",
            "--concurrency", "1", "--target", f"one={good.url}", "--target", f"two={bad.url}/v1",
            "--goodput", "ttft:60000",
        )  # fmt: skip

    assert code == 0, output
    one, two = made["arms"]["one"], made["arms"]["two"]
    assert (one["requests"], one["failed"], one["goodput"]) == (6, 0, 1.0)
    assert one["cache_hit_rate"] == pytest.approx(0.64)
    assert one["output_tokens"] == 12
    assert (two["requests"], two["failed"]) == (5, 1)
    assert two["errors"] == {"the stream ended early": 1}
    assert two["goodput"] == pytest.approx(5 / 6)
    assert made["differences"]["two"] == {"ttft_ms": None, "e2e_ms": None}
    assert "Requests failed" in output
    bodies = [
        [json.loads(received.body)["messages"][0]["content"] for received in side.received]
        for side in (good, bad)
    ]
    assert [text.split("]")[1] for text in bodies[0]] == [text.split("]")[1] for text in bodies[1]]
    assert bodies[0][0] != bodies[1][0]


async def test_the_timelines_are_what_prefold_metrics_reads(tmp_path: Path) -> None:
    """A line for each request, with every kind of event in it, and no text of the answer."""
    async with scripted(ANSWER, ANSWER, ANSWER) as upstream:
        code, _, output = await replayed(
            tmp_path, "--synthetic", "unique", "--num-requests", "3", "--model", "m",
            "--request-rate", "1000", "--target", upstream.url,
        )  # fmt: skip
    assert code == 0, output
    lines = (tmp_path / "timelines.jsonl").read_text().splitlines()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "prefold.proxy.cli", "metrics", str(tmp_path / "timelines.jsonl"),
        "--profile", "all", "--json", stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    told, _ = await process.communicate()
    profiles = json.loads(told)["profiles"]

    assert len(lines) == 3
    kinds = [chunk["kind"] for chunk in json.loads(lines[0])["chunks"]]
    assert kinds == ["role", "content", "content", "finish", "usage", "done"]
    assert profiles["vllm"]["metrics"]["itl_ms"]["count"] == 9
    assert profiles["aiperf"]["metrics"]["ttft_ms"]["count"] == 3


async def test_what_cannot_be_replayed_is_told(tmp_path: Path) -> None:
    """A server without models, and a choice that makes no sense."""
    code, _, output = await replayed(
        tmp_path, "--synthetic", "unique", "--target", "http://127.0.0.1:9"
    )
    assert code == 1
    assert "nothing listens there" in output
    code, _, output = await replayed(tmp_path, "--target", "http://127.0.0.1:9")
    assert code == 2
    assert "--synthetic" in output
