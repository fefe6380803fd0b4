"""One stream, seven readings: the exact value that each tool's rules give for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefold.measurement.definitions.profiles import PROFILES
from prefold.measurement.definitions.summary import Spread, summarise
from prefold.measurement.definitions.timeline import Chunk, Kind, Timeline, Usage
from prefold.proxy.metrics_command import metrics


def chunk(ms: float, kind: Kind, tokens: int | None = None, text: str | None = None) -> Chunk:
    return Chunk(ms / 1000, kind, tokens, text)


# A role chunk at 5 ms, ten chunks of two tokens from 60 to 240 ms, then finish, usage and [DONE].
GOLDEN = Timeline(
    sent=0.0,
    chunks=(
        chunk(5, Kind.ROLE, 0, ""),
        *(chunk(60 + 20 * number, Kind.CONTENT, 2) for number in range(10)),
        chunk(245, Kind.FINISH, 0, ""),
        chunk(255, Kind.USAGE),
        chunk(280, Kind.DONE),
    ),
    usage=Usage(prompt_tokens=1000, completion_tokens=20, cached_tokens=250),
)


def figures(profile: str, *timelines: Timeline) -> dict[str, Spread]:
    return summarise(PROFILES[profile], timelines).metrics


def mean(profile: str, metric: str, *timelines: Timeline) -> float | None:
    return figures(profile, *timelines)[metric].mean


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("prefold", {"ttft_ms": 60, "e2e_ms": 240, "tpot_ms": 180 / 19, "e2e_per_token_ms": 12}),
        ("aiperf", {"ttft_ms": 60, "e2e_ms": 240, "itl_ms": 180 / 19, "inter_chunk_ms": 20}),
        ("genai-perf", {"ttft_ms": 60, "e2e_ms": 240, "itl_ms": 9.473684}),
        ("llmperf", {"ttft_ms": 60, "e2e_ms": 280, "itl_ms": 240 / 12}),
        ("vllm", {"ttft_ms": 5, "e2e_ms": 245, "tpot_ms": 240 / 19, "itl_ms": 240 / 11}),
        ("sglang", {"ttft_ms": 60, "e2e_ms": 280, "tpot_ms": 220 / 19, "itl_ms": 20}),
        ("guidellm", {"ttft_ms": 60, "e2e_ms": 280, "tpot_ms": 240 / 20, "itl_ms": 180 / 19}),
        ("inference-perf", {"ttft_ms": 60, "e2e_ms": 280, "tpot_ms": 180 / 19, "ntpot_ms": 14}),
    ],
)
def test_each_profile_reads_the_stream_as_its_tool_does(
    profile: str, expected: dict[str, float]
) -> None:
    """The same bytes are 5 or 60 ms of TTFT and 9.5 to 20 ms a token: it matters whose it is."""
    read = figures(profile, GOLDEN)

    assert {name: read[name].mean for name in expected} == pytest.approx(expected, rel=1e-12)


def test_every_profile_has_a_golden_value() -> None:
    """A profile that is added without an exact case is a claim."""
    assert set(PROFILES) == {
        "prefold", "aiperf", "genai-perf", "llmperf", "vllm", "sglang", "guidellm",
        "inference-perf",
    }  # fmt: skip


def test_tokens_of_one_chunk_are_zero_apart_for_inference_perf() -> None:
    """With two tokens a chunk its median gap is 0, which tells of the chunks and not of decode."""
    itl = figures("inference-perf", GOLDEN)["itl_ms"]

    assert (itl.count, itl.percentiles["p50"]) == (19, 0)
    assert itl.mean == pytest.approx(180 / 19)


def test_time_per_token_with_and_without_the_first() -> None:
    """5 tokens in 500 ms, the first after 100: 100 ms a token either way."""
    timeline = Timeline(
        sent=0.0, chunks=tuple(chunk(100 * number, Kind.CONTENT, 1) for number in range(1, 6))
    )

    for profile, metric in (
        ("prefold", "tpot_ms"), ("prefold", "e2e_per_token_ms"), ("aiperf", "itl_ms"),
        ("guidellm", "tpot_ms"), ("inference-perf", "ntpot_ms"),
    ):  # fmt: skip
        assert mean(profile, metric, timeline) == pytest.approx(100), (profile, metric)


def test_a_stutter_shows_in_the_largest_gap_and_hides_in_the_mean() -> None:
    """99 gaps of 50 ms and one of 500: the mean is 54.5, and only max and p99.9 tell."""
    times = [100.0]
    for number in range(100):
        times.append(times[-1] + (500 if number == 40 else 50))
    timeline = Timeline(sent=0.0, chunks=tuple(chunk(ms, Kind.CONTENT, 1) for ms in times))
    read = figures("prefold", timeline)
    gap = read["gap_ms"]

    assert gap.mean == pytest.approx(54.5)
    assert read["tpot_ms"].mean == pytest.approx(54.5)
    assert gap.max == pytest.approx(500)
    assert read["gap_max_ms"].mean == pytest.approx(500)
    assert gap.percentiles["p95"] == pytest.approx(50)
    assert gap.percentiles["p99"] == pytest.approx(54.5)
    assert gap.percentiles["p99.9"] == pytest.approx(50 + 450 * 0.901)


def test_reasoning_counts_where_the_tool_counts_it() -> None:
    """A thinking model's first token is reasoning: two tools do not see it at all."""
    timeline = Timeline(
        sent=0.0,
        chunks=(
            chunk(50, Kind.REASONING, 1),
            chunk(90, Kind.CONTENT, 1),
            chunk(130, Kind.TOOL, 1),
        ),
    )

    first = {name: mean(name, "ttft_ms", timeline) for name in PROFILES if name != "inference-perf"}
    assert first == pytest.approx(
        {
            "prefold": 50, "aiperf": 50, "genai-perf": 90, "llmperf": 90, "vllm": 50, "sglang": 50,
            "guidellm": 50,
        }
    )  # fmt: skip
    assert mean("aiperf", "ttfo_ms", timeline) == pytest.approx(90)
    assert mean("sglang", "itl_ms", timeline) == pytest.approx(40)  # the tool call is no token


def test_an_empty_answer_has_no_time_to_first_token() -> None:
    """Not defined is not zero, except where any chunk counts."""
    timeline = Timeline(
        sent=0.0, chunks=(chunk(5, Kind.ROLE, 0, ""), chunk(9, Kind.FINISH), chunk(10, Kind.DONE))
    )

    undefined = {name for name in PROFILES if not figures(name, timeline)["ttft_ms"].count}
    assert undefined == set(PROFILES) - {"vllm"}


def test_the_two_windows_and_the_rates_over_each() -> None:
    """Two requests, half a second apart, over 740 ms to the last content or 780 ms in all."""
    later = Timeline(
        sent=0.5,
        chunks=tuple(Chunk(c.t + 0.5, c.kind, c.tokens, c.text) for c in GOLDEN.chunks),
        usage=GOLDEN.usage,
    )
    failed = Timeline(sent=0.7, error="connection reset")
    summary = summarise(PROFILES["aiperf"], [GOLDEN, later, failed])

    windows = summary.windows
    assert (summary.requests, summary.failed) == (2, 1)
    assert windows["to_last_content"].seconds == pytest.approx(0.74)
    assert windows["whole_run"].seconds == pytest.approx(0.78)
    assert windows["to_last_content"].output_tps == pytest.approx(40 / 0.74)
    assert windows["whole_run"].input_tps == pytest.approx(2000 / 0.78)
    assert windows["whole_run"].requests_per_s == pytest.approx(2 / 0.78)
    assert summary.cache_hit_rate == pytest.approx(0.25)


def test_a_hit_rate_needs_the_report_of_every_request() -> None:
    """One engine that does not say makes the sum unknown, not smaller."""
    silent = Timeline(sent=0.0, chunks=GOLDEN.chunks, usage=Usage(1000, 20))

    assert summarise(PROFILES["aiperf"], [GOLDEN, silent]).cache_hit_rate is None


def test_prefill_rate_leaves_out_what_was_cached() -> None:
    """750 uncached tokens in 60 ms; aiperf's figure has the cached ones in it."""
    assert mean("prefold", "prefill_tps", GOLDEN) == pytest.approx(750 / 0.06)
    assert mean("aiperf", "prefill_tps_per_user", GOLDEN) == pytest.approx(1000 / 0.06)


def test_guidellm_weighs_a_request_by_its_tokens() -> None:
    """An answer of 20 tokens counts 19 times in its mean of gaps, one of 2 tokens once."""
    short = Timeline(sent=0.0, chunks=(chunk(10, Kind.CONTENT, 1), chunk(110, Kind.CONTENT, 1)))

    assert mean("guidellm", "itl_ms", GOLDEN, short) == pytest.approx((180 + 100) / 20)


def test_the_command_prints_every_profile(tmp_path: Path) -> None:
    """As JSON, each figure with its tool, version and definition."""
    file = tmp_path / "timelines.jsonl"
    file.write_text(
        json.dumps(
            {
                "sent": 0.0,
                "chunks": [
                    {"t": 0.1, "kind": "content", "tokens": 1, "text": "a"},
                    {"t": 0.2, "kind": "content", "tokens": 1, "text": "b"},
                ],
                "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}},
            }
        )
        + "\n\n"
    )
    ran = CliRunner().invoke(metrics, [str(file), "--profile", "all", "--json"])

    told = json.loads(ran.output)["profiles"]
    assert list(told) == list(PROFILES)
    assert told["vllm"]["profile"] == "vllm@009e6d4a"
    assert told["aiperf"]["metrics"]["ttft_ms"]["p99.9"] == pytest.approx(100)
    assert told["aiperf"]["cache_hit_rate"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "t.jsonl:2: "),
        ('{"chunks": []}', "`sent`"),
        ('{"sent": 1, "chunks": [{"t": 0.5, "kind": "content"}]}', "chunks[0].t is before"),
        ('{"sent": 0, "chunks": [{"t": 0.5, "kind": "word"}]}', "'word'"),
    ],
)
def test_a_line_that_is_no_timeline_is_named(tmp_path: Path, line: str, reason: str) -> None:
    """File, line and reason; nothing is skipped in silence."""
    file = tmp_path / "t.jsonl"
    file.write_text('{"sent": 0}\n' + line + "\n")
    ran = CliRunner().invoke(metrics, [str(file)])

    assert ran.exit_code == 1
    assert "t.jsonl:2" in ran.output
    assert reason in ran.output


def test_an_unknown_profile_is_told_with_those_there_are(tmp_path: Path) -> None:
    """The message is what one needs to type next."""
    file = tmp_path / "t.jsonl"
    file.write_text('{"sent": 0}\n')
    ran = CliRunner().invoke(metrics, [str(file), "--profile", "mlperf"])

    assert ran.exit_code == 2
    assert "inference-perf" in ran.output
