"""What the official Node client makes of sound and of cut streams."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import TypedDict

import pytest

from tests.support.proxy import proxy_before
from tests.support.requirements import skip_or_fail
from tests.support.upstream import DONE, Script, Step, chunk, delta, event, head, scripted, stream

FOLDER = Path(__file__).parent
ROLE = delta("", role="assistant")


class Seen(TypedDict):
    text: str
    finish: str | None
    error: str | None


@pytest.fixture(scope="module")
def node() -> str:
    """The node program, with the client installed beside the script."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program is None or npm is None:
        skip_or_fail("node and npm are not here; install them: apt-get install nodejs npm")
    if not (FOLDER / "node_modules" / "openai").is_dir():
        arguments = ["install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
        installed = subprocess.run([npm, *arguments], cwd=FOLDER, capture_output=True, check=False)
        if installed.returncode:
            skip_or_fail(f"npm could not install the client: {installed.stderr.decode()[-300:]}")
    return program


async def streamed(node: str, url: str) -> Seen:
    process = await asyncio.create_subprocess_exec(
        node, str(FOLDER / "stream.mjs"), url, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    seen: Seen = json.loads(output)
    return seen


async def test_a_sound_stream_is_whole(node: str) -> None:
    """Text, finish reason, no error."""
    script = stream(ROLE, delta("Hi"), delta(" there"), delta(finish="stop"), DONE)
    async with scripted(script) as upstream, proxy_before([upstream.url]) as server:
        seen = await streamed(node, server.url)

    assert seen == {"text": "Hi there", "finish": "stop", "error": None}


@pytest.mark.parametrize(
    "end",
    [
        [Step.CLOSE],
        [Step.RESET],
        [b"0\r\n\r\n"],
        [chunk(b'data: {"choices'), Step.CLOSE],
        [chunk(event(object="error", message="boom", code=500)), chunk(DONE), b"0\r\n\r\n"],
        [chunk(event(error={"message": "boom", "type": "server_error"})), b"0\r\n\r\n"],
    ],
    ids=["close", "reset", "clean end", "in event", "flat error", "error object"],
)
async def test_a_stream_cut_in_the_middle_is_an_error(node: str, end: Script) -> None:
    """Never a short answer without one."""
    script = [head(), chunk(ROLE), chunk(delta("Hi")), *end]
    async with scripted(script) as upstream, proxy_before([upstream.url]) as server:
        seen = await streamed(node, server.url)

    assert seen["error"] is not None
    assert seen["finish"] is None
