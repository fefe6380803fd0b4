"""The benchmark itself, in its smallest form: that it counts right, and never that it is fast."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.benchmark.routing.__main__ import compare
from tests.benchmark.routing.bounds import Bounds, bounds_of
from tests.benchmark.routing.fleets import Counters
from tests.benchmark.routing.load import Sample, usage_of
from tests.benchmark.routing.plan import LLAMA_CPP, MOCKER, Cell, Traces, tiny
from tests.benchmark.routing.rows import Outcome, mode_of, row_of
from tests.benchmark.routing.show import as_markdown, complaints
from tests.benchmark.routing.traces import agents, mooncake
from tests.benchmark.routing.workload import Prompt, arrivals, interleaved, prose, synthetic
from tests.support import mocker
from tests.support.mocker import MockerUnavailable
from tests.support.requirements import skip_or_fail

pytestmark = pytest.mark.timeout(300)  # ten processes are started, on machines that may be busy

CELL = Cell(setup=MOCKER, engines=2, capacity=1024, workload="synthetic", requests=2, rate=1.0)


@pytest.fixture(scope="module")
def report(model_path: Path) -> dict[str, Any]:
    """Of the tiny plan: two arms before two of the mocker's engines."""
    try:
        mocker.install()
    except MockerUnavailable as error:
        skip_or_fail(f"the mocker is not here: {error}")
    console = Console(file=io.StringIO(), width=200)
    return compare(["prefold-events", "round-robin"], tiny(), Traces(), console)


def test_arms_are_measured_on_the_same_prompts(report: dict[str, Any]) -> None:
    """Each arm has an answer for every prompt, with tokens that engines and clients agree on, and
    prefold's decisions are all in the mode that was asked for."""
    ours, other = report["rows"]
    assert (ours["arm"], other["arm"]) == ("prefold-events", "round-robin")
    assert ours["prompt_tokens"] == other["prompt_tokens"] > 10_000
    for row in (ours, other):
        assert row["requests"] == 24
        assert row["errors"] == {}
        assert row["counters_agree"] is True
        assert row["prompt_tokens"] == row["saved_prefill_tokens"] + sum(row["computed_by_engine"])
        assert 0 < row["ttft_ms"]["p50"] <= row["ttft_ms"]["p90"] <= row["e2e_ms"]["p99"]
    assert ours["modes"] == {"events": 24}
    assert other["modes"] == {"feedback": 24}
    assert complaints(report) == []


def test_routing_by_prefix_saves_more_than_taking_turns(report: dict[str, Any]) -> None:
    """Of conversations that fit the fleet's caches once, but no engine's. And no more than one
    cache could, which has not met the warm-up: a block or two of the template that all share."""
    ours, other = report["rows"]
    assert ours["saved_prefill_tokens"] > other["saved_prefill_tokens"]
    assert ours["hit_rate"] <= ours["bound_infinite"] + 2 * 16 / ours["prompt_tokens"]


def test_the_tables_say_what_was_run(report: dict[str, Any]) -> None:
    """A workload that stands in for a trace has its own name, and a row has all figures."""
    text = as_markdown(report)
    assert "2 x mocker, 8,192 tokens each, synthetic" in text
    row = next(line for line in text.splitlines() if line.startswith("| prefold-events"))
    assert row.count("|") == 14
    assert " - " not in row
    assert json.loads(json.dumps(report))["rows"] == report["rows"]


def test_workloads_come_again_from_their_seed() -> None:
    """Equal seeds give equal prompts and times, others do not; every prompt but a conversation's
    first extends an earlier one."""
    made = [_texts(seed) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
    assert arrivals(9, 5.0, 1) == arrivals(9, 5.0, 1) != arrivals(9, 5.0, 2)
    texts = made[0]
    extending = [
        text for n, text in enumerate(texts) if any(text.startswith(old) for old in texts[:n])
    ]
    assert len(texts) == 30
    assert len(extending) >= 20


def _texts(seed: int) -> list[str]:
    work = synthetic(seed=seed, requests=30, at_work=3, turns=6, system_words=20, turn_words=10)
    return [prompt.text for prompt in work.prompts]


def test_sessions_keep_their_order_and_end() -> None:
    """No more than `at_work` sessions are open at any time, and all prompts come once."""
    sessions = [[f"{session} {turn}" for turn in range(4)] for session in range(5)]
    taken = interleaved(sessions, 2, 100, seed=3)
    assert sorted(taken) == sorted(text for session in sessions for text in session)
    for session in sessions:
        assert [text for text in taken if text in session] == session
    for at in range(len(taken)):
        begun = {text.split()[0] for text in taken[:at]}
        ended = {text.split()[0] for text in taken[:at] if text.endswith("3")}
        assert len(begun - ended) <= 2


def test_mooncake_prompts_share_what_their_blocks_say(tmp_path: Path) -> None:
    """Equal ids are equal words, a block of 512 each; long prompts are left out, and conversations
    are taken whole."""
    lines = [(1100, [0, 1, 2]), (1536, [0, 1, 3]), (1024, [0, 4]), (9000, [0, *range(50, 67)])]
    file = tmp_path / "trace.jsonl"
    file.write_text(
        "\n".join(
            json.dumps({"timestamp": n, "input_length": size, "output_length": 99, "hash_ids": ids})
            for n, (size, ids) in enumerate(lines)
        )
    )
    work = mooncake(file, requests=9, most_tokens=2000, seed=1)
    words = [prompt.text.split() for prompt in work.prompts]
    assert [len(each) for each in words] == [1100, 1536, 1024]
    assert words[0][:1024] == words[1][:1024]
    assert words[0][:512] == words[2][:512]
    assert words[0][512:] != words[2][512:1100]
    assert words[0][1024:] != words[1][1024:1100]


def test_agent_prompts_are_read_from_a_folder_and_from_a_tar_file(tmp_path: Path) -> None:
    """The same from both; empty and longer ones are left out, and so are other sets."""
    for name, inputs in {"a/1": ["one", "", "one two"], "a/2": ["x" * 50], "b/3": ["no"]}.items():
        file = tmp_path / "trace" / f"{name}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps({"input": text}) + "\n" for text in inputs))
    packed = tmp_path / "trace.tar.xz"
    with tarfile.open(packed, "w:xz") as archive:
        for name in ("a", "b"):
            archive.add(tmp_path / "trace" / name, arcname=name)
    for path in (tmp_path / "trace", packed):
        work = agents(path, sets=("a",), most_chars=20, at_work=2, requests=9, seed=1)
        assert [prompt.text for prompt in work.prompts] == ["one", "one two"]


def test_bounds_are_those_of_one_cache(model_path: Path) -> None:
    """A prompt that comes again is reused but for its last block, if it is still held."""
    first, second = (Prompt(prose(seed, 400), 1) for seed in "ab")
    again = bounds_of([first, second, first], model_path, pooled_tokens=480)
    assert again.infinite == pytest.approx(1 / 3, abs=0.03)
    assert again.pooled is not None
    assert again.pooled < 0.1  # the template, which all share


def test_a_row_counts_what_failed_and_what_is_unknown() -> None:
    """Failed requests are in no figure but their count, and a report that is missing makes the
    savings unknown, never zero."""
    good = Sample(sent_at=0.0, ended_at=2.0, late_s=0.0, ttft_s=1.0, prompt_tokens=100)
    failed = Sample(error="status 503", sent_at=1.0, ended_at=1.5, late_s=0.2)
    row = row_of(CELL, "x", [_outcome(good, failed)])
    assert row["errors"] == {"status 503": 1}
    assert row["saved_prefill_tokens"] is None
    assert row["hit_rate"] is None
    assert row["ttft_ms"]["p99"] == 1000.0
    assert row["achieved_per_s"] == 0.5
    assert row["late_dispatches"] == 1
    assert row["imbalance"] == 1.5
    found = complaints({"rows": [{"cell": "c", **row}], "not_run": {}})
    assert len(found) == 2


def _outcome(*samples: Sample) -> Outcome:
    counted = [Counters(computed=75, cached=0), Counters(computed=25, cached=0)]
    return Outcome(samples=samples, arrivals=[0.0, 1.0], counted=counted, bounds=Bounds(None, 0.5))


def test_usage_is_taken_from_whole_streams_only() -> None:
    """A stream that was cut has none, whatever it said before."""
    whole = b'data: {"usage":null}\n\ndata: {"usage":{"prompt_tokens":7}}\n\ndata: [DONE]\n\n'
    assert usage_of(whole) == {"prompt_tokens": 7}
    assert usage_of(whole.replace(b"\n", b"\r\n")) == {"prompt_tokens": 7}
    assert usage_of(whole.removesuffix(b"data: [DONE]\n\n")) is None
    assert usage_of(b"") is None
    assert mode_of("backend=a; reason=load; mode=events; attempts=1") == "events"
    assert mode_of("") == ""


def test_titles_have_the_right_unit() -> None:
    """Slots of llama.cpp, tokens of a KV cache."""
    assert CELL.title("x") == "2 x mocker, 1,024 tokens each, x"
    slots = Cell(setup=LLAMA_CPP, engines=2, capacity=1, workload="agents", requests=1, rate=1.0)
    assert slots.title("x") == "2 x llama.cpp, 1 slot each, x"
