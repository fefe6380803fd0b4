"""Which engine answers at an address: by what it says of itself in /v1/models."""

from __future__ import annotations

from prefold.backends.engine import Endpoint, Engine, listed_models
from prefold.backends.errors import BackendError
from prefold.backends.llama_cpp import LlamaCpp
from prefold.backends.openai_compatible import OpenAICompatible
from prefold.backends.sglang import SgLang
from prefold.backends.tensorrt_llm import TensorRtLlm
from prefold.backends.vllm import Vllm

LLAMA_CPP, VLLM, SGLANG = LlamaCpp(), Vllm(), SgLang()
TENSORRT_LLM, OPENAI = TensorRtLlm(), OpenAICompatible()
ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (LLAMA_CPP, VLLM, SGLANG, TENSORRT_LLM, OPENAI)
}
RANKED: tuple[Engine, ...] = (VLLM, SGLANG)
OWNED_BY: dict[str, Engine] = {
    "llamacpp": LLAMA_CPP,
    "vllm": VLLM,
    "sglang": SGLANG,
    "tensorrt_llm": TENSORRT_LLM,
}


async def detect(endpoint: Endpoint) -> Engine | None:
    """The adapter, or None while no model is listed. Raises BackendError, also where a rank of its
    server is meant and the engine takes no request for one."""
    listed = await listed_models(endpoint)
    if not listed:
        return None
    engine = OWNED_BY.get(str(listed[0].get("owned_by")), OPENAI)
    if endpoint.rank is not None and engine not in RANKED:
        raise BackendError(f"no data-parallel rank {endpoint.rank}: the engine is {engine.name}")
    return engine
