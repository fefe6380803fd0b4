"""Adapters on replies as recorded from real servers (llama.cpp b11549, vLLM 0.32.0)."""

from typing import Any

import msgspec
import pytest

from prefold.backends.detect import detect
from prefold.backends.engine import (
    BlockCapacity,
    EngineFacts,
    NoPrefixCache,
    PromptReport,
    PromptTokensDetails,
    ServedModel,
    SlotCapacity,
    Timings,
    Usage,
)
from prefold.backends.errors import BackendError
from prefold.backends.llama_cpp import LlamaCpp
from prefold.backends.openai_compatible import OpenAICompatible
from prefold.backends.vllm import Vllm
from tests.support.replies import server

LLAMA_CPP = {
    "/health": {"status": "ok"},
    "/v1/models": {
        "object": "list",
        "data": [
            {
                "id": "smollm2",
                "aliases": ["smollm2", "tiny"],
                "owned_by": "llamacpp",
                "meta": {"n_ctx": 2048, "n_ctx_train": 8192},
            }
        ],
    },
    "/props": {
        "default_generation_settings": {"n_ctx": 2048},
        "total_slots": 2,
        "model_path": "/models/smollm2.gguf",
    },
    "/metrics": (
        "# HELP llamacpp:requests_processing Number of requests processing.\n"
        "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 1\n"
        "# TYPE llamacpp:requests_deferred gauge\nllamacpp:requests_deferred 3\n"
    ),
}
VLLM = {
    "/health": "",
    "/v1/models": {
        "object": "list",
        "data": [
            {
                "id": "smollm2",
                "object": "model",
                "created": 1795964928,
                "owned_by": "vllm",
                "root": "/models/smollm2-hf",
                "parent": None,
                "max_model_len": 2048,
                "permission": [{"id": "modelperm-922f2f64211aedca", "organization": "*"}],
            }
        ],
    },
    "/metrics": (
        "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{engine="0",model_name="smollm2"} 8.0\n'
        "# HELP vllm:num_requests_waiting Number of requests waiting to be processed.\n"
        "# TYPE vllm:num_requests_waiting gauge\n"
        'vllm:num_requests_waiting{engine="0",model_name="smollm2"} 4.0\n'
        "# TYPE vllm:num_requests_waiting_by_reason gauge\n"
        'vllm:num_requests_waiting_by_reason{engine="0",model_name="smollm2",'
        'reason="capacity"} 4.0\n'
        'vllm:num_requests_waiting_by_reason{engine="0",model_name="smollm2",'
        'reason="deferred"} 0.0\n'
        "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n"
        "# TYPE vllm:cache_config_info gauge\n"
        'vllm:cache_config_info{_block_size_resolved="True",block_size="32",cache_dtype="auto",'
        'effective_attention_block_size="32",enable_prefix_caching="True",engine="0",'
        'hash_block_size="None",kv_cache_size_tokens="6400",num_cpu_blocks="None",'
        'num_gpu_blocks="200",num_gpu_blocks_override="200",prefix_caching_hash_algo="sha256",'
        'sliding_window="None",user_specified_block_size="True"} 1.0\n'
        "# TYPE vllm:prompt_tokens counter\n"
        'vllm:prompt_tokens_total{engine="0",model_name="smollm2"} 10115.0\n'
    ),
}


async def test_llama_cpp_is_recognised_and_described() -> None:
    """Slots, one slot's context, load, aliases, and where its model lies."""
    async with server(LLAMA_CPP) as endpoint:
        engine = await detect(endpoint)
        assert isinstance(engine, LlamaCpp)
        source = "/models/smollm2.gguf"
        assert await engine.probe(endpoint) == EngineFacts(
            models=(
                ServedModel(id="smollm2", tokenizer_source=source),
                ServedModel(id="tiny", tokenizer_source=source),
            ),
            capacity=SlotCapacity(slots=2, context_tokens=2048),
            running=1,
            waiting=3,
        )


async def test_vllm_is_recognised_and_described() -> None:
    """Loads are summed, but not over reasons."""
    async with server(VLLM) as endpoint:
        engine = await detect(endpoint)
        assert isinstance(engine, Vllm)
        assert await engine.probe(endpoint) == EngineFacts(
            models=(ServedModel(id="smollm2", tokenizer_source="/models/smollm2-hf"),),
            capacity=BlockCapacity(blocks=200, block_tokens=32),
            running=8,
            waiting=4,
            prompt_tokens_total=10115,
            ranks=1,
        )


async def test_a_vllm_that_keeps_no_prefixes_is_known_as_such() -> None:
    """With --no-enable-prefix-caching its blocks are no prefix cache."""
    on, off = 'enable_prefix_caching="True"', 'enable_prefix_caching="False"'
    metrics = str(VLLM["/metrics"])
    assert on in metrics
    async with server({**VLLM, "/metrics": metrics.replace(on, off)}) as endpoint:
        facts = await Vllm().probe(endpoint)
        assert facts is not None
        assert facts.capacity == NoPrefixCache()


async def test_any_other_server_is_ready_when_it_lists_models() -> None:
    """Everything else about it stays unknown."""
    async with server({"/v1/models": {"data": [{"id": "m"}, {"no": "id"}, 3]}}) as endpoint:
        engine = await detect(endpoint)
        assert isinstance(engine, OpenAICompatible)
        assert await engine.probe(endpoint) == EngineFacts(models=(ServedModel(id="m"),))
        assert await engine.chat_tokens(endpoint, "m", []) is None


@pytest.mark.parametrize("replies", [LLAMA_CPP, VLLM])
async def test_an_engine_that_still_loads_is_not_ready(replies: dict[str, Any]) -> None:
    """A port that accepts, and even lists its models, is not yet an engine that serves."""
    async with server({**replies, "/health": 503}) as endpoint:
        engine = await detect(endpoint)
        assert engine is not None
        assert await engine.probe(endpoint) is None


@pytest.mark.parametrize("replies", [LLAMA_CPP, VLLM])
async def test_without_metrics_load_and_capacity_are_unknown(replies: dict[str, Any]) -> None:
    """Not zero."""
    async with server({**replies, "/metrics": 501, "/props": 404}) as endpoint:
        engine = await detect(endpoint)
        assert engine is not None
        facts = await engine.probe(endpoint)
        assert facts is not None
        assert (facts.running, facts.waiting, facts.capacity) == (None, None, None)


@pytest.mark.parametrize("models", [{}, {"data": []}, {"data": None}, [], 404])
async def test_without_models_there_is_no_engine(models: Any) -> None:
    """Whatever answers there is not (yet) an LLM server."""
    async with server({"/v1/models": models}) as endpoint:
        assert await detect(endpoint) is None


async def test_an_answer_that_is_not_json_is_an_error_of_the_backend() -> None:
    """Mapped to our own exception, whatever the body."""
    async with server({"/v1/models": "<html>"}) as endpoint:
        with pytest.raises(BackendError):
            await detect(endpoint)


async def test_chat_tokens_are_asked_in_each_engines_own_way() -> None:
    """llama.cpp renders, then tokenizes; vLLM does both in one."""
    replies = {"/apply-template": {"prompt": "x"}, "/tokenize": {"tokens": [1, 2]}}
    async with server(replies) as endpoint:
        assert await LlamaCpp().chat_tokens(endpoint, "m", []) == [1, 2]
        assert await Vllm().chat_tokens(endpoint, "m", []) == [1, 2]
    async with server({}) as endpoint:
        assert await LlamaCpp().chat_tokens(endpoint, "m", []) is None
        assert await Vllm().chat_tokens(endpoint, "m", []) is None


@pytest.mark.parametrize(
    ("usage", "timings", "report"),
    [
        (None, None, PromptReport()),
        (Usage(prompt_tokens=9), None, PromptReport(prompt_tokens=9)),
        (
            Usage(prompt_tokens=9, prompt_tokens_details=PromptTokensDetails()),
            None,
            PromptReport(prompt_tokens=9),
        ),
        (
            Usage(prompt_tokens=9, prompt_tokens_details=PromptTokensDetails(cached_tokens=-1)),
            None,
            PromptReport(prompt_tokens=9),
        ),
        (
            Usage(9, 4, PromptTokensDetails(cached_tokens=0)),
            None,
            PromptReport(prompt_tokens=9, cached_tokens=0, completion_tokens=4),
        ),
        (Usage(2**70, 4), None, PromptReport(completion_tokens=4)),
    ],
)
def test_a_report_that_is_missing_stays_unknown(
    usage: Usage | None, timings: Timings | None, report: PromptReport
) -> None:
    """None to the end; a reported zero is a zero."""
    for engine in (LlamaCpp(), Vllm(), OpenAICompatible()):
        assert engine.report(usage, timings) == report


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        (
            '{"prompt_tokens":585,"total_tokens":591,"completion_tokens":6,"prompt_tokens_details":'
            '{"cached_tokens":544,"created_cache_tokens":32,"multimodal_tokens":null},'
            '"completion_tokens_details":null}',
            544,
        ),
        (
            '{"prompt_tokens":585,"total_tokens":591,"completion_tokens":6,'
            '"prompt_tokens_details":null,"completion_tokens_details":null}',
            None,
        ),
        ('{"prompt_tokens":585,"total_tokens":591,"completion_tokens":6}', None),
    ],
    ids=["with details", "without, whole", "without, streamed"],
)
def test_vllms_usage_is_read_as_it_comes(usage: str, cached: int | None) -> None:
    """Cached tokens are told with --enable-prompt-tokens-details only, else unknown."""
    report = Vllm().report(msgspec.json.decode(usage, type=Usage), None)
    assert report == PromptReport(prompt_tokens=585, cached_tokens=cached, completion_tokens=6)


def test_llama_cpps_timings_are_a_report_of_their_own() -> None:
    """They come in every stream, also where no usage was asked for."""
    timings = Timings(cache_n=8, prompt_n=2, prompt_ms=50.0, predicted_n=3)

    assert LlamaCpp().report(None, timings) == PromptReport(
        prompt_tokens=10, cached_tokens=8, completion_tokens=3, prefill_s=0.05
    )
    assert LlamaCpp().report(Usage(prompt_tokens=5), Timings()).prompt_tokens == 5
    for strange in (-1, 2**70):
        assert LlamaCpp().report(None, Timings(cache_n=strange, prompt_n=2)) == PromptReport()
