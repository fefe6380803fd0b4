"""The programs in examples/, as a reader would start them, before a scripted backend."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.proxy import proxy_before
from tests.support.requirements import skip_or_fail
from tests.support.upstream import DONE, Script, delta, event, scripted, stream
from tests.wire import clients

EXAMPLES = Path(__file__).parents[2] / "examples"
USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 2,
    "total_tokens": 42,
    "prompt_tokens_details": {"cached_tokens": 32},
}
CHAT = stream(
    delta("Paris", role="assistant"),
    delta(finish="stop"),
    event(id="c1", object="chat.completion.chunk", created=1, model="m", choices=[], usage=USAGE),
    DONE,
)


def message_events() -> Script:
    """Of a Messages stream."""
    usage = {"input_tokens": 8, "cache_read_input_tokens": 32, "output_tokens": 2}
    message = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": []}
    listed: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "usage": usage}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Paris"},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]
    return stream(*(f"event: {one['type']}\n".encode() + event(**one) for one in listed))


async def said(command: list[str], script: Script) -> str:
    """What the program prints."""
    async with scripted(script) as upstream, proxy_before([upstream.url]) as proxy:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, "PREFOLD_URL": proxy.url, "PREFOLD_MODEL": "m"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_the_openai_client_of_python() -> None:
    """The answer, and the cached tokens of its usage."""
    told = await said([sys.executable, str(EXAMPLES / "openai_python.py")], CHAT)

    assert told == "Paris\n40 prompt tokens, of which cached: 32\n"


async def test_the_anthropic_client_of_python() -> None:
    """Messages, with what was read from the cache."""
    told = await said([sys.executable, str(EXAMPLES / "anthropic_python.py")], message_events())

    assert told == "Paris\n8 input tokens, read from the cache: 32\n"


@pytest.mark.parametrize(
    ("name", "counted"),
    [("openai_node.mjs", "40 prompt tokens"), ("ai_sdk.mjs", "40 input tokens")],
)
async def test_the_clients_of_node(name: str, counted: str, tmp_path: Path) -> None:
    """With the packages that the wire tests install."""
    try:
        node = clients.installed_node()
    except clients.NodeMissing as error:
        skip_or_fail(str(error))
    (tmp_path / "node_modules").symlink_to(clients.FOLDER / "node_modules")
    program = shutil.copy(EXAMPLES / name, tmp_path)

    told = await said([node, str(program)], CHAT)

    assert told == f"Paris\n{counted}, of which cached: 32\n"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.name)
def test_every_python_example_compiles_and_says_what_it_takes(file: Path) -> None:
    """The first line is what a reader types."""
    text = file.read_text("utf-8")

    compile(text, str(file), "exec")
    assert text.startswith('"""pip install ')
    assert text.splitlines()[0].endswith(f'python examples/{file.name}"""')
