"""Which engine answers at an address: by what it says of itself in /v1/models."""

from __future__ import annotations

from prefold.backends.engine import Endpoint, Engine, listed_models
from prefold.backends.llama_cpp import LlamaCpp
from prefold.backends.openai_compatible import OpenAICompatible
from prefold.backends.vllm import Vllm

LLAMA_CPP, VLLM, OPENAI = LlamaCpp(), Vllm(), OpenAICompatible()
ENGINES: dict[str, Engine] = {engine.name: engine for engine in (LLAMA_CPP, VLLM, OPENAI)}
OWNED_BY: dict[str, Engine] = {"llamacpp": LLAMA_CPP, "vllm": VLLM}


async def detect(endpoint: Endpoint) -> Engine | None:
    """The adapter, or None while no model is listed; raises BackendError."""
    listed = await listed_models(endpoint)
    if not listed:
        return None
    return OWNED_BY.get(str(listed[0].get("owned_by")), OPENAI)
