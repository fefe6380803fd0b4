"""`prefold top`: a running proxy in the terminal, from the figures of its dashboard."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import click
import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from prefold.proxy.errors import SettingsError
from prefold.proxy.failures import no_answer
from prefold.proxy.report_numbers import UNKNOWN, count, number, percent
from prefold.proxy.settings import Settings
from prefold.proxy.settings_file import load

ADMIN_S = 10.0
RECENT_S = 60.0

Json = dict[str, Any]


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="PREFOLD_CONFIG",
    help="TOML file with the admin port and its key.",
)
@click.option("--admin", metavar="URL",
              help="The admin port. Default: the settings' one on this machine.")  # fmt: skip
@click.option("--every", "every_s", default=2.0, show_default=True, type=click.FloatRange(0.2),
              help="Seconds between two looks.")  # fmt: skip
@click.option("--once", is_flag=True, help="One look, and no more.")
def top(config: Path | None, admin: str | None, every_s: float, once: bool) -> None:
    """What a running proxy is doing: backends, rates, hits, times. Ctrl-C ends it."""
    try:
        settings = load(config)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    url = (admin or _own_admin(settings)).rstrip("/") + "/dashboard/figures"
    try:
        asyncio.run(_watch(url, settings.server.admin_key, None if once else every_s))
    except KeyboardInterrupt:
        return


def _own_admin(settings: Settings) -> str:
    host = settings.server.admin_host
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.server.admin_port}"


async def _watch(url: str, key: str, every_s: float | None) -> None:
    """`every_s` None: once. Raises ClickException where the first look fails; a later failure is
    shown, and looked at again."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=ADMIN_S)
    console = Console(highlight=False)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as http:
        shown = frame(await _ask(http, url))
        if every_s is None:
            console.print(shown)
            return
        with Live(shown, console=console, auto_refresh=False, screen=console.is_terminal) as live:
            while True:
                await asyncio.sleep(every_s)
                try:
                    shown = frame(await _ask(http, url))
                    live.update(shown, refresh=True)
                except click.ClickException as error:
                    live.update(Group(Text(error.message, style="red"), shown), refresh=True)


async def _ask(http: aiohttp.ClientSession, url: str) -> Json:
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
            told: Json = msgspec.json.decode(await answer.read(), type=dict)
            return told
    except (aiohttp.ClientError, TimeoutError) as error:
        raise click.ClickException(no_answer(url, error)) from None
    except ValueError:
        raise click.ClickException(f"{url}: no figures of prefold: is it an admin port?") from None


def frame(told: Json) -> RenderableType:
    """Of the dashboard's figures."""
    total = told["report"]["total"]
    return Group(
        _load_line(told), _hit_line(total, told["series"]), _time_line(total), _backends(told)
    )


def _load_line(told: Json) -> Text:
    in_flight = sum(one["in_flight"] for one in told["backends"])
    requests = told["report"]["total"]["requests"]
    series = told["series"]
    made = Text.assemble(
        (f"{in_flight:,}", "bold"), " in flight, ", (f"{told['waiting']:,}", "bold"), " waiting, ",
        (f"{requests:,}", "bold"), " requests; ", _rate(series, "requests"), " requests/s, ",
        _rate(series, "output_tokens"), " output tokens/s",
    )  # fmt: skip
    return made


def _hit_line(total: Json, series: Json) -> Text:
    saved, prompt = total["prefill_tokens_saved"], total["prompt_tokens"]
    share = saved / prompt if saved is not None and prompt else None
    hits = total["hits"]
    shares = ", ".join(
        f"{kind} {percent(hits[f'{kind}_tokens'] / hits['prompt_tokens'])}"
        for kind in ("available", "expected", "reported")
    ) if hits is not None and hits["prompt_tokens"] else UNKNOWN  # fmt: skip
    return Text.assemble(
        "saved ", (count(saved), "bold"), f" prompt tokens ({percent(share)}), ",
        _rate(series, "saved_tokens"), " a second; hits: ", shares,
    )  # fmt: skip


def _time_line(total: Json) -> Text:
    parts = [
        f"{label} p50 {number(total[name]['p50'])} p90 {number(total[name]['p90'])} ms"
        for name, label in (("ttft_ms", "TTFT"), ("itl_ms", "ITL"), ("e2e_ms", "E2E"))
    ]
    return Text("; ".join(parts) + " (since start)")


def _rate(series: Json, name: str) -> str:
    """A second, over the last RECENT_S of samples; unknown before there are two of them."""
    moments, values = series["at"], series[name]
    if len(moments) < 2:
        return UNKNOWN
    first = next(at for at, moment in enumerate(moments) if moments[-1] - moment <= RECENT_S)
    first = min(first, len(moments) - 2)
    return f"{(values[-1] - values[first]) / (moments[-1] - moments[first]):,.1f}"


def _backends(told: Json) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for column in ("backend", "state", "mode"):
        table.add_column(column, no_wrap=True)
    for column in ("in flight", "queued", "cache", "prefill/s", "requests", "saved", "TTFT p50"):
        table.add_column(column, justify="right", no_wrap=True)
    reports = told["report"]["backends"]
    for one in told["backends"]:
        report = reports.get(one["name"], {})
        capacity, believed = one["capacity_tokens"], one["believed_tokens"]
        table.add_row(
            Text(one["name"]),
            Text(one["state"], style="" if one["state"] == "up" else "red"),
            Text(one["mode"]),
            f"{one['in_flight']:,}",
            f"{one['queued_tokens']:,}",
            percent(believed / capacity) if capacity else UNKNOWN,
            f"{one['prefill_tokens_per_s']:,.0f}",
            count(report.get("requests", 0)),
            count(report.get("prefill_tokens_saved")),
            number(report.get("ttft_ms", {}).get("p50")),
        )
    return table
