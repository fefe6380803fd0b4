"""`prefold report`: the net benefit, out of a ledger."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from prefold.measurement.benefit.benefit import ARM, Benefit, BenefitError, Reading
from prefold.measurement.benefit.counterfactual import BLOCK_TOKENS, Counterfactual, counterfactual
from prefold.measurement.definitions.profiles import PROFILES
from prefold.measurement.ledger.reader import GROUPS, LedgerReader, open_ledger
from prefold.measurement.ledger.schema import LedgerError
from prefold.proxy.errors import SettingsError
from prefold.proxy.ledger_command import Moment, config_option, file_option
from prefold.proxy.progress import working
from prefold.proxy.replay.command import Limit
from prefold.proxy.report_html import charts_of, page
from prefold.proxy.report_sections import Section, sections
from prefold.proxy.report_sentences import sentences, title
from prefold.proxy.settings import Settings
from prefold.proxy.settings_file import load
from prefold.proxy.shadow import ShadowCache


class By(click.ParamType[str]):
    """What rows may be grouped by."""

    name = "by"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        text = str(value)
        if text not in GROUPS and not (text.startswith("label:") and text != "label:"):
            self.fail(f"{text!r} is none of {', '.join(GROUPS)}, label:NAME", param, ctx)
        return text


@click.command()
@config_option
@file_option
@click.option("--since", type=Moment(), help="Received since: 30m, 12h, 7d ago or an ISO date.")
@click.option("--by", type=By(), metavar="WHAT",
              help=f"Compare groups: {', '.join(GROUPS)} or label:NAME. Default: arm, if any"
                   " request has one.")  # fmt: skip
@click.option("--control", metavar="GROUP",
              help="The group that others are compared with. Default: the one named control, else"
                   " the one of most requests.")  # fmt: skip
@click.option("--profile", default="prefold", show_default=True, type=click.Choice(list(PROFILES)),
              help="Whose definitions.")  # fmt: skip
@click.option("--goodput", "limits", multiple=True, type=Limit(), metavar="METRIC:MS",
              help="ttft, tpot or e2e within so many ms; may be repeated.")  # fmt: skip
@click.option("--cache-tokens", type=click.IntRange(BLOCK_TOKENS),
              help="KV cache of each backend in the simulation of other policies. Default: the"
                   " settings' index.default_capacity_tokens.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--html", "html_file", type=click.Path(dir_okay=False, path_type=Path),
              help="Write one page that loads nothing.")  # fmt: skip
def report(
    config: Path | None,
    file: Path | None,
    since: float | None,
    by: str | None,
    control: str | None,
    profile: str,
    limits: tuple[tuple[str, float], ...],
    cache_tokens: int | None,
    as_json: bool,
    html_file: Path | None,
) -> None:
    """What was saved, what it did to the times, and what is sure of it.

    docs/report.md says how each figure is made.
    """
    settings = _settings(config)
    path = file or Path(settings.ledger.path)
    if not path.name:
        raise click.UsageError("no ledger: give --ledger FILE, or settings with ledger.path")
    try:
        with working(f"reading {path}"), open_ledger(path) as ledger:
            by = by or (ARM if ledger.has_arms(since=since) else None)
            by_time = by == ARM and ledger.has_slices(since=since)
            reading = Reading(PROFILES[profile], by, dict(limits), by_time=by_time)
            reading.read(ledger.rows(since=since))
            tokens = cache_tokens or settings.index.default_capacity_tokens
            made = reading.benefit(control, _counterfactual(ledger, since, reading, tokens))
    except (LedgerError, BenefitError) as error:
        raise click.ClickException(str(error)) from None
    if html_file is not None:
        _write(html_file, made)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(made)).decode())
    elif html_file is None:
        _print(made)


def _settings(config: Path | None) -> Settings:
    try:
        return load(config)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None


def _counterfactual(
    ledger: LedgerReader, since: float | None, reading: Reading, cache_tokens: int
) -> Counterfactual | None:
    """None: with one backend there is nothing to choose."""
    backends = reading.backends
    if all(len(names) < 2 for names in backends.values()):
        return None
    rows = ledger.rows_by_arrival(since=since)
    return counterfactual(rows, backends, lambda: ShadowCache(cache_tokens), cache_tokens)


def _write(path: Path, made: Benefit) -> None:
    try:
        text = page(title(made), sentences(made), sections(made, full=True), charts_of(made))
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None


def _print(made: Benefit) -> None:
    console = Console(highlight=False)
    console.print(Text(title(made), style="bold"))
    for sentence in sentences(made):
        console.print(Text(sentence))
    for section in sections(made):
        console.print(_table(section))
        for note in section.notes:
            console.print(Text(note, style="dim"))
        console.print()


def _table(section: Section) -> Table:
    table = Table(
        box=SIMPLE_HEAD,
        title=Text(section.title),
        title_justify="left",
        padding=(0, 0, 0, 1),
    )
    for number, column in enumerate(section.columns):
        is_text = number < section.texts
        table.add_column(Text(column), justify="left" if is_text else "right", no_wrap=True)
    for row in section.rows:
        table.add_row(*map(Text, row))
    return table
