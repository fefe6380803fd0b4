"""The process of one embedded engine: `python -m prefold.backends.engine_child`, started by us.

Reads its options as one JSON line from standard input, starts the llama.cpp server (it runs in
native threads), prints the server's address as one line, and stays until standard input ends,
SIGTERM comes, or the parent dies.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from typing import Any

import msgspec

from prefold.backends.parent_death import die_with_parent


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOptions:
    parent: int
    site: str
    model: str
    alias: str
    slots: int
    context_per_slot: int
    threads: int
    port: int
    """0: the kernel picks one."""
    host: str = "127.0.0.1"
    chat_template: str | None
    """Jinja text in place of the model's own."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, and it decides
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit("standard input ended before the options came")
    options = msgspec.json.decode(line, type=ChildOptions)
    die_with_parent(options.parent)
    announce = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine prints goes to the log
    server = start_server(options)  # it stops when this object is collected
    print(server.listening_address, file=announce, flush=True)
    sys.stdin.buffer.read()  # until the parent closes its end, or is gone
    os._exit(0)  # not sys.exit: nothing to save, and requests may still be running


def start_server(options: ChildOptions) -> Any:
    """An `xllamacpp.Server` that has loaded the model and listens, in threads of its own."""
    sys.path.insert(0, options.site)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {options.alias}
    params.hostnames = [options.host]
    params.port = options.port
    params.n_parallel = options.slots
    params.n_ctx = options.slots * options.context_per_slot  # llama.cpp counts over all slots
    params.kv_unified = False  # each slot keeps its own share
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    # No second cache in host memory: what a slot loses is lost, as the prefix index assumes.
    params.cache_ram_mib = 0
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.ui = False
    params.verbosity = 1  # errors only: prompts are never logged
    if options.chat_template is not None:
        params.chat_template = options.chat_template
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
