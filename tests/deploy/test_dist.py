"""What `make dist` builds, in an environment of its own, away from the repository."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from prefold import __version__
from tests.support.upstream import DONE, delta, scripted, stream

ROOT = Path(__file__).parents[2]
FOLDERS = ("proxy", "prefix_index", "backends", "compression", "measurement")
LEFT_OUT = {"__pycache__", ".mypy_cache", ".ruff_cache"}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from the sdist, as an index would."""
    folder = tmp_path_factory.mktemp("dist")
    run(ROOT, sys.executable, "-m", "build", "--outdir", folder, ROOT)
    assert list(folder.glob("*.tar.gz"))
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def prefold(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, installed with what it requires and nothing more."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=True)
    run(folder, folder / "bin" / "python", "-m", "pip", "install", "--quiet", wheel)
    return folder / "bin" / "prefold"


def run(folder: Path, *command: str | Path) -> str:
    """What it prints on standard output; fails the test with all that it said."""
    done = subprocess.run(
        [*map(str, command)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_of(folder: str) -> Iterator[str]:
    for path in (ROOT / folder).rglob("*"):
        if path.is_file() and not LEFT_OUT & set(path.parts):
            yield f"prefold/{path.relative_to(ROOT).as_posix()}"


def test_the_wheel_holds_every_file_of_the_five_folders(wheel: Path) -> None:
    """They are links in src/prefold; pages and data beside the code go with them."""
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {"prefold/__init__.py", "prefold/py.typed"}
    for folder in FOLDERS:
        expected |= set(files_of(folder))

    assert expected <= names
    assert not [name for name in names if name.startswith("tests/")]


def test_the_installed_command_says_its_version(prefold: Path, tmp_path: Path) -> None:
    """Of the repository it came from, without it."""
    assert run(tmp_path, prefold, "--version").strip() == f"prefold, version {__version__}"


def test_the_installed_command_simulates(prefold: Path, tmp_path: Path) -> None:
    """It takes numpy and the routing, and no server."""
    told = run(tmp_path, prefold, "simulate", "--synthetic", "unique", "--requests", "50")

    assert "50 requests" in told


async def test_the_installed_command_serves(prefold: Path, tmp_path: Path) -> None:
    """One request, through the official client, to a scripted backend."""
    async with scripted(stream(delta("Hi"), delta(finish="stop"), DONE)) as upstream:
        process = await asyncio.create_subprocess_exec(
            *(prefold, "serve", "--port", "0", "--admin-port", "0", "--backend", upstream.url),
            cwd=tmp_path,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            url = await listening_at(process)
            async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
                events = await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "Hello"}], stream=True
                )
                texts = [event.choices[0].delta.content async for event in events]
        finally:
            process.kill()
            await process.wait()

    assert texts[0] == "Hi"


async def listening_at(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async for line in process.stderr:
        if found := re.search(r"prefold listens on (\S+),", line.decode()):
            return found[1]
    raise AssertionError("it ended before it listened")
