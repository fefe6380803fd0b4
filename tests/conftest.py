"""Fixtures on real llama.cpp engines, started once per session and stopped at its end.

Where they cannot run, tests that ask for them are skipped with the reason; with
PREFOLD_REQUIRE_ALL=1 such a skip is a failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, settings

from prefold.backends import engine_process
from prefold.backends.embedded import EnginePaths, ensure_engine, missing_cpu_features
from prefold.backends.wheel_cache import FetchError
from tests.support.requirements import skip_or_fail

# Rules are checked, not how long a busy machine takes to make up examples for them.
settings.register_profile("prefold", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("prefold")


class StartEngine(Protocol):
    """Start an engine that lives to the end of the session; its base URL."""

    def __call__(
        self, slots: int = 2, context_per_slot: int = 2048, chat_template: str | None = None
    ) -> str: ...


@pytest.fixture(scope="session")
def engine_paths() -> EnginePaths:
    if missing := missing_cpu_features():
        skip_or_fail(f"the embedded engine needs a CPU with {', '.join(missing)}")
    try:
        return ensure_engine()
    except FetchError as error:
        skip_or_fail(f"the embedded engine is not here: {error}")


@pytest.fixture(scope="session")
def model_path(engine_paths: EnginePaths) -> Path:
    """SmolLM2-135M-Instruct as a GGUF file."""
    return engine_paths.model


@pytest.fixture(scope="session")
def start_engine(engine_paths: EnginePaths) -> Iterator[StartEngine]:
    with ExitStack() as engines:

        def start(
            slots: int = 2, context_per_slot: int = 2048, chat_template: str | None = None
        ) -> str:
            engine = engine_process.start_engine(
                engine_paths,
                slots=slots,
                context_per_slot=context_per_slot,
                chat_template=chat_template,
            )
            return engines.enter_context(engine).wait_ready()

        yield start


@pytest.fixture(scope="session")
def engine_url(start_engine: StartEngine) -> str:
    """One engine: 2 slots of 2,048 tokens, the model's own chat template."""
    return start_engine()


@pytest.fixture(scope="session")
def two_engine_urls(start_engine: StartEngine) -> tuple[str, str]:
    """Two engines of their own, as `engine_url`."""
    return start_engine(), start_engine()
