"""`prefold report` on ledgers that the real writer wrote."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from prefold.measurement.record import RequestOutcome, RequestRecord
from prefold.proxy.cli import main
from prefold.proxy.report_html import page
from prefold.proxy.report_sections import Section
from tests.support.browser import chromium, page_of
from tests.support.ledger import WALL, ledger, record

BLOCK = 512
PROMPT = 4 * BLOCK


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms of 60 conversations, two turns each, before two backends: prefill of 10,000 tokens a
    second, of which one arm saves a half and spends 20 ms. Round robin would have sent every second
    turn to the other backend."""
    random = np.random.default_rng(1)
    made = tmp_path_factory.mktemp("report") / "l"
    book = ledger(made)
    for talk in range(120):
        for turn in range(2):
            book.add(_request(random, talk, turn))
    book.write()
    return made


def _request(random: np.random.Generator, talk: int, turn: int) -> RequestRecord:
    compressed = talk % 2 == 1
    begun = talk * 2.0 + turn
    prompt = PROMPT + int(random.integers(0, 2000))
    cached = turn * PROMPT
    spent = 0.02 * compressed
    prefill = (prompt - cached) / 10_000 * random.lognormal(0, 0.1) * (0.5 if compressed else 1.0)
    first = begun + 0.05 + spent + prefill
    return record(
        begun,
        arm="compressed" if compressed else "control",
        backend=f"b{talk % 4 // 2}",
        tenant="acme <script>",
        conversation=talk + 1,
        streamed=True,
        parsed=begun + 0.001,
        encoded=begun + 0.002,
        matched=begun + 0.003,
        compressed=begun + 0.003 + spent if compressed else None,
        chosen=begun + 0.004 + spent,
        sent=begun + 0.005 + spent,
        tokens=[first, first + 0.02],
        other_events=[(first + 0.02, "done")],
        end=first + 0.021,
        encoded_tokens=prompt,
        prompt_tokens=prompt,
        available_tokens=cached,
        expected_tokens=cached,
        reported_tokens=None if talk == 0 else cached,
        removed_tokens=100 if compressed else None,
        predicted_token=first - 0.001 if compressed else None,
        fallback_token=first + 0.1 if compressed else None,
        compression="compressed" if compressed else "",
        compression_reason="pays" if compressed else "",
        compressor_waited_s=0.01 if compressed else None,
        compressor_spent_s=0.03 if compressed else None,
        output_tokens=2,
        outcome=RequestOutcome.OK,
        prefix_tokens=prompt,
        blocks=[
            talk * 1000 + block + (100 * turn if block >= PROMPT // BLOCK else 0)
            for block in range(prompt // BLOCK)
        ],
    )


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["report", *arguments], env={"COLUMNS": "100"})


def figures(path: Path, *arguments: str) -> dict[str, Any]:
    said = asked("--ledger", str(path), "--json", *arguments)
    assert said.exit_code == 0, said.output
    made: dict[str, Any] = json.loads(said.stdout)
    return made


def test_a_report_answers_first(path: Path) -> None:
    """Tokens, their seconds, what other policies would have done, and a verdict; then tables."""
    said = asked("--ledger", str(path))
    text = " ".join(said.stdout.split())

    assert said.exit_code == 0, said.output
    assert f"Saved {119 * PROMPT:,} of" in text
    assert "2 answered requests reported nothing." in text
    assert "Simulated in whole blocks of 512 tokens, reused: 245,760 tokens as routed;" in text
    assert re.search(r"it would have been: round robin [\d,]+, least load", text)
    assert re.search(r"compressed against control: -\d+\.?\d* ms \[-[\d.]+, -[\d.]+\] TTFT;", text)
    assert "compressed less control (drawn by lot)" in text
    assert "Break-even of compressed" in text
    assert "What the gate of compression predicted" in text
    assert "all 120 12,000 2.4 s 1.2 s 3.6 s" in text
    assert "all pays 120 120 12.1 s 12.0 s +1.00 1.00" in text


def test_figures_are_those_of_the_rows(path: Path) -> None:
    """For programs: what is unknown is null or counted apart."""
    made = figures(path, "--goodput", "ttft:10000")
    total, [one] = made["total"], made["comparisons"]
    others = {told["policy"]: told["reused_tokens"] for told in made["counterfactual"]["shadows"]}
    by_name = {told["metric"]: told for told in one["differences"]}

    assert (made["by"], made["profile"], made["randomised"]) == ("arm", "prefold@1", True)
    assert total["savings"]["saved_tokens"] == 119 * PROMPT
    assert total["savings"]["unreported_requests"] == 2
    assert total["goodput"] == 1.0
    assert total["compression"]["removed_tokens"] == 120 * 100
    assert total["compression"]["seconds"] == pytest.approx(120 * 0.02)
    assert total["compression"]["gated"] == 120
    assert total["compression"]["predicted_gain_s"] == pytest.approx(120 * 0.101, rel=1e-3)
    assert total["compression"]["waited_s"] == pytest.approx(120 * 0.01)
    assert total["compression"]["spent_s"] == pytest.approx(120 * 0.03)
    assert total["compression"]["gate"]["pays"]["error_s"] == pytest.approx(0.001, rel=1e-2)
    assert others["as routed"] == 120 * PROMPT
    assert others["round robin"] < others["as routed"]
    assert set(made["rates"]) == {"b0", "b1"}
    assert by_name["ttft_ms"]["interval"]["high"] < 0
    assert by_name["tpot_ms"]["interval"]["low"] <= 0 <= by_name["tpot_ms"]["interval"]["high"]


def test_rows_are_those_since_then(path: Path) -> None:
    """By an ISO date; of no requests there is nothing to say."""
    half = figures(path, "--since", "2027-01-15T08:02:00+00:00")
    none = asked("--ledger", str(path), "--since", "2099-01-01")

    assert half["total"]["requests"] == 120
    assert none.exit_code == 0
    assert none.stdout.strip() == "no requests"


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("backend", {"b0", "b1"}),
        ("label:gpu", {"(none)", "H200"}),
        ("tenant", {"acme <script>"}),
        ("model", {"m"}),
    ],
)
def test_groups_are_those_asked_for(path: Path, by: str, names: set[str]) -> None:
    """Only arms are drawn by lot."""
    made = figures(path, "--by", by, "--profile", "vllm")

    assert {group["name"] for group in made["groups"]} == names
    assert not made["randomised"]
    assert made["profile"].startswith("vllm@")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--by", "colour"), "is none of arm, model"),
        (("--by", "label:"), "is none of arm, model"),
        (("--control", "x"), "no group 'x' to compare with; there are: compressed, control"),
        (("--goodput", "ttft"), "is no limit such as ttft:500"),
    ],
)
def test_mistakes_are_named(path: Path, arguments: tuple[str, ...], said: str) -> None:
    """With what there is instead."""
    told = asked("--ledger", str(path), *arguments)

    assert told.exit_code != 0
    assert said in " ".join(told.stderr.split())


def test_no_ledger_is_named_too(tmp_path: Path) -> None:
    """Neither given nor in the settings, or not there."""
    assert "no ledger: give --ledger FILE" in asked().stderr
    assert "no such file" in asked("--ledger", str(tmp_path / "none")).stderr


class Page(HTMLParser):
    """What a page loads, and whether its tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.loads += [str(value) for name, value in attrs if name in ("src", "href")]
        assert tag not in ("link", "img", "iframe")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells.append(data)


def test_the_page_loads_nothing_and_says_the_same(path: Path, tmp_path: Path) -> None:
    """Names are text there, whatever is in them; every metric of the profile is shown."""
    file = tmp_path / "r.html"
    said = asked("--ledger", str(path), "--by", "tenant", "--html", str(file))
    text = file.read_text(encoding="utf-8")
    made = Page()
    made.feed(text)

    assert said.exit_code == 0, said.output
    assert said.stdout == ""
    assert made.open == []
    assert made.loads == []
    assert "@import" not in text
    assert "url(" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert "acme <script>" in made.cells
    assert {"ttft_ms", "gap_max_ms", "e2e_per_token_ms"} <= set(made.cells)
    assert f"{119 * PROMPT:,}" in made.cells


async def test_the_charts_of_the_page_are_drawn_from_the_one_file(
    path: Path, tmp_path: Path
) -> None:
    """By a real browser that may load nothing: what was saved, the break-even curve, differences
    with bounds, distributions of both arms, and what other policies would have reused."""
    file = tmp_path / "r.html"
    asked("--ledger", str(path), "--html", str(file))
    complaints: list[str] = []
    async with chromium() as browser, page_of(browser, complaints) as page:
        await page.goto(file.as_uri())
        for name in ("saved", "curve:0", "differences:0", "times:ttft_ms", "policies"):
            place = page.locator(f'[data-chart="{name}"]')
            assert await place.locator(".main-svg").count(), name
        arms = page.locator('[data-chart="times:ttft_ms"] .scatterlayer .trace')
        assert await arms.count() == 3  # and all requests
    assert complaints == []


def test_a_page_that_cannot_be_written_is_an_error(path: Path, tmp_path: Path) -> None:
    """Named, without a trace."""
    said = asked("--ledger", str(path), "--html", str(tmp_path / "no" / "r.html"))

    assert said.exit_code == 1
    assert "No such file or directory" in said.stderr


def test_text_of_a_page_is_escaped() -> None:
    """In sentences, cells and notes alike."""
    section = Section(title="<t>", columns=("<c>",), rows=(("<r>",),), notes=("<n>",))
    made = page("<p>", ["<s>"], [section])

    for name in "tcrnps":
        assert f"&lt;{name}&gt;" in made


def test_arms_that_took_turns_are_told_by_rounds(tmp_path: Path) -> None:
    """How many slices there are, what came in wash-outs, whether caches had settled, and a verdict
    of what is compared by time; requests of an experiment by conversation are told apart."""
    book = ledger(tmp_path / "l")
    random = np.random.default_rng(1)
    for number in range(48):
        arm = ("turns", "prefix")[(number + number // 2) % 2]
        for after in (10.0, 150.0, 300.0, 450.0):  # the first one in the wash-out
            begun = number * 600.0 + after
            first = begun + 0.1 + 0.05 * (arm == "turns") + random.uniform(0, 0.01)
            book.add(
                record(
                    begun,
                    arm=arm if after > 60 else None,
                    slice_start=WALL + number * 600.0,
                    round_start=WALL + number // 2 * 1200.0,
                    streamed=True,
                    tokens=[first, first + 0.02],
                    end=first + 0.021,
                    prompt_tokens=PROMPT + BLOCK,
                    reported_tokens=PROMPT if arm == "prefix" else BLOCK,
                    outcome=RequestOutcome.OK,
                )
            )
    book.add(record(48 * 600.0, arm="turns", outcome=RequestOutcome.OK))
    book.write()
    said = " ".join(asked("--ledger", str(tmp_path / "l")).stdout.split())
    made = figures(tmp_path / "l", "--control", "turns")

    assert "time slices: prefix 24, turns 24; rounds with one of each: 24; 48 requests came" in said
    assert "1 requests are of arms that were drawn by conversation" in said
    assert "less that in the earlier half: prefix" in said
    assert "drawn by lot" in said
    assert "by resampling rounds of slices" in said
    assert "no known conversation" not in said
    assert "had not settled" not in said
    assert made["slicing"]["washout_requests"] == 48
    [verdict] = [one["verdict"] for one in made["comparisons"]]
    assert re.match(r"prefix against turns: -\d\d\.\d ms \[-[\d.]+, -[\d.]+\] TTFT;", verdict)
    assert re.search(r"\+\d\d\.\d points \[.*\] cached share of prompt tokens", verdict)
