"""The report on traffic of real engines, of `prefold demo` and of `prefold replay`: beside what
their clients saw, and its verdict worked out again from the ledger's rows."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import Any

import pytest

from prefold.backends.embedded import EnginePaths
from prefold.measurement.benefit.compare import MIN_CONVERSATIONS
from prefold.proxy.settings import Arm, Compression, Ledger, Routing, Settings
from tests.support.prose import prose
from tests.support.proxy import BASE, proxy_before, until
from tests.support.requirements import skip_or_fail

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

Row = dict[str, Any]
REQUESTS = 116


async def prefold(*arguments: str) -> str:
    """What the command wrote to standard output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prefold.proxy.cli", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, said = await process.communicate()
    assert process.returncode == 0, (out + said).decode()
    return out.decode()


async def report(path: Path, *more: str) -> Any:
    return json.loads(await prefold("report", "--ledger", str(path), "--json", *more))


async def exported(path: Path) -> list[Row]:
    lines = await prefold("ledger", "export", "--ledger", str(path), "--format", "jsonl")
    return [json.loads(line) for line in lines.splitlines()]


def total(rows: Sequence[Row], name: str) -> int:
    return sum(row[name] for row in rows)


async def test_the_report_of_a_demo_has_the_tokens_that_its_client_saw(
    engine_paths: EnginePaths, tmp_path: Path
) -> None:
    """Saved and prompt tokens, of all arms and of each; what its sentences say is in the rows; and
    runs one after the other are not said to be drawn by lot."""
    ledger, file = tmp_path / "l", tmp_path / "demo.json"
    await prefold(
        *("demo", "--skip-roomy", "--requests", "8", "--tenants", "3", "--prefix-tokens", "60"),
        *("--clients", "1", "--json", str(file), "--ledger", str(ledger)),
    )
    seen = {f"tight-{arm['policy']}": arm for arm in json.loads(file.read_text())["arms"]}
    rows, made = await exported(ledger), await report(ledger)
    by_arm = await report(ledger, "--by", "label:arm")
    said = " ".join((await prefold("report", "--ledger", str(ledger))).split())
    saved, prompts = total(rows, "reported_tokens"), total(rows, "prompt_tokens")

    assert len(rows) == 16
    assert made["total"]["savings"]["saved_tokens"] == saved
    assert saved == sum(arm["prefill_tokens_saved"] for arm in seen.values()) > 0
    assert made["total"]["savings"]["prompt_tokens"] == prompts
    assert prompts == sum(arm["prompt_tokens"] for arm in seen.values())
    assert f"Saved {saved:,} of {prompts:,} prompt tokens ({saved / prompts:.1%})" in said
    assert "as reported by the engines for 16 requests; 0 answered requests reported" in said
    for group in by_arm["groups"]:
        assert group["savings"]["saved_tokens"] == seen[group["name"]]["prefill_tokens_saved"]
    assert not by_arm["randomised"]
    assert [one["verdict"].partition(": ")[2] for one in by_arm["comparisons"]] == [
        f"not enough data yet: 0 of {MIN_CONVERSATIONS} conversations"
    ]


def workload(path: Path) -> None:
    """Questions about two short documents each, made up; every one a conversation of its own."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(REQUESTS):
            texts = (prose(2 * number, 1), prose(2 * number + 1, 1), f"Question {number}: who?")
            parts = [{"type": "text", "text": text} for text in texts]
            body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 1}
            file.write(json.dumps(body | {"temperature": 0}) + "\n")


def settings(ledger: Path) -> Settings:
    return replace(
        BASE,
        ledger=Ledger(path=str(ledger)),
        routing=Routing(secret="a secret of this test"),  # 55 conversations fall to one arm
        compression=Compression(min_tokens=40, min_chars=100, deadline_s=20.0),
        arms=(Arm(name="control", compression="off"), Arm(name="short", compression="on")),
    )


async def test_the_report_of_a_replay_agrees_with_its_client_and_with_the_rows(
    two_engine_urls: tuple[str, str], tmp_path: Path
) -> None:
    """Tokens exactly. The client's TTFT has all of the proxy's in it, so it is no shorter. What
    the verdict tells, and whether it is sure, is what the exported rows of the two arms say."""
    try:
        import wordfreq  # noqa: F401
    except ImportError:
        skip_or_fail("needs wordfreq: pip install 'prefold[compression-lexical]'")
    requests = tmp_path / "requests.jsonl"
    workload(requests)
    async with proxy_before(two_engine_urls, settings=settings(tmp_path / "l")) as server:
        compression = server.proxy.compression
        assert compression is not None
        await until(lambda: compression.pool.up > 0, tries=3000)
        await prefold(
            *("replay", "--target", server.url, "--requests", str(requests), "--model", "smollm2"),
            *("--concurrency", "2", "--json", str(tmp_path / "seen.json")),
            *("--timelines", str(tmp_path / "seen.jsonl")),
        )
    await told_alike(tmp_path)


async def told_alike(folder: Path) -> None:
    lines = (folder / "seen.jsonl").read_text().splitlines()
    usages = [json.loads(line)["usage"] for line in lines]
    client = json.loads((folder / "seen.json").read_text())["arms"]["target"]
    rows, made = await exported(folder / "l"), await report(folder / "l")
    arms = {name: [row for row in rows if row["arm"] == name] for name in ("control", "short")}

    # The same requests, the same tokens, by client, report and rows.
    savings = made["total"]["savings"]
    assert (client["requests"], client["failed"], made["total"]["failed"]) == (REQUESTS, 0, 0)
    assert savings["prompt_tokens"] == total(usages, "prompt_tokens")
    assert savings["prompt_tokens"] == total(rows, "prompt_tokens")
    assert savings["saved_tokens"] == total(usages, "cached_tokens")
    assert savings["saved_tokens"] == total(rows, "reported_tokens")
    assert made["total"]["output_tokens"] == client["output_tokens"] == total(rows, "output_tokens")
    assert client["metrics"]["ttft_ms"]["mean"] >= made["total"]["metrics"]["ttft_ms"]["mean"]

    # The arms: one was shortened, the other was not.
    removed = {
        group["name"]: (group["compression"] or {"removed_tokens": 0})["removed_tokens"]
        for group in made["groups"]
    }
    assert removed == {"control": 0, "short": total(arms["short"], "removed_tokens")}
    assert removed["short"] > 0
    assert min(map(len, arms.values())) >= MIN_CONVERSATIONS

    # The verdict.
    [comparison] = made["comparisons"]
    ttfts = {name: [row["first_token"] * 1000 for row in of] for name, of in arms.items()}
    assert comparison["verdict"].startswith("short against control: ")
    assert_true(comparison, ttfts["control"], ttfts["short"])


def assert_true(comparison: Any, control: Sequence[float], treated: Sequence[float]) -> None:
    """Its difference of TTFTs is theirs, and said to be sure where, by Welch's standard error, it
    is far from chance, and not where it is well within it. Each is one conversation."""
    [ttft] = [one for one in comparison["differences"] if one["metric"] == "ttft_ms"]
    difference = fmean(treated) - fmean(control)
    error = sqrt(variance(treated) / len(treated) + variance(control) / len(control))
    said = re.search(r"([+-][\d,.]+) ms \[([+-][\d,.]+), ([+-][\d,.]+)\]", comparison["verdict"])
    assert said is not None
    told, low, high = (float(number.replace(",", "")) for number in said.groups())

    assert ttft["units"] == min(len(treated), len(control))
    assert ttft["interval"]["difference"] == pytest.approx(difference, abs=1e-6)
    assert told == pytest.approx(difference, abs=0.51)
    assert low < difference < high
    sure = "no effect on TTFT" not in comparison["verdict"]
    assert sure == (low > 0 or high < 0)
    if abs(difference) > 6 * error:
        assert sure
    if abs(difference) < error:
        assert not sure
