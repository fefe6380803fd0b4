"""`prefold ledger`: what is in a ledger, and its export."""

from __future__ import annotations

import datetime
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from prefold.measurement.ledger.export import MooncakeTrace, as_csv, as_jsonl, write_parquet
from prefold.measurement.ledger.reader import LedgerReader, open_ledger
from prefold.measurement.ledger.schema import LedgerError
from prefold.proxy.errors import SettingsError

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Moment(click.ParamType[float]):
    """Seconds since 1970: so long ago (30m, 12h, 7d) or an ISO date with or without time."""

    name = "when"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value)
        if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
            return time.time() - float(ago[1]) * UNITS_S[ago[2]]
        try:
            return datetime.datetime.fromisoformat(text).timestamp()
        except ValueError:
            self.fail(f"{text!r} is no 30m, 12h, 7d or 2026-01-31T12:00", param, ctx)


config_option = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="PREFOLD_CONFIG",
    help="TOML file with the ledger's path.",
)
file_option = click.option(
    "--ledger",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The ledger's file, in place of the settings' ledger.path.",
)


@click.group()
def ledger() -> None:
    """What the proxy recorded of each request, without any of its text."""


@ledger.command()
@config_option
@file_option
def info(config: Path | None, file: Path | None) -> None:
    """How much is there, from when, and how requests ended."""
    path = _path(config, file)
    with _reading(path) as reader:
        about = reader.info()
    first, last = about.first_received, about.last_received
    click.echo(f"{path}, schema version {about.version}")
    click.echo(f"{about.rows} requests in {about.bytes / 2**20:.1f} MiB")
    if first is not None and last is not None:
        click.echo(f"received from {_shown(first)} to {_shown(last)}")
    for outcome, count in about.outcomes.items():
        click.echo(f"  {outcome}: {count}")


@ledger.command()
@config_option
@file_option
@click.option(
    "--format",
    "form",
    default="jsonl",
    show_default=True,
    type=click.Choice(["jsonl", "csv", "parquet", "mooncake"]),
    help="mooncake: a trace for `prefold simulate` and others.",
)
@click.option("--since", type=Moment(), help="Received since: 30m, 12h, 7d ago or an ISO date.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Instead of standard output."
)
def export(
    config: Path | None, file: Path | None, form: str, since: float | None, out: Path | None
) -> None:
    """Write the requests out, for other tools."""
    if form == "parquet" and out is None:
        raise click.UsageError("--format parquet needs --out FILE")
    with _reading(_path(config, file)) as reader:
        try:
            if form == "parquet" and out is not None:
                write_parquet(reader.rows(since=since), out)
            elif form == "mooncake":
                _export_trace(reader, since, out)
            else:
                lines = as_csv if form == "csv" else as_jsonl
                _write(lines(reader.rows(since=since)), out)
        except BrokenPipeError:
            raise  # who reads has enough
        except OSError as error:
            raise click.ClickException(str(error)) from None


def _export_trace(reader: LedgerReader, since: float | None, out: Path | None) -> None:
    trace = MooncakeTrace()
    _write(trace.lines(reader.rows_by_arrival(since=since)), out)
    click.echo(f"{trace.written} requests", err=True)
    if trace.estimated:
        click.echo(f"of which {trace.estimated} have 4 bytes for a token", err=True)
    if trace.left_out:
        click.echo(f"left out, since their lengths are not known: {trace.left_out}", err=True)


def _write(lines: Iterable[str], out: Path | None) -> None:
    with _opened(out) as file:
        for line in lines:
            file.write(line)


@contextmanager
def _opened(out: Path | None) -> Iterator[IO[str]]:
    if out is None:
        yield sys.stdout
    else:
        with out.open("w", encoding="utf-8", newline="") as file:
            yield file


@contextmanager
def _reading(path: Path) -> Iterator[LedgerReader]:
    try:
        with open_ledger(path) as reader:
            yield reader
    except LedgerError as error:
        raise click.ClickException(str(error)) from None


def _path(config: Path | None, file: Path | None) -> Path:
    """Of the ledger that is meant."""
    from prefold.proxy.settings_file import load

    if file is not None:
        return file
    try:
        path = load(config).ledger.path
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    if not path:
        raise click.UsageError("no ledger: give --ledger FILE, or settings with ledger.path")
    return Path(path)


def _shown(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment).astimezone().isoformat(timespec="seconds")
