"""A server that talks as SGLang does (by its source, 0.5.23) and tells what its radix cache holds:
the replies of the fixture with ports, pages and files of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import zmq.asyncio
from aiohttp import web

from tests.support.replies import fixture
from tests.support.telling_engine import BLOCK, BLOCKS, MODEL, TellingEngine, served
from tests.support.tiny_tokenizer import tiny_bpe, write_folder

REPLIES = fixture("sglang_0.5.23")


class SgLangEngine(TellingEngine):
    """Mutable. `reports`: it was started with --enable-cache-report."""

    def __init__(self, folder: Path, context: zmq.asyncio.Context, *, reports: bool) -> None:
        super().__init__(folder, context, enabled=True)
        self._files = folder
        self.reports = reports

    async def publish(self, **event: Any) -> None:
        """Its events have the salt as a member, and no extra keys."""
        if event["type"] == "BlockStored":
            keys = event.pop("extra_keys")
            event |= {"lora_id": None, "cache_salt": keys[0][0] if keys[0] else None}
        await super().publish(**event)

    async def models(self, request: web.Request) -> web.Response:
        card = REPLIES["/v1/models"]["data"][0]
        return web.json_response({"data": [{**card, "id": MODEL, "root": MODEL}]})

    async def server_info(self, request: web.Request) -> web.Response:
        told, info = self.publisher(), REPLIES["/server_info"]
        port, replay = (
            int(told[name].rpartition(":")[2]) for name in ("endpoint", "replay_endpoint")
        )
        events = {
            **info["kv_events"],
            "endpoint_port_base": port,
            "replay_endpoint_port_base": replay,
            "block_size": BLOCK,
        }
        own = {
            "tokenizer_path": str(self._files),
            "page_size": BLOCK,
            "max_total_num_tokens": BLOCK * BLOCKS,
            "enable_cache_report": self.reports,
            "kv_events": events,
        }
        return web.json_response({**info, **own})

    async def loads(self, request: web.Request) -> web.Response:
        return web.json_response(REPLIES["/v1/loads"])


@asynccontextmanager
async def sglang_engine(folder: Path, *, reports: bool) -> AsyncIterator[SgLangEngine]:
    """On the loopback, with one block in its cache; its model's files go to `folder`."""
    write_folder(folder, tiny_bpe())
    context = zmq.asyncio.Context()
    engine = SgLangEngine(folder, context, reports=reports)
    routes = {"/ready": _ready, "/server_info": engine.server_info, "/v1/loads": engine.loads}
    async with served(engine, context, routes):
        yield engine


async def _ready(request: web.Request) -> web.Response:
    return web.Response()
