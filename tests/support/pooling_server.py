"""A server that speaks as vLLM 0.32 does with a token classifier: /v1/models, /version, /tokenize
and /pooling, with their fields, checks and errors. What its model says of ids, the test says.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from aiohttp import web
from tokenizers import Tokenizer

from prefold.proxy.listener import listening

Logits = Callable[[Sequence[Sequence[int]]], list[npt.NDArray[np.float32]]]
Fault = Callable[["PoolingServer", web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True, kw_only=True)
class PoolingServer:
    """`key`: guards /v1 alone, as vLLM's does. `aliases`: further names of the model, which answers
    by the first whichever is asked for. `logits`: for each row an array of shape (tokens, labels).
    `fault`: asked first, for each POST /pooling; what it answers goes out. Mutable, so that a test
    can let it fail and recover."""

    tokenizer: Tokenizer
    logits: Logits
    model: str = "keep"
    aliases: tuple[str, ...] = ()
    key: str = "k3y"
    max_model_len: int = 512
    knows_activation: bool = True
    activation: str = "softmax"
    fault: Fault | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def models(self, request: web.Request) -> web.Response:
        card: dict[str, Any] = {"object": "model", "owned_by": "vllm", "root": "folder"}
        card |= {"parent": None, "max_model_len": self.max_model_len}
        cards = [{"id": name, **card} for name in (self.model, *self.aliases)]
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return web.json_response({"object": "list", "data": cards})

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    async def tokenize(self, request: web.Request) -> web.Response:
        asked = await request.json()
        ids = self.tokenizer.encode(
            asked["prompt"], add_special_tokens=asked.get("add_special_tokens", True)
        ).ids
        told = {"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids}
        return web.json_response({**told, "token_strs": None})

    async def pooling(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self.asked.append(asked)
        return self.pooled(asked) if self.fault is None else await self.fault(self, request)

    def pooled(self, asked: dict[str, Any]) -> web.Response:
        if asked["model"] not in (self.model, *self.aliases):
            return error(404, f"The model `{asked['model']}` does not exist.", "NotFoundError")
        if asked.get("task", "token_classify") != "token_classify":
            return error(400, "Unsupported task: it supports ['token_classify']")
        rows = asked["input"]
        for row in rows:
            if len(row) > self.max_model_len:
                return error(400, f"This model's maximum context length is {self.max_model_len}.")
        found = self.logits(rows)
        if asked.get("use_activation") is not False or not self.knows_activation:
            found = [_activated(logits, self.activation) for logits in found]
        return web.json_response(self._answer(rows, found, asked))

    def _answer(
        self,
        rows: Sequence[Sequence[int]],
        found: Sequence[npt.NDArray[np.float32]],
        asked: dict[str, Any],
    ) -> dict[str, Any]:
        in_base64 = asked.get("encoding_format", "float") == "base64"
        little = asked.get("endianness", "native") != "big"

        def data(values: npt.NDArray[np.float32]) -> Any:
            if not in_base64:
                return values.tolist()
            return base64.b64encode(values.astype("<f4" if little else ">f4").tobytes()).decode()

        tokens = sum(map(len, rows))
        return {
            "id": "pooling-1",
            "object": "list",
            "created": 1,
            "model": self.model,
            "data": [
                {"index": index, "object": "pooling", "data": data(values)}
                for index, values in enumerate(found)
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
        }


def error(status: int, message: str, kind: str = "BadRequestError") -> web.Response:
    """As vLLM writes them."""
    body = {"message": message, "type": kind, "param": None, "code": status}
    return web.json_response({"error": body}, status=status)


def answering(status: int, text: str = "") -> Fault:
    """An error, with `text` in its message."""

    async def fault(server: PoolingServer, request: web.Request) -> web.Response:
        return error(status, f"It failed on {text}")

    return fault


async def closing(server: PoolingServer, request: web.Request) -> web.StreamResponse:
    """The connection is closed in place of an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def silent(server: PoolingServer, request: web.Request) -> web.StreamResponse:
    """No answer comes, until whoever asked has left."""
    await asyncio.Event().wait()
    raise AssertionError("it was not cancelled")


def changed(change: Callable[[dict[str, Any]], None]) -> Fault:
    """A sound answer, with a change."""

    async def fault(server: PoolingServer, request: web.Request) -> web.StreamResponse:
        sound = server.pooled(await request.json())
        assert isinstance(sound.body, bytes)
        answer = json.loads(sound.body)
        change(answer)
        return web.json_response(answer)

    return fault


def _activated(logits: npt.NDArray[np.float32], kind: str) -> npt.NDArray[np.float32]:
    if kind == "none":
        return logits
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True), dtype=np.float32)


@asynccontextmanager
async def served(server: PoolingServer, port: int = 0) -> AsyncIterator[str]:
    """Its URL."""
    app = web.Application(client_max_size=64 * 2**20)
    app.add_routes(
        [
            web.get("/v1/models", server.models),
            web.get("/version", server.version),
            web.post("/tokenize", server.tokenize),
            web.post("/pooling", server.pooling),
        ]
    )
    async with listening(app, "127.0.0.1", port) as url:
        yield url
