"""`prefold compress-server`: the compressor of the settings behind HTTP, for proxies elsewhere.

What it answers, `compression/worker/remote.py` says. Texts of several proxies share its batches.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import click
import msgspec
import uvloop
from aiohttp import web

from prefold.compression.worker.pool import Job, Unavailable, WorkerPool
from prefold.compression.worker.remote import Answered, Described, Jobs
from prefold.proxy.addresses import is_loopback
from prefold.proxy.compression.wiring import own_processes
from prefold.proxy.errors import ApiError, BadRequest, NoBackendAvailable, SettingsError
from prefold.proxy.failures import cannot_listen_at
from prefold.proxy.gate import AdminGate
from prefold.proxy.listener import listening
from prefold.proxy.serve import Ending
from prefold.proxy.settings import Compression
from prefold.proxy.settings_file import load


@click.command("compress-server")
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Settings file; its table [compression] counts.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8002, show_default=True, type=click.IntRange(0, 65535),
              help="0 picks a free one.")  # fmt: skip
def compress_server(config: Path | None, host: str, port: int) -> None:
    """Serve the compressor of the settings to proxies that name it in `compression.url`."""
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        compression = load(config).compression
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    if not compression.api_key and not is_loopback(host):
        raise click.ClickException(f"compression.api_key: needed, since {host!r} is open to others")
    try:
        uvloop.run(_serve(compression, host, port))
    except OSError as error:
        raise click.ClickException(cannot_listen_at(error, host, port)) from None


async def _serve(compression: Compression, host: str, port: int) -> None:
    ending = Ending()
    async with serving(compression, host, port) as url:
        print(f"the compressor listens on {url}", file=sys.stderr, flush=True)
        await ending.wait()


@asynccontextmanager
async def serving(compression: Compression, host: str, port: int) -> AsyncIterator[str]:
    """The URL. Raises OSError if the port is taken."""
    async with own_processes(compression, time.perf_counter) as pool:
        server = _Server(pool)
        app = web.Application(client_max_size=64 * 2**20)
        app.add_routes(
            [web.get("/compressor", server.describe), web.post("/compress", server.compress)]
        )
        AdminGate(key=compression.api_key).install(app)
        async with listening(app, host, port) as url:
            yield url


class _Server:
    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    async def describe(self, request: web.Request) -> web.Response:
        pool = self._pool
        speed = pool.speed.chars_per_s
        if pool.digest is None or not pool.up or speed is None:
            raise NoBackendAvailable("The compressor is not ready.")
        return _json(Described(pool.name, pool.digest, speed))

    async def compress(self, request: web.Request) -> web.Response:
        """What a client that left was waiting for is given up."""
        try:
            asked = msgspec.json.decode(await request.read(), type=Jobs)
        except msgspec.MsgspecError:
            raise BadRequest('Expected {"jobs": [[text, rate], ...]}.') from None
        if not all(0 < rate <= 1 for _, rate in asked.jobs):
            raise BadRequest("A rate is above 0 and at most 1.")
        digest, jobs = self._pool.digest, list[Job]()
        try:
            for text, rate in asked.jobs:
                jobs.append(self._pool.submit(text, rate))
            await asyncio.wait([job.spans for job in jobs] or [_nothing()])
        except Unavailable as error:
            raise _Busy(f"Not compressed: {error}.") from None
        finally:
            for job in jobs:
                job.spans.cancel()
        kept = [_spans(job) for job in jobs]
        return _json(Answered(digest or "", kept, _failures(jobs)))


class _Busy(ApiError):
    status = 503
    code = "compressor_unavailable"


def _nothing() -> asyncio.Future[None]:
    done = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def _failures(jobs: Sequence[Job]) -> dict[int, str]:
    """Kinds by number; of a job that ended with its process there is none."""
    errors = enumerate(job.spans.exception() for job in jobs)
    found = {n: error.kind for n, error in errors if isinstance(error, Unavailable)}
    return {number: kind for number, kind in found.items() if kind}


def _spans(job: Job) -> list[int] | None:
    return None if job.spans.exception() is not None else list(job.spans.result())


def _json(value: Described | Answered) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
