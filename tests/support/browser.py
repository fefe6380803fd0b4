"""A real Chromium, headless, driven by Playwright: Debian's package `chromium` is looked for."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.requirements import skip_or_fail

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Skips the test where there is none."""
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        skip_or_fail("needs Playwright: pip install playwright")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        skip_or_fail("needs a Chromium: apt-get install chromium")
    async with async_playwright() as playwright:
        # Its own sandbox needs rights that root in a container has not.
        browser = await playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def page_of(browser: Browser, complaints: list[str], **context: Any) -> AsyncIterator[Page]:
    """In a context of its own; what the browser complains of (errors, refusals of the policy) is
    added to `complaints`, and so is each request to another place than loopback."""
    async with await browser.new_context(**context) as opened:
        page = await opened.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda said: (
                complaints.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        page.on(
            "request",
            lambda asked: None if _is_here(asked.url) else complaints.append(asked.url),
        )
        yield page


def _is_here(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "data:", "file:"))


async def texts(page: Page, selector: str) -> Sequence[str]:
    """Of all elements, as they are shown."""
    return [text.strip() for text in await page.locator(selector).all_inner_texts()]
