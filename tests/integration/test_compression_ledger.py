"""What the ledger says of compression: why a form was sent, what the gate predicted, and the
compressor's time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from prefold.measurement.ledger.reader import LedgerRow
from prefold.proxy.compression.switch import HEADER
from prefold.proxy.settings import Compression, Ledger, Routing
from tests.support.ledger import rows_of
from tests.support.prose import prose
from tests.support.proxy import BASE, proxy_before, until
from tests.support.requirements import skip_or_fail
from tests.support.upstream import DONE, delta, scripted, stream

PATH = "/v1/chat/completions"
STREAM = stream(delta("Yes"), delta("."), delta(finish="stop"), DONE)
RULES = Compression(mode="auto", min_tokens=100, min_chars=200, deadline_s=10.0)


@pytest.fixture(autouse=True)
def _wordfreq() -> None:
    try:
        import wordfreq  # noqa: F401
    except ImportError:
        skip_or_fail("needs wordfreq: pip install 'prefold[compression-lexical]'")


def body_of(*documents: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": text} for text in (*documents, "What did he count?")]
    return {"model": "m", "stream": True, "messages": [{"role": "user", "content": parts}]}


async def rows(path: Path, tokens_per_s: float, *asked: tuple[str, dict[str, Any]]) -> Any:
    """Of these requests, each with the value of the header, before a backend of that speed."""
    settings = replace(
        BASE,
        compression=RULES,
        routing=Routing(initial_prefill_tokens_per_s=tokens_per_s),
        ledger=Ledger(path=str(path)),
    )
    async with scripted(STREAM) as upstream, proxy_before([upstream.url], settings=settings) as one:
        compression = one.proxy.compression
        assert compression is not None
        await until(lambda: compression.pool.up > 0, tries=3000)
        async with aiohttp.ClientSession(one.url) as http:
            for mode, body in asked:
                async with http.post(PATH, json=body, headers={HEADER: mode}) as answer:
                    assert answer.status == 200
                    await answer.read()
    return rows_of(path)


async def test_each_request_tells_what_was_done_and_predicted(tmp_path: Path) -> None:
    """A text that is there already is neither waited for nor computed; where no gate was asked
    nothing was predicted."""
    found: list[LedgerRow] = await rows(
        tmp_path / "l",
        200.0,
        ("auto", body_of(prose(1, 40))),
        ("auto", body_of(prose(1, 40), "And briefly:")),
        ("on", body_of(prose(2, 40))),
        ("off", body_of(prose(3, 40))),
        ("shadow", body_of(prose(4, 40))),
    )
    pays, again, on, off, shadow = found
    assert [(row.compression, row.compression_reason) for row in found] == [
        ("compressed", "pays"),
        ("compressed", "pays"),
        ("compressed", "on"),
        (None, None),
        ("shadow", "shadow"),
    ]
    for row in (pays, on):
        assert row.compressor_waited is not None
        assert row.compressor_spent is not None
        assert row.compressed is not None
        assert row.encoded is not None
        assert 0 < row.compressor_waited <= row.compressed - row.encoded
        assert 0 < row.compressor_spent < row.compressed
    assert (again.compressor_waited, again.compressor_spent) == (None, None)
    assert shadow.compressor_waited is None
    for row in (pays, again):
        assert row.predicted is not None
        assert row.fallback is not None
        assert row.compressed is not None
        assert row.fallback - row.predicted > RULES.margin_s
        assert row.tokens
    for row in (on, off, shadow):
        assert (row.predicted, row.fallback) == (None, None)


async def test_what_does_not_pay_is_told_too(tmp_path: Path) -> None:
    """The form that the gate chose is the one to fall back on: nothing was to be gained; what is
    compressed ahead of need is not waited for."""
    [row] = await rows(tmp_path / "l", 1e7, ("auto", body_of(prose(1, 40))))
    assert (row.compression, row.compression_reason) == ("original", "costs")
    assert row.predicted == row.fallback is not None
    assert row.compressor_waited is None
