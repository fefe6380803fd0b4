"""`prefold simulate`: the command and its options."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from prefold.proxy.output_file import OutputFile
from prefold.proxy.progress import Working, working
from prefold.proxy.simulate.plot import as_html
from prefold.proxy.simulate.policies import POLICIES
from prefold.proxy.simulate.report import as_json, as_table
from prefold.proxy.simulate.sweep import Sweep, SweepError, runs
from prefold.proxy.simulate.synthetic import WORKLOADS, SyntheticOptions, make_trace
from prefold.proxy.simulate.trace import MOONCAKE_BLOCK, Trace, TraceError, read_mooncake

DEFAULT_LOAD = 0.9


class Numbers(click.ParamType[tuple[float, ...]]):
    """Comma-separated numbers above zero."""

    name = "numbers"

    def __init__(self, kind: type[int] | type[float]) -> None:
        self._kind = kind

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        try:
            numbers = tuple(self._kind(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is no comma-separated list of numbers", param, ctx)
        if any(not number > 0 or number == float("inf") for number in numbers):
            self.fail("numbers must be finite and above zero", param, ctx)
        return numbers


class PolicyNames(click.ParamType[tuple[str, ...]]):
    """Comma-separated names; `all` is all of them."""

    name = "policies"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = tuple(POLICIES) if value == "all" else tuple(str(value).split(","))
        unknown = [name for name in names if name not in POLICIES]
        if unknown:
            self.fail(f"unknown: {', '.join(unknown)}; known: {', '.join(POLICIES)}", param, ctx)
        return names


@click.command()
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Requests in Mooncake's format: JSON lines, plain, .gz or .xz.",
)
@click.option("--synthetic", type=click.Choice(list(WORKLOADS)), help="A made-up workload instead.")
@click.option("--requests", type=click.IntRange(1), help="Only so many, the first ones.")
@click.option("--block-tokens", default=MOONCAKE_BLOCK, type=click.IntRange(1), show_default=True,
              help="Tokens for each of a trace's hash_ids.")  # fmt: skip
@click.option("--backends", default="8", type=Numbers(int), show_default=True,
              help="How many; a comma list makes a sweep.")  # fmt: skip
@click.option("--cache-tokens", default="1000000", type=Numbers(int), show_default=True,
              help="KV cache of each backend; a comma list makes a sweep.")  # fmt: skip
@click.option("--load", "loads", type=Numbers(float),
              help="Prompt tokens that arrive over those that the fleet could compute, uncached:"
              " sets the prefill rate. A comma list makes a sweep. Default 0.9.",
              )  # fmt: skip
@click.option("--prefill-rate", type=click.FloatRange(0, min_open=True),
              help="Of each backend, in tokens per second; in place of --load.")  # fmt: skip
@click.option("--speed", default=1.0, type=click.FloatRange(0, min_open=True), show_default=True,
              help="Arrivals so many times as fast as in the trace.")  # fmt: skip
@click.option("--policy", "policies", default="all", type=PolicyNames(), show_default=True,
              help=f"Comma list of {', '.join(POLICIES)}.")  # fmt: skip
@click.option("--slots", default=256, type=click.IntRange(1), show_default=True,
              help="Requests in prefill or decode at a time, of each backend.")  # fmt: skip
@click.option("--token-ms", default=30.0, type=click.FloatRange(0), show_default=True,
              help="Decode of one token.")  # fmt: skip
@click.option("--seed", default=1, show_default=True, help="Of workloads and random choices.")
@click.option("--json", "json_file", type=OutputFile(), metavar="FILE",
              help="Write the figures; - is stdout.")  # fmt: skip
@click.option("--plot", "plot_file", type=OutputFile(dash=False), metavar="FILE",
              help="Write an HTML page with hit rate and p90 TTFT against capacity.")  # fmt: skip
def simulate(
    trace_file: Path | None,
    synthetic: str | None,
    requests: int | None,
    block_tokens: int,
    backends: tuple[int, ...],
    cache_tokens: tuple[int, ...],
    loads: tuple[float, ...] | None,
    prefill_rate: float | None,
    speed: float,
    policies: tuple[str, ...],
    slots: int,
    token_ms: float,
    seed: int,
    json_file: str | None,
    plot_file: str | None,
) -> None:
    """What routing would bring on your own traffic, without a cluster.

    Sends the requests of a trace through routing policies, prefold's own code and those of others,
    to simulated backends on a virtual clock. docs/routing.md says what is simulated and what not.
    """
    if (trace_file is None) == (synthetic is None):
        raise click.UsageError("give either --trace or --synthetic")
    if loads is not None and prefill_rate is not None:
        raise click.UsageError("give either --load or --prefill-rate")
    sweep = Sweep(
        backends=backends,
        cache_tokens=cache_tokens,
        loads=loads or (DEFAULT_LOAD,),
        policies=policies,
        prefill_tokens_per_s=prefill_rate,
        slots=slots,
        token_s=token_ms / 1000,
        seed=seed,
    )
    try:
        with working("reading the trace"):
            trace = _trace(trace_file, synthetic, requests, block_tokens, seed)
        plot = None if plot_file is None else Path(plot_file)
        _simulate(_faster(trace, speed), sweep, json_file, plot)
    except (TraceError, SweepError) as error:
        raise click.ClickException(str(error)) from None


def _trace(
    file: Path | None, synthetic: str | None, requests: int | None, block_tokens: int, seed: int
) -> Trace:
    if file is not None:
        trace = read_mooncake(file, block_tokens)
        return replace(trace, requests=trace.requests[:requests])
    count = requests or SyntheticOptions().requests
    return make_trace(str(synthetic), SyntheticOptions(requests=count, seed=seed))


def _faster(trace: Trace, speed: float) -> Trace:
    moved = [replace(request, arrival_s=request.arrival_s / speed) for request in trace.requests]
    return replace(trace, requests=moved)


def _simulate(trace: Trace, sweep: Sweep, json_file: str | None, plot_file: Path | None) -> None:
    """The table goes to stderr where the figures go to stdout."""
    console = Console(stderr=json_file == "-")
    done = []
    with Working() as line:
        for run in runs(trace, sweep, lambda policy: line.say(f"simulating {policy}")):
            line.hide()
            console.print(as_table(trace, run))
            done.append(run)
    if json_file is not None:
        with click.open_file(json_file, "w") as file:
            file.write(json.dumps(as_json(trace, done), indent=2) + "\n")
    if plot_file is not None:
        plot_file.write_text(as_html(trace, done), encoding="utf-8")
