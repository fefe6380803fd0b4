"""The dashboard in a real Chromium, before a real proxy with traffic: what it shows is what /report
says, it loads nothing from elsewhere, and it breaks no rule that it sets the browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from click.testing import CliRunner, Result

from prefold.proxy.cli import main
from prefold.proxy.serve import Running
from prefold.proxy.settings import Arm, Compression, Diagnosis, Ledger, Settings
from tests.support.browser import chromium, page_of, texts
from tests.support.prose import prose
from tests.support.proxy import BASE, proxy_before
from tests.support.upstream import DONE, delta, event, scripted, stream
from tests.support.workers import eventually, workers

if TYPE_CHECKING:
    from playwright.async_api import Page

PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "is_mobile": True,
    "has_touch": True,
}


def answer(cached: int) -> list[Any]:
    usage = {
        "prompt_tokens": 900,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    told = event(object="chat.completion.chunk", choices=[], usage=usage)
    first = delta("", role="assistant")
    return stream(first, delta("a"), delta("b"), delta(finish="stop"), told, DONE)


ANSWERS = [answer(cached) for cached in (0, 512, 768, 256)]
SETTINGS = replace(
    BASE,
    arms=(Arm(name="control"), Arm(name="treated")),
    compression=Compression(mode="shadow", compressor="null", min_tokens=100),
    diagnosis=Diagnosis(divergence=True, divergence_share=1.0),
)


async def ask(http: aiohttp.ClientSession, number: int, texts_of: str = "") -> None:
    """One conversation's first turn; they part from each other in a number."""
    system = f"You are a clerk of the harbour. Ticket {number}. {prose(1, 60)}"
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": texts_of or f"What did porter {number} count?"},
    ]
    body = {"model": "m", "stream": True, "messages": messages}
    async with http.post("/v1/chat/completions", json=body) as answered:
        assert answered.status == 200
        await answered.read()


@asynccontextmanager
async def busy(settings: Settings = SETTINGS, requests: int = 12) -> AsyncIterator[Running]:
    """A proxy of two backends that has answered so many requests."""
    async with AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(scripted(*ANSWERS)) for _ in range(2)]
        server = await stack.enter_async_context(
            proxy_before([upstream.url for upstream in upstreams], settings=settings)
        )
        async with aiohttp.ClientSession(server.url) as http:
            for number in range(requests):
                await ask(http, number)
        yield server


async def report_of(server: Running) -> dict[str, Any]:
    async with aiohttp.ClientSession(server.admin_url) as http, http.get("/report") as answered:
        told: dict[str, Any] = await answered.json()
        return told


def whole(value: float) -> str:
    return f"{value:,.0f}"


@asynccontextmanager
async def watched(
    settings: Settings = SETTINGS, requests: int = 12, *, refused: str = "nothing", **context: Any
) -> AsyncIterator[tuple[Running, Page]]:
    """The page of a proxy that has answered so many requests; in the end the browser must have
    complained of nothing that does not hold the text `refused`."""
    complaints: list[str] = []
    async with (
        busy(settings, requests) as server,
        chromium() as browser,
        page_of(browser, complaints, **context) as page,
    ):
        await page.goto(server.admin_url)
        yield server, page
    # The library also brings a style sheet for maps, which the page's policy refuses.
    expected = ("Applying inline style", refused)
    assert [told for told in complaints if not any(text in told for text in expected)] == []


async def until_shown(page: Page, requests: int) -> None:
    await page.locator("[data-figure=requests]").filter(has_text=str(requests)).wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_shows_what_the_report_says(scheme: str) -> None:
    """And goes on with the traffic: tiles, tables and charts, on what live requests left."""
    async with watched(color_scheme=scheme) as (server, page):
        await until_shown(page, 12)
        async with aiohttp.ClientSession(server.url) as http:
            await ask(http, 12)
        await until_shown(page, 13)

        told = await report_of(server)
        total = told["total"]
        saved, prompt = total["prefill_tokens_saved"], total["prompt_tokens"]
        assert await texts(page, "[data-figure=saved]") == [whole(saved)]
        assert await texts(page, "[data-figure=saved_share]") == [f"{100 * saved / prompt:.1f} %"]
        rows = await texts(page, "[data-table=backends] tr")
        assert [row.split()[0] for row in rows[1:]] == ["b0", "b1"]
        for row in rows[1:]:
            backend = told["backends"].get(row.split()[0])  # none: all went to the other one
            assert f"\t{backend['requests'] if backend else 0}\t" in row
            assert backend is None or whole(backend["prefill_tokens_saved"]) in row
        times = await texts(page, "[data-table=times] tr td:first-child")
        assert set(times) == set(told["arms"]) == {"control", "treated"}
        kinds = await texts(page, "[data-table=divergence] tr td:first-child")
        assert kinds == [row["kind"] for row in told["divergence"]["rows"]][:10]
        for chart in ("ttft_ms", "itl_ms", "e2e_ms", "divergence", "compression"):
            assert await page.locator(f"[data-chart={chart}] .main-svg").count(), chart
        assert await page.locator("[data-chart=ttft_ms] .scatterlayer .trace").count() == 2


async def test_a_phone_scrolls_one_way_only() -> None:
    """Wide tables scroll in themselves."""
    async with watched(**PHONE) as (_, page):
        await until_shown(page, 12)
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width == PHONE["viewport"]["width"]


async def test_the_key_of_the_admin_port_is_asked_for() -> None:
    """Nothing is shown without it, and it is kept for this tab alone."""
    settings = replace(SETTINGS, server=replace(BASE.server, admin_key="sesame-of-the-admin"))
    async with watched(settings, 3, refused="401") as (_, page):
        for key in ("wrong", "sesame-of-the-admin"):
            await page.get_by_text("needs its key").wait_for()
            assert not await page.locator("#figures").is_visible()
            await page.fill("#key", key)
            await page.keyboard.press("Enter")
        await until_shown(page, 3)
        assert "sesame" not in await page.content()
        assert await page.evaluate("localStorage.length") == 0


async def test_what_is_open_tells_nothing_and_what_tells_is_not_open() -> None:
    """With a key: the page and its files come without it, figures do not; other pages get none."""
    settings = replace(BASE, server=replace(BASE.server, admin_key="sesame-of-the-admin"))
    elsewhere = {"Origin": "https://evil.example"}
    async with (
        proxy_before([], settings=settings) as server,
        aiohttp.ClientSession(server.admin_url) as http,
    ):
        for path in ("/", "/dashboard/charts.js", "/dashboard/style.css"):
            async with http.get(path) as answered:
                assert answered.status == 200
                policy = answered.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "script-src 'self';" in policy
            async with http.get(path, headers=elsewhere) as answered:
                assert answered.status == 403
        for path in ("/dashboard/figures", "/dashboard/ledger", "/dashboard/nothing"):
            async with http.get(path) as answered:
                assert answered.status == 401


async def test_the_ledger_is_read_beside_the_proxy(tmp_path: Path) -> None:
    """Verdicts and the diagnosis come when a process of its own has read it."""
    settings = replace(SETTINGS, ledger=Ledger(path=str(tmp_path / "kept.ledger")))
    async with watched(settings) as (_, page):
        await page.locator("#ledger").filter(has_text="last 24h").wait_for(timeout=60_000)
        [verdict] = await texts(page, "#verdicts p")
        assert verdict.startswith("treated against control: not enough data yet")
        assert "Are inputs long?" in " ".join(await texts(page, "#diagnosis dt"))


async def test_with_workers_the_parent_shows_it() -> None:
    """The figures of all of them, from the parent's admin port."""
    async with scripted(*ANSWERS) as upstream, workers([upstream.url]) as running:
        async with aiohttp.ClientSession(running.proxy.url) as http:
            for number in range(4):
                await ask(http, number)

        async def told() -> dict[str, Any]:
            answered = await running.admin("GET", "/dashboard/figures")
            figures: dict[str, Any] = answered.json()
            return figures

        async def counted() -> bool:
            return bool((await told())["report"]["total"]["requests"] == 4)

        await eventually(counted)
        [backend] = (await told())["backends"]
    assert backend["name"] == "b0"
    assert backend["capacity_tokens"] > 0


async def test_top_shows_the_same_in_a_terminal() -> None:
    """One frame, once: totals as in the report, and a row for each backend."""
    async with busy() as server:
        said = await asyncio.to_thread(top, "--admin", server.admin_url, "--once")
        total = (await report_of(server))["total"]
    text = " ".join(said.stdout.split())
    assert said.exit_code == 0, said.output
    assert "0 in flight, 0 waiting, 12 requests;" in text
    share = total["prefill_tokens_saved"] / total["prompt_tokens"]
    assert f"saved {whole(total['prefill_tokens_saved'])} prompt tokens ({share:.1%})" in text
    assert f"TTFT p50 {total['ttft_ms']['p50']:.2f}" in text
    assert "b0 up approximate" in text
    assert "b1 up approximate" in text


async def test_top_says_what_it_lacks() -> None:
    """A key, or a proxy."""
    settings = replace(BASE, server=replace(BASE.server, admin_key="sesame-of-the-admin"))
    async with proxy_before([], settings=settings) as server:
        said = await asyncio.to_thread(top, "--admin", server.admin_url, "--once")
    assert said.exit_code == 1
    assert "needs its key" in said.stderr
    said = await asyncio.to_thread(top, "--admin", "http://127.0.0.1:9", "--once")
    assert said.exit_code == 1
    assert "127.0.0.1:9" in said.stderr


def top(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["top", *arguments], env={"COLUMNS": "160"})
