"""`prefold simulate`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from prefold.proxy.cli import main
from prefold.proxy.simulate.policies import POLICIES

MOONCAKE = (
    Path(__file__).parents[3] / "shared" / "traces" / "mooncake_fast25_conversation_trace.jsonl.xz"
)


def simulated(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["simulate", *args])
    return result.exit_code, result.output


def figures(folder: Path, *args: str) -> dict[str, Any]:
    file = folder / "out.json"
    code, output = simulated(*args, "--json", str(file))
    assert code == 0, output
    loaded: dict[str, Any] = json.loads(file.read_text())
    return loaded


SMALL = ("--synthetic", "agents", "--requests", "60", "--cache-tokens", "50000", "--backends", "2")


def test_one_run_is_written_as_one_object(tmp_path: Path) -> None:
    """Under `policies.<name>`, with rates as shares and times in milliseconds."""
    written = figures(tmp_path, *SMALL, "--policy", "all", "--load", "0.8")

    assert list(written["policies"]) == list(POLICIES)
    assert (written["backends"], written["cache_tokens"]) == (2, 50000)
    assert (written["requests"], written["load"]) == (60, pytest.approx(0.8))
    for policy in written["policies"].values():
        assert 0 <= policy["hit_rate"] <= policy["bound_infinite"] <= 1
        assert 0 < policy["bound_pooled"] <= policy["bound_infinite"]
        assert policy["share_of_pooled"] == policy["hit_rate"] / policy["bound_pooled"]
        assert 1 <= policy["imbalance"] <= 2
        ttft = policy["ttft_ms"]
        assert 0 < ttft["p50"] <= ttft["p90"] <= ttft["p99"]
        assert policy["evicted_tokens"] >= 0


def test_a_sweep_is_a_list_of_runs(tmp_path: Path) -> None:
    """Every number of backends with every size of cache and every load, in that order."""
    written = figures(
        tmp_path, "--synthetic", "agents", "--requests", "30", "--policy", "round_robin,prefold",
        "--backends", "1,2", "--cache-tokens", "20000,40000", "--load", "0.5,1",
    )  # fmt: skip
    runs = [(run["backends"], run["cache_tokens"], run["load"]) for run in written["runs"]]

    assert runs == [
        (backends, tokens, pytest.approx(load))
        for backends in (1, 2)
        for tokens in (20000, 40000)
        for load in (0.5, 1.0)
    ]
    assert all(list(run["policies"]) == ["round_robin", "prefold"] for run in written["runs"])


def test_a_given_rate_makes_the_load(tmp_path: Path) -> None:
    """Twice as fast arrivals are twice the load on the same engines, with the same prompts."""
    options = (*SMALL, "--policy", "round_robin", "--prefill-rate", "10000")
    once = figures(tmp_path, *options)
    twice = figures(tmp_path, *options, "--speed", "2")

    assert once["prefill_tokens_per_s"] == twice["prefill_tokens_per_s"] == 10000
    assert twice["load"] == pytest.approx(2 * once["load"])
    assert twice["prompt_tokens"] == once["prompt_tokens"]


def test_the_same_seed_gives_the_same_figures(tmp_path: Path) -> None:
    """Nothing depends on anything but the options."""
    runs = [figures(tmp_path, *SMALL, "--seed", "7") for _ in range(2)]
    for run in runs:
        for policy in run["policies"].values():
            del policy["cpu_s"]

    assert runs[0] == runs[1]


def test_the_table_and_json_may_share_a_terminal() -> None:
    """With `--json -`, standard output holds the JSON alone."""
    result = CliRunner().invoke(main, ["simulate", *SMALL, "--policy", "prefold", "--json", "-"])

    assert json.loads(result.stdout)["policies"]["prefold"]["hit_rate"] > 0
    assert "uneven" in result.stderr


def test_the_table_names_policies_and_bounds() -> None:
    """One line a policy, and what they are to be measured by."""
    code, output = simulated(*SMALL, "--policy", "round_robin,prefold")

    assert code == 0
    assert re.search(r"round_robin +[\d.]+% +[\d.]+% +[\d.]+ ", output)
    assert "one LRU cache of the fleet's size" in " ".join(output.split())


def test_the_plot_loads_nothing(tmp_path: Path) -> None:
    """One page: two charts for each load, a line for each policy and for the bound, no script."""
    page = tmp_path / "plot.html"
    code, output = simulated(
        "--synthetic", "agents", "--requests", "30", "--policy", "round_robin,prefold",
        "--cache-tokens", "20000,40000,80000", "--load", "0.5,0.9", "--plot", str(page),
    )  # fmt: skip
    html = page.read_text(encoding="utf-8")

    assert code == 0, output
    assert html.count("<svg") == html.count("</svg>") == 4
    assert html.count("<polyline") == 2 * (2 + 2 + 1)
    assert html.count("<circle") == 4 * 2 * 3
    assert "round_robin" in html
    assert not re.search(r"<script|<link|src=|url\(|https?://", html)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ((), "give either --trace or --synthetic"),
        (("--synthetic", "agents", "--trace", __file__), "give either --trace or --synthetic"),
        (("--synthetic", "agents", "--load", "1", "--prefill-rate", "1"), "--load or"),
        (("--synthetic", "agents", "--policy", "prefold,best"), "unknown: best; known: random"),
        (("--synthetic", "agents", "--backends", "8,none"), "no comma-separated list"),
        (("--synthetic", "agents", "--backends", "0"), "above zero"),
        (("--synthetic", "agents", "--load", "inf"), "finite"),
        (("--synthetic", "agents", "--load", "nan"), "above zero"),
        (("--synthetic", "agents", "--requests", "9", "--cache-tokens", "100"), "no block of 256"),
        (("--synthetic", "agents", "--requests", "1"), "give a prefill rate"),
        (("--trace", __file__), "test_simulate_command.py, line 1: "),
    ],
)
def test_what_makes_no_sense_is_refused(args: tuple[str, ...], problem: str) -> None:
    """With one sentence, not a traceback."""
    code, output = simulated(*args)

    assert code in {1, 2}
    assert problem in " ".join(output.split())
    assert "Traceback" not in output


def test_requests_that_come_at_once_need_a_rate(tmp_path: Path) -> None:
    """With a rate, one request is a run: it computes its prompt, and its TTFT follows."""
    run = figures(
        tmp_path, "--synthetic", "agents", "--requests", "1", "--policy", "prefold",
        "--prefill-rate", "1000",
    )  # fmt: skip
    policy = run["policies"]["prefold"]

    assert policy["ttft_ms"]["p50"] == pytest.approx(run["prompt_tokens"])
    assert policy["share_of_pooled"] is None


@pytest.mark.skipif(not MOONCAKE.exists(), reason="the Mooncake trace is not here")
def test_round_robin_on_the_mooncake_trace(tmp_path: Path) -> None:
    """A figure that another simulation of the same model gave: 8.1 %, p90 26.5 s, imbalance
    1.05."""
    run = figures(tmp_path, "--trace", str(MOONCAKE), "--policy", "round_robin")
    policy = run["policies"]["round_robin"]

    assert run["requests"] == 12031
    assert policy["bound_infinite"] == pytest.approx(0.3734, abs=0.0005)
    assert policy["hit_rate"] == pytest.approx(0.081, abs=0.001)
    assert policy["imbalance"] == pytest.approx(1.05, abs=0.01)
    assert policy["ttft_ms"]["p90"] == pytest.approx(26_500, rel=0.01)
