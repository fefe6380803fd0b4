"""The official clients, each asked the same way: one request, and what its user would see of it."""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai

FOLDER = Path(__file__).parent
PATIENCE_S = 5.0
# Whatever a client lets out is an error to its user; what it lets out is not always its own.
CLIENT_ERRORS = (
    openai.OpenAIError,
    anthropic.AnthropicError,
    httpx2.HTTPError,
    ValueError,
    AttributeError,
    TypeError,
)


@dataclass(slots=True, kw_only=True)
class Seen:
    """`outcome`: ok, or error if the client raised (or, for the AI SDK, gave an error part)."""

    outcome: str = "ok"
    text: str = ""
    finish: str | None = None
    error: str | None = None
    message: str | None = None

    def take(self, text: str | None, finish: str | None = None) -> None:
        self.text += text or ""
        self.finish = finish or self.finish

    def fail(self, name: str, message: str) -> None:
        self.outcome, self.error, self.message = "error", name, message


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One request through one client."""

    url: str
    path: str
    model: str
    stream: bool
    prompt: str = "hello"
    key: str = "none"


Ask = Callable[[Task], Awaitable[Seen]]


class NodeMissing(Exception):
    """Node, npm, or the packages are not here."""


class NodeClients:
    """One Node process for all requests; they are made one after the other."""

    def __init__(self, process: asyncio.subprocess.Process, versions: Mapping[str, str]) -> None:
        self._process = process
        self._turn = asyncio.Lock()
        self.versions = versions

    async def ask(self, client: str, task: Task) -> Seen:
        line = {
            "client": client,
            "url": task.url,
            "path": task.path,
            "model": task.model,
            "stream": task.stream,
            "prompt": task.prompt,
            "key": task.key,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn, asyncio.timeout(30):
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            return Seen(**json.loads(await self._process.stdout.readline()))


@asynccontextmanager
async def node_clients() -> AsyncIterator[NodeClients]:
    """Raises NodeMissing."""
    node = installed_node()
    process = await asyncio.create_subprocess_exec(
        node,
        str(FOLDER / "clients.mjs"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield NodeClients(process, json.loads(await process.stdout.readline()))
    finally:
        process.stdin.close()
        await process.wait()


def installed_node() -> str:
    """The node program, with what package.json names installed beside it."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NodeMissing("node and npm are not here; install them: apt-get install nodejs npm")
    wanted = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    if not all((FOLDER / "node_modules" / name).is_dir() for name in wanted):
        arguments = ["install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
        installed = subprocess.run([npm, *arguments], cwd=FOLDER, capture_output=True, check=False)
        if installed.returncode:
            raise NodeMissing(f"npm could not install: {installed.stderr.decode()[-300:]}")
    return node


def python_versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "openai": openai.__version__,
        "anthropic": anthropic.__version__,
    }


@asynccontextmanager
async def python_clients() -> AsyncIterator[Mapping[str, Ask]]:
    """The official Python clients by name; their connections are kept from request to request."""
    async with (
        openai.DefaultAsyncHttpxClient() as http,
        anthropic.DefaultAsyncHttpxClient() as messages_http,
    ):
        yield {
            "python": lambda task: _ask_openai(task, http),
            "anthropic": lambda task: _ask_anthropic(task, messages_http),
        }


async def _ask_openai(task: Task, http: httpx2.AsyncClient) -> Seen:
    asks = {
        "/v1/chat/completions": _chat,
        "/v1/completions": _completion,
        "/v1/responses": _response,
    }
    seen = Seen()
    api = openai.AsyncOpenAI(
        base_url=f"{task.url}/v1", api_key=task.key, max_retries=0, timeout=15, http_client=http
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            await asks[task.path](api, task, seen)
    except TimeoutError:
        seen.fail("Waits", "nothing more came")
    except CLIENT_ERRORS as error:
        seen.fail(type(error).__name__, str(error))
    return seen


async def _chat(api: openai.AsyncOpenAI, task: Task, seen: Seen) -> None:
    messages: Any = [{"role": "user", "content": task.prompt}]
    if not task.stream:
        answer = await api.chat.completions.create(model=task.model, messages=messages)
        seen.take(answer.choices[0].message.content, answer.choices[0].finish_reason)
        return
    stream = await api.chat.completions.create(
        model=task.model, messages=messages, stream=True, stream_options={"include_usage": True}
    )
    async for part in stream:
        for choice in (part.choices or ())[:1]:
            seen.take(choice.delta.content if choice.delta else None, choice.finish_reason)


async def _completion(api: openai.AsyncOpenAI, task: Task, seen: Seen) -> None:
    if not task.stream:
        answer = await api.completions.create(model=task.model, prompt=task.prompt)
        seen.take(answer.choices[0].text, answer.choices[0].finish_reason)
        return
    stream = await api.completions.create(
        model=task.model, prompt=task.prompt, stream=True, stream_options={"include_usage": True}
    )
    async for part in stream:
        for choice in (part.choices or ())[:1]:
            seen.take(choice.text, choice.finish_reason)


async def _response(api: openai.AsyncOpenAI, task: Task, seen: Seen) -> None:
    if not task.stream:
        answer = await api.responses.create(model=task.model, input=task.prompt)
        seen.take(answer.output_text, answer.status)
        return
    async for event in await api.responses.create(model=task.model, input=task.prompt, stream=True):
        if event.type == "response.output_text.delta":
            seen.take(event.delta)
        elif event.type in ("response.completed", "response.incomplete"):
            seen.take("", event.type.removeprefix("response."))
        elif event.type in ("response.failed", "error"):
            seen.fail(type(event).__name__, event.type)


async def _ask_anthropic(task: Task, http: httpx2.AsyncClient) -> Seen:
    seen = Seen()
    api = anthropic.AsyncAnthropic(
        base_url=task.url, api_key=task.key, max_retries=0, timeout=15, http_client=http
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            await _message(api, task, seen)
    except TimeoutError:
        seen.fail("Waits", "nothing more came")
    except CLIENT_ERRORS as error:
        seen.fail(type(error).__name__, str(error))
    return seen


async def _message(api: anthropic.AsyncAnthropic, task: Task, seen: Seen) -> None:
    messages: Any = [{"role": "user", "content": task.prompt}]
    if not task.stream:
        answer = await api.messages.create(model=task.model, messages=messages, max_tokens=16)
        text = "".join(block.text for block in answer.content if block.type == "text")
        seen.take(text, answer.stop_reason)
        return
    stream = await api.messages.create(
        model=task.model, messages=messages, max_tokens=16, stream=True
    )
    async for event in stream:
        if event.type == "content_block_delta" and event.delta.type == "text_delta":
            seen.take(event.delta.text)
        elif event.type == "message_delta":
            seen.take("", event.delta.stop_reason)
