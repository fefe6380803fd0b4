"""`prefold diagnose`: prefill or decode? Out of a ledger, and of a proxy that is running."""

from __future__ import annotations

import asyncio
import datetime
import time
from pathlib import Path
from typing import TypeVar

import aiohttp
import click
import msgspec
from rich.console import Console
from rich.text import Text

from prefold.measurement.diagnosis.answer import Answer, Figure, Verdict
from prefold.measurement.diagnosis.diagnosis import Diagnosis, diagnose
from prefold.measurement.divergence.tally import DivergenceReport
from prefold.measurement.ledger.reader import open_ledger
from prefold.measurement.ledger.samples import EngineSample
from prefold.measurement.ledger.schema import LedgerError
from prefold.proxy.errors import SettingsError
from prefold.proxy.failures import no_answer
from prefold.proxy.ledger_command import Moment, config_option, file_option
from prefold.proxy.progress import working
from prefold.proxy.settings import Settings
from prefold.proxy.settings_file import load

ADMIN_S = 10.0
COLOURS = {Verdict.UNCLEAR: "yellow", Verdict.UNKNOWN: "yellow"}

T = TypeVar("T")


class Load(msgspec.Struct):
    """What an engine said, as /backends has it."""

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    preemptions: int | None = None


class Backend(msgspec.Struct):
    name: str
    in_flight: int
    engine_load: Load | None = None


class Backends(msgspec.Struct):
    backends: list[Backend]


class Report(msgspec.Struct):
    divergence: DivergenceReport | None = None


@click.command("diagnose")
@config_option
@file_option
@click.option("--since", type=Moment(), help="Received since: 30m, 12h, 7d ago or an ISO date.")
@click.option("--label", help="Compare the values of this label only.")
@click.option(
    "--admin",
    metavar="URL",
    help="Of a running proxy's admin port; its key is the settings' server.admin_key.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def diagnose_command(
    config: Path | None,
    file: Path | None,
    since: float | None,
    label: str | None,
    admin: str | None,
    as_json: bool,
) -> None:
    """Where requests spend their time, and what breaks their prefixes.

    Every answer comes with its figures, or says what it would need. docs/diagnose.md says how each
    of them is made.
    """
    settings = _settings(config)
    path = file or (Path(settings.ledger.path) if settings.ledger.path else None)
    if path is None and admin is None:
        raise click.UsageError(
            "nothing to look at: give --ledger FILE, settings with ledger.path, or --admin URL"
        )
    now: list[EngineSample] = []
    divergence: DivergenceReport | None = None
    if admin is not None:
        backends, report = asyncio.run(_asked(admin, settings.server.admin_key))
        now, divergence = _now(backends), report.divergence
    if path is None:
        made = diagnose((), now=now, divergence=divergence, label=label)
    else:
        try:
            with working(f"reading {path}"), open_ledger(path) as ledger:
                made = diagnose(
                    ledger.rows(since=since),
                    ledger.engine_samples(since=since),
                    now=now,
                    divergence=divergence,
                    label=label,
                )
        except LedgerError as error:
            raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(made)).decode())
    else:
        _print(made)


def _settings(config: Path | None) -> Settings:
    try:
        return load(config)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None


async def _asked(admin: str, key: str) -> tuple[Backends, Report]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=ADMIN_S)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as http:
        return (
            await _read(http, f"{admin.rstrip('/')}/backends", Backends),
            await _read(http, f"{admin.rstrip('/')}/report", Report),
        )


async def _read(http: aiohttp.ClientSession, url: str, kind: type[T]) -> T:
    try:
        # Not elsewhere: the key is for this port.
        async with http.get(url, allow_redirects=False) as answer:
            if answer.status == 401:
                raise click.ClickException(
                    f"{url} needs its key: --config FILE with server.admin_key"
                )
            if answer.status != 200:
                raise click.ClickException(
                    f"{url}: status {answer.status}; --admin is the URL of prefold's admin port"
                )
            return msgspec.json.decode(await answer.read(), type=kind)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise click.ClickException(no_answer(url, error)) from None
    except (ValueError, msgspec.MsgspecError):
        raise click.ClickException(f"{url}: no figures of prefold: is it an admin port?") from None


def _now(found: Backends) -> list[EngineSample]:
    return [
        EngineSample(
            at=time.time(),
            backend=backend.name,
            running=backend.engine_load.running,
            waiting=backend.engine_load.waiting,
            kv_usage=backend.engine_load.kv_usage,
            preemptions=backend.engine_load.preemptions,
            in_flight=backend.in_flight,
        )
        for backend in found.backends
        if backend.engine_load is not None
    ]


def _print(made: Diagnosis) -> None:
    console = Console(highlight=False)
    console.print(Text(_title(made), style="bold"))
    for answer in made.answers:
        console.print()
        console.print(Text(answer.question, style="bold"))
        console.print(Text(_headed(answer), style=COLOURS.get(answer.verdict, "green")))
        for figure in answer.figures:
            console.print(Text(f"  {_shown(figure)}", style="dim"))


def _title(made: Diagnosis) -> str:
    if made.first is None or made.last is None:
        return "No streamed answers to look at"
    first, last = (
        datetime.datetime.fromtimestamp(moment).astimezone().isoformat(" ", "seconds")
        for moment in (made.first, made.last)
    )
    more = f"; {made.left_out:,} earlier ones are left out" if made.left_out else ""
    return f"{made.requests:,} streamed answers, {first} to {last}{more}"


def _headed(answer: Answer) -> str:
    if answer.verdict in (Verdict.KNOWN, Verdict.UNKNOWN):
        return answer.sentence
    return f"{answer.verdict}: {answer.sentence}"


def _shown(figure: Figure) -> str:
    value, *bounds = (
        None if number is None else _number(number, figure.unit)
        for number in (figure.value, figure.low, figure.high)
    )
    between = f" [{bounds[0]}, {bounds[1]}]" if None not in bounds else ""
    counted = "" if figure.n is None else f"  (n={figure.n:,})"
    return f"{figure.name}: {value}{between}{counted}"


def _number(value: float, unit: str) -> str:
    if unit == "share":
        return f"{value:.1%}"
    if unit == "s":
        return f"{value * 1000:,.1f} ms"
    if unit == "ratio":
        return f"{value:.2f}x"
    return f"{value:,.0f} {unit}"
