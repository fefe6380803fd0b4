"""`prefold replay`: a trace, or real requests, against one or more servers."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import aiohttp
import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from prefold.measurement.definitions.profiles import PROFILES
from prefold.proxy.failures import no_answer
from prefold.proxy.output_file import OutputFile
from prefold.proxy.progress import working
from prefold.proxy.replay import output
from prefold.proxy.replay.drive import closed_loop, open_loop
from prefold.proxy.replay.plan import Plan
from prefold.proxy.replay.prompts import Form, Planned, ReplayError
from prefold.proxy.replay.send import Sent, Target, send
from prefold.proxy.simulate.synthetic import WORKLOADS, SyntheticOptions, make_trace
from prefold.proxy.simulate.trace import MOONCAKE_BLOCK, Trace, TraceError, read_mooncake

GOODPUT = ("ttft", "tpot", "e2e")


class Named(click.ParamType[tuple[str, str]]):
    """NAME=VALUE, or a VALUE without a name."""

    name = "named"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        name, equals, rest = str(value).partition("=")
        named = bool(equals) and name.replace("-", "").replace("_", "").isalnum()
        return (name, rest) if named else ("", str(value))


class Limit(click.ParamType[tuple[str, float]]):
    """METRIC:MS, as vLLM's and aiperf's --goodput have it."""

    name = "limit"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        name, _, ms = str(value).partition(":")
        try:
            limit = float(ms)
        except ValueError:
            limit = 0.0
        if name not in GOODPUT or not limit > 0:
            self.fail(f"{value!r} is no limit such as ttft:500 ({', '.join(GOODPUT)})", param, ctx)
        return name, limit


@click.command()
@click.option("--target", "targets", multiple=True, required=True, type=Named(),
              metavar="[NAME=]URL",
              help="A server, without /v1. Several are arms of a comparison.")  # fmt: skip
@click.option("--header", "headers", multiple=True, type=Named(), metavar="[NAME=]KEY: VALUE",
              help="Of every request, or of one arm's.")  # fmt: skip
@click.option("--trace", "trace_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Requests in Mooncake's format; `prefold ledger export` writes it.")  # fmt: skip
@click.option("--requests", "requests_file",
              type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Bodies of the OpenAI API, one a line.")  # fmt: skip
@click.option("--synthetic", type=click.Choice(list(WORKLOADS)), help="A made-up workload.")
@click.option("--block-tokens", default=MOONCAKE_BLOCK, type=click.IntRange(1), show_default=True,
              help="Tokens for each of a trace's hash_ids.")  # fmt: skip
@click.option("--model", default="", help="Default: the first that the first target lists.")
@click.option("--endpoint", "form", default=Form.CHAT.value, show_default=True,
              type=click.Choice([form.value for form in Form]),
              help="Of a trace's requests: words in a chat or a completion, or exact token ids.",
              )  # fmt: skip
@click.option("--num-requests", type=click.IntRange(1), help="Only so many, the first ones.")
@click.option("--max-input-tokens", type=click.IntRange(1),
              help="Leave out a trace's longer prompts.")  # fmt: skip
@click.option("--max-tokens", type=click.IntRange(1), help="The longest answer to ask for.")
@click.option("--ignore-eos", is_flag=True, help="Ask for answers of the full length.")
@click.option("--request-rate", type=click.FloatRange(0, min_open=True),
              help="Requests a second, whatever the trace's times are.")  # fmt: skip
@click.option("--burstiness", default=1.0, show_default=True,
              type=click.FloatRange(0, min_open=True),
              help="Of --request-rate: 1 is Poisson, less is burstier.")  # fmt: skip
@click.option("--concurrency", type=click.IntRange(1),
              help="Closed loop: so many at a time instead of at given times.")  # fmt: skip
@click.option("--speed", default=1.0, type=click.FloatRange(0, min_open=True), show_default=True,
              help="The trace's times so many times as fast.")  # fmt: skip
@click.option("--warmup-request-count", "warmup", default=0, type=click.IntRange(0),
              show_default=True, help="The first so many are sent before, and not counted.",
              )  # fmt: skip
@click.option("--keep-cache", is_flag=True,
              help="No fresh salt before prompts: caches may know them.")  # fmt: skip
@click.option("--goodput", "limits", multiple=True, type=Limit(), metavar="METRIC:MS",
              help="ttft, tpot or e2e within so many ms; may be repeated.")  # fmt: skip
@click.option("--profile", default="prefold", show_default=True, type=click.Choice(list(PROFILES)),
              help="Whose definitions.")  # fmt: skip
@click.option("--seed", default=1, show_default=True, help="Of workloads and arrivals.")
@click.option("--timeout", "timeout_s", default=600.0, show_default=True,
              type=click.FloatRange(0, min_open=True), help="Seconds for a request.")  # fmt: skip
@click.option("--timelines", "lines_file", type=OutputFile(dash=False), metavar="FILE",
              help="Write a line for each request, for `prefold metrics`.")  # fmt: skip
@click.option("--json", "json_file", type=OutputFile(), metavar="FILE",
              help="Write the figures; - is stdout.")  # fmt: skip
def replay(
    targets: tuple[tuple[str, str], ...],
    headers: tuple[tuple[str, str], ...],
    trace_file: Path | None,
    requests_file: Path | None,
    synthetic: str | None,
    block_tokens: int,
    model: str,
    form: str,
    num_requests: int | None,
    max_input_tokens: int | None,
    max_tokens: int | None,
    ignore_eos: bool,
    request_rate: float | None,
    burstiness: float,
    concurrency: int | None,
    speed: float,
    warmup: int,
    keep_cache: bool,
    limits: tuple[tuple[str, float], ...],
    profile: str,
    seed: int,
    timeout_s: float,
    lines_file: str | None,
    json_file: str | None,
) -> None:
    """Send the requests of a trace to one or more servers, and measure as their clients would.

    Open loop by default: at the trace's times, or at --request-rate, whatever comes back.
    docs/replay.md says what is sent and what the figures mean.
    """
    if sum(source is not None for source in (trace_file, requests_file, synthetic)) != 1:
        raise click.UsageError("give one of --trace, --requests and --synthetic")
    if concurrency is not None and request_rate is not None:
        raise click.UsageError("give either --concurrency or --request-rate")
    arms = _targets(targets, headers)
    console = Console(stderr=json_file == "-")

    plan = Plan(
        requests_file=requests_file,
        trace=None
        if requests_file is not None
        else cache(partial(_trace, trace_file, synthetic, block_tokens, seed, num_requests)),
        form=Form(form),
        num_requests=num_requests,
        max_input_tokens=max_input_tokens,
        max_tokens=max_tokens,
        ignore_eos=ignore_eos,
        request_rate=request_rate,
        burstiness=burstiness,
        speed=speed,
        seed=seed,
    )
    try:
        if plan.trace is not None:
            with working("reading the trace"):
                plan.trace()  # a mistake in the file is told before a server is asked
        ask = not model and requests_file is None
        name = asyncio.run(_first_model(arms[0])) if ask else model
        results: dict[str, list[Sent]] = {}
        for arm in arms:
            requests = plan.requests("" if keep_cache else secrets.token_hex(4), name)
            if len(requests) <= warmup:
                raise ReplayError(f"{len(requests)} requests, of which {warmup} warm up")
            times = plan.due_s(requests[warmup:]) if concurrency is None else None
            results[arm.name] = asyncio.run(
                _run(arm, requests, warmup, times, concurrency or 1, timeout_s, console)
            )
    except (ReplayError, TraceError) as error:
        raise click.ClickException(str(error)) from None
    lines = None if lines_file is None else Path(lines_file)
    _show(results, PROFILES[profile], dict(limits), console, lines, json_file)


def _targets(
    targets: Sequence[tuple[str, str]], headers: Sequence[tuple[str, str]]
) -> list[Target]:
    made = []
    for number, (name, url) in enumerate(targets, 1):
        name = name or (f"target-{number}" if len(targets) > 1 else "target")
        own = [header for arm, header in headers if arm in ("", name)]
        pairs = (header.partition(":")[::2] for header in own)
        fields = {key.strip(): value.strip() for key, value in pairs}
        if not url.startswith(("http://", "https://")):
            raise click.UsageError(f"--target: expected http://HOST:PORT, not {url!r}")
        made.append(Target(name=name, url=url.rstrip("/").removesuffix("/v1"), headers=fields))
    if len({target.name for target in made}) != len(made):
        raise click.UsageError("two targets have the same name")
    unknown = {arm for arm, _ in headers if arm} - {target.name for target in made}
    if unknown:
        raise click.UsageError(f"a header for {', '.join(sorted(unknown))}, which is no target")
    return made


def _trace(
    file: Path | None, synthetic: str | None, block_tokens: int, seed: int, requests: int | None
) -> Trace:
    if file is not None:
        return read_mooncake(file, block_tokens)
    return make_trace(synthetic or "", SyntheticOptions(requests=requests or 200, seed=seed))


async def _first_model(target: Target) -> str:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{target.url}/v1/models", headers=target.headers) as response,
        ):
            if response.status in (401, 403):
                raise ReplayError(
                    f"{target.url} refuses its key (status {response.status}):"
                    " give --header 'Authorization: Bearer KEY'"
                )
            listed = await response.json(content_type=None)
            return str(listed["data"][0]["id"])
    except (aiohttp.ClientConnectionError, aiohttp.InvalidURL, TimeoutError) as error:
        raise ReplayError(no_answer(target.url, error)) from None
    except (aiohttp.ClientError, ValueError, KeyError, IndexError, TypeError):
        raise ReplayError(f"{target.url}/v1/models names no model: give --model") from None


async def _run(
    target: Target,
    requests: Sequence[Planned],
    warmup: int,
    due_s: Sequence[float] | None,
    concurrency: int,
    timeout_s: float,
    console: Console,
) -> list[Sent]:
    """The warm-up goes before, as a closed loop, and its results away."""
    bar = Progress(
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        "{task.fields[errors]} errors",
        console=console,
        transient=True,
    )
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    # A client's own limit on connections would make an open loop a closed one.
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        sender = partial(send, session, target)
        with bar:
            on_done = _counting(bar, target.name, len(requests))
            await closed_loop(requests[:warmup], max(concurrency, 4), sender, on_done)
            counted = requests[warmup:]
            if due_s is not None:
                return await open_loop(counted, due_s, sender, on_done)
            return await closed_loop(counted, concurrency, sender, on_done)


def _counting(bar: Progress, name: str, total: int) -> Callable[[Sent], None]:
    task = bar.add_task(name, total=total, errors=0)
    errors = 0

    def on_done(sent: Sent) -> None:
        nonlocal errors
        errors += sent.timeline.error is not None
        bar.update(task, advance=1, errors=errors)

    return on_done


def _show(
    results: dict[str, list[Sent]],
    profile: Any,
    limits: dict[str, float],
    console: Console,
    lines_file: Path | None,
    json_file: str | None,
) -> None:
    figures = {name: output.arm_json(sent, profile, limits) for name, sent in results.items()}
    names = list(results)
    pairs = {name: output.paired(results[names[0]], results[name]) for name in names[1:]}
    if lines_file is not None:
        with lines_file.open("wb") as file:
            for sent in results.values():
                file.writelines(output.lines(sent))
    if json_file is not None:
        made = json.dumps(
            {
                "arms": figures,
                "differences": {
                    name: {
                        metric: None
                        if found is None
                        else {
                            "control": names[0],
                            "difference": found.difference,
                            "low": found.low,
                            "high": found.high,
                            "confidence": found.confidence,
                            "requests": found.clusters,
                        }
                        for metric, found in of.items()
                    }
                    for name, of in pairs.items()
                },
            },
            indent=2,
        )
        if json_file == "-":
            click.echo(made)
        else:
            Path(json_file).write_text(made + "\n", encoding="utf-8")
    console.print(output.table(figures))
    for name, told in figures.items():
        console.print(output.remarks(name, told), highlight=False)
    for name, of in pairs.items():
        for metric, found in of.items():
            console.print(output.difference_said(names[0], name, metric, found), highlight=False)
    if any(told["failed"] for told in figures.values()):
        console.print("Requests failed: their times are in none of the figures.", style="yellow")
    if silent := [name for name, told in figures.items() if not told["requests"]]:
        raise click.ClickException(f"no request was answered by {', '.join(silent)}")
