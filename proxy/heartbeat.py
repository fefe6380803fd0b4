"""Signs of life while a long prefill runs, for clients and balancers that give up on silence.

Off by default: the first one commits the status 200, so that what comes later can only be an error
event, and no other backend can be asked. Its form is the one that no client stumbles over: one
comment line with one newline, between events (openai-python takes `: x` and a blank line for an
event once it has seen an `id`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from multidict import CIMultiDict

from prefold.proxy.errors import ApiError
from prefold.proxy.exchange import Exchange
from prefold.proxy.http.answer import Answer
from prefold.proxy.protocol import Protocol, error_of

BEAT = b": waiting\n"


async def beating(
    out: Answer,
    opening: Coroutine[Any, Any, Exchange],
    every_s: float,
    protocol: Protocol,
    headers: Mapping[str, str],
) -> Exchange:
    """What `opening` gives: an exchange whose stream can follow, once a beat was sent, with these
    headers. Raises what it raises; where a beat was sent, the client has been told by then."""
    task = asyncio.ensure_future(opening)
    try:
        while not (await asyncio.wait({task}, timeout=every_s))[0]:
            if not out.begun:
                kind = {"Content-Type": "text/event-stream"}
                out.begin(200, CIMultiDict({**headers, **kind}), None)
            out.write(BEAT)
        exchange = task.result()
    except ApiError as error:
        if out.begun:
            _tell(out, protocol, error)
        raise
    finally:
        if not task.done():
            await _end(task)
    if out.begun and exchange.meter is None:
        exchange.close()
        told = error_of(exchange.status, exchange.first)
        _tell(out, protocol, told)
        raise told
    return exchange


def _tell(out: Answer, protocol: Protocol, error: ApiError) -> None:
    out.write(protocol.cut(None, error))
    out.abort()


async def _end(task: asyncio.Task[Exchange]) -> None:
    """It may come to its end just as it is told to stop."""
    task.cancel()
    [ended] = await asyncio.gather(task, return_exceptions=True)
    if isinstance(ended, Exchange):
        ended.close()
