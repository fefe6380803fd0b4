"""A secret that outlives the process, so that digests of today and of tomorrow can be compared."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def kept_secret(path: Path) -> str:
    """That of the file, which is made, for its owner only, if there is none. Raises OSError, and
    ValueError if the file holds no secret."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = secrets.token_hex(32)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        found = path.read_text(encoding="ascii").strip()
        if len(found) < len(made):
            raise ValueError(f"{path} holds no secret") from None
        return found
    with os.fdopen(descriptor, "w") as file:
        file.write(made + "\n")
    return made
