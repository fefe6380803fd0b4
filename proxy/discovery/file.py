"""Backends from a file that something else writes: a list of what `[[backends]]` holds, as JSON or
TOML. It is looked at now and then, and read again when it is another one.
"""

from __future__ import annotations

import asyncio
import json
import os
import tomllib
from pathlib import Path
from typing import Any

from prefold.proxy.discovery.sources import DiscoveryError
from prefold.proxy.errors import SettingsError
from prefold.proxy.settings import Backend
from prefold.proxy.settings_file import backends_of

MAX_BYTES = 4 * 1024 * 1024
Seen = tuple[int, int, int]
"""Inode, time of change in ns, size: another one for each way to replace a file."""


class FileSource:
    name = "file"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: Seen | None = None
        self._found: tuple[Backend, ...] | DiscoveryError = ()

    async def look(self) -> tuple[Backend, ...]:
        """An empty list is one: there are no backends. Raises DiscoveryError, the same one again
        while the file stays as it is."""
        return await asyncio.to_thread(self._look)

    def _look(self) -> tuple[Backend, ...]:
        try:
            seen = _seen(self._path)
            if seen != self._seen:
                self._found = self._read()
                # Written meanwhile: it is read again at the next look.
                self._seen = seen if _seen(self._path) == seen else None
        except OSError as error:
            self._seen = None
            raise DiscoveryError(f"cannot read {self._path}: {error.strerror}") from None
        if isinstance(self._found, DiscoveryError):
            raise self._found
        return self._found

    def _read(self) -> tuple[Backend, ...] | DiscoveryError:
        """Raises OSError."""
        with self._path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            return DiscoveryError(f"{self._path}: larger than {MAX_BYTES} bytes")
        try:
            return backends_of(listed(raw, toml=self._path.suffix == ".toml"))
        except (SettingsError, ValueError) as error:
            return DiscoveryError(f"{self._path}: {error}")


def _seen(path: Path) -> Seen:
    now = os.stat(path)
    return now.st_ino, now.st_mtime_ns, now.st_size


def listed(raw: bytes, *, toml: bool) -> Any:
    """What stands for `backends` in it: in TOML that table, in JSON the list itself, or the member
    of that name. Raises ValueError, without any text of the file."""
    try:
        text = raw.decode()
        value = tomllib.loads(text) if toml else json.loads(text)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except tomllib.TOMLDecodeError:
        raise ValueError("not TOML") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("nested too deep") from None
    if isinstance(value, dict) and value.keys() == {"backends"}:
        value = value["backends"]
    if not isinstance(value, list):
        raise ValueError("expected a list of backends, and nothing else")
    return value
