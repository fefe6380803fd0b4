"""The command line. Each command imports what it needs only when it runs."""

from __future__ import annotations

import asyncio
import getpass
import hashlib
import importlib
import json
import logging
import secrets
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefold import __version__
from prefold.proxy.errors import SettingsError

if TYPE_CHECKING:
    from prefold.proxy.settings import Settings

log = logging.getLogger(__name__)

# Commands with many options of their own live in their own modules, loaded when named.
ELSEWHERE = {
    "compress": "prefold.proxy.compress_command:compress",
    "compress-server": "prefold.proxy.compress_server:compress_server",
    "diagnose": "prefold.proxy.diagnose_command:diagnose_command",
    "completion": "prefold.proxy.completion_command:completion",
    "demo": "prefold.proxy.demo.command:demo",
    "engine": "prefold.proxy.engine_command:engine",
    "ledger": "prefold.proxy.ledger_command:ledger",
    "metrics": "prefold.proxy.metrics_command:metrics",
    "replay": "prefold.proxy.replay.command:replay",
    "report": "prefold.proxy.report_command:report",
    "simulate": "prefold.proxy.simulate.command:simulate",
    "top": "prefold.proxy.top_command:top",
}


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *ELSEWHERE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, _, name = ELSEWHERE[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), name)
        return command if isinstance(command, click.Command) else None


@click.group(cls=Commands)
@click.version_option(__version__, prog_name="prefold")
def main() -> None:
    """OpenAI-compatible proxy that makes LLM prefill cheap and proves by how much."""


PORT = click.IntRange(0, 65535)
config_option = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="PREFOLD_CONFIG",
    help="TOML file; prefold.example.toml holds every setting.",
)
backend_option = click.option(
    "--backend", "backends", multiple=True, metavar="URL", help="An LLM server; may be repeated."
)


@main.command()
@config_option
@backend_option
@click.option(
    "--embedded",
    type=click.IntRange(1),
    metavar="N",
    help="Start N small llama.cpp engines as backends, to try things out without one's own.",
)
@click.option("--host", help="Address of the data port.")
@click.option("--port", type=PORT, help="Data port; 0 picks a free one.")
@click.option("--admin-port", type=PORT, help="Port of /metrics and /report.")
@click.option("--workers", type=int, metavar="N", help="Processes that serve the data port.")
@click.option(
    "--exit-with-stdin", is_flag=True, help="Stop when standard input ends (for supervisors)."
)
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]),
)
def serve(
    config: Path | None,
    backends: tuple[str, ...],
    embedded: int | None,
    host: str | None,
    port: int | None,
    admin_port: int | None,
    workers: int | None,
    exit_with_stdin: bool,
    log_level: str,
) -> None:
    """Run the proxy in front of one or more LLM servers."""
    from prefold.proxy import serve as server
    from prefold.proxy.settings_checks import warnings_of
    from prefold.proxy.workers import parent

    flags = {"host": host, "port": port, "admin_port": admin_port, "workers": workers}
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    with ExitStack() as stack:
        if embedded:
            backends = (*backends, *_embedded_engines(stack, embedded))
        read = partial(_read_settings, config, backends, flags)
        settings = _settings(config, backends, flags)
        if not (settings.backends or settings.discovery.wanted):
            raise click.UsageError(
                "no backends: give --backend URL, a [[backends]] table or [discovery]"
            )
        for warning in warnings_of(settings):
            log.warning("%s", warning)
        run = server.run if settings.server.workers == 1 else parent.run
        try:
            run(settings, exit_with_stdin=exit_with_stdin, reload=read)
        except SettingsError as error:  # a file of TLS
            raise click.ClickException(str(error)) from None
        except OSError as error:
            raise click.ClickException(_cannot_listen(error, settings)) from None


def _cannot_listen(error: OSError, settings: Settings) -> str:
    from prefold.proxy.failures import cannot_listen

    server = settings.server
    ports = {"port": server.port, "admin_port": server.admin_port}
    return cannot_listen(error, host=server.host, admin_host=server.admin_host, **ports)


def _embedded_engines(stack: ExitStack, count: int) -> list[str]:
    """URLs of engines that are stopped with the stack, and gone if this process is killed."""
    from prefold.backends.embedded import ensure_engine, missing_cpu_features
    from prefold.backends.engine_process import EngineStartError, start_engine
    from prefold.backends.wheel_cache import FetchError
    from prefold.proxy.progress import fetching

    if missing := missing_cpu_features():
        raise click.ClickException(f"the embedded engine needs a CPU with {', '.join(missing)}")
    try:
        with fetching() as told:
            paths = ensure_engine(progress=told)
        engines = [stack.enter_context(start_engine(paths)) for _ in range(count)]
        return [engine.wait_ready() for engine in engines]
    except (FetchError, EngineStartError) as error:
        raise click.ClickException(str(error)) from None


@main.command()
@config_option
@backend_option
@click.option("--settings", "every", is_flag=True, help="Also those that are at their defaults.")
def check(config: Path | None, backends: tuple[str, ...], every: bool) -> None:
    """Show what was set; ask each backend what it is and whether its tokens are ours."""
    from prefold.proxy.check import check_backends, print_settings
    from prefold.proxy.settings_checks import warnings_of

    settings = _settings(config, backends, {})
    print_settings(settings, every=every)
    for warning in warnings_of(settings):
        click.echo(f"Warning: {warning}", err=True)
    if not asyncio.run(check_backends(settings)):
        sys.exit(1)


@main.command()
@click.option("--tenant", default="default", show_default=True, help="Whose key it is.")
@click.option(
    "--digest", is_flag=True, help="Read a key from standard input; print its digest only."
)
def key(tenant: str, digest: bool) -> None:
    """Make an API key for a client, with the settings that let it in.

    The key is shown this once; the settings hold its digest.
    """
    if digest:
        click.echo(_digest(_read_key()))
        return
    if not tenant or not tenant.isprintable():
        raise click.UsageError("--tenant: printable characters, at least one")
    made, named = f"pf-{secrets.token_urlsafe(32)}", json.dumps(tenant, ensure_ascii=False)
    click.echo(f'{made}\n\n[[keys]]\ntenant = {named}\nsha256 = "{_digest(made)}"')


def _read_key() -> str:
    text = getpass.getpass("Key: ") if sys.stdin.isatty() else sys.stdin.readline()
    text = text.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise click.UsageError("a key is printable ASCII without blanks")
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@main.group()
def tokenizer() -> None:
    """Tokenizer files."""


@tokenizer.command()
@click.argument("gguf", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def convert(gguf: Path, folder: Path) -> None:
    """Write the tokenizer.json and tokenizer_config.json of a GGUF file into FOLDER."""
    from prefold.proxy.errors import TokenizerError
    from prefold.proxy.tokens import gguf_tokenizer

    try:
        gguf_tokenizer.convert(gguf, folder)
    except TokenizerError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"wrote {folder / 'tokenizer.json'} and {folder / 'tokenizer_config.json'}")


def _settings(config: Path | None, backends: tuple[str, ...], flags: dict[str, Any]) -> Any:
    try:
        return _read_settings(config, backends, flags)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None


def _read_settings(config: Path | None, backends: tuple[str, ...], flags: dict[str, Any]) -> Any:
    """Raises SettingsError."""
    from prefold.proxy.settings_file import load

    given = {key: value for key, value in flags.items() if value is not None}
    return load(config, backends=backends, overrides={"server": given} if given else None)


if __name__ == "__main__":
    main()
