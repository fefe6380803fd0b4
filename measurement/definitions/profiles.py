"""The profiles: the definitions of seven tools, each as its code has them, and our own.

Where a tool counts tokens with a tokenizer of its own, the tokens of the timeline's chunks stand
in.
"""

from __future__ import annotations

from collections.abc import Callable

from prefold.measurement.definitions import formulas as f
from prefold.measurement.definitions.profile import (
    ANSWER,
    CHOICES,
    CONTENT,
    SPOKEN,
    Metric,
    Profile,
    Samples,
    View,
    tokens_in,
    tokens_in_and_bos,
    tokens_reported,
    tokens_reported_or_chunks,
)

TO_LAST = "to_last_content"
WHOLE = "whole_run"
"""The windows: first send to last content, and to the end of the last body."""


def _ms(
    name: str,
    of: Callable[[View], Samples],
    definition: str,
    weight: Callable[[View], int] | None = None,
) -> Metric:
    return Metric(name=f"{name}_ms", unit="ms", definition=definition, of=of, weight=weight)


def _tps(name: str, of: Callable[[View], Samples], definition: str) -> Metric:
    return Metric(name=name, unit="tokens/s", definition=definition, of=of)


AIPERF = Profile(
    name="aiperf",
    version="0.13.0",
    source="PyPI aiperf 0.13.0",
    accepts=ANSWER,
    counts=tokens_in,
    window=TO_LAST,
    metrics=(
        _ms("ttft", f.first, "first chunk with text, reasoning or tool call - sent"),
        _ms("ttfo", f.first_output, "first such chunk that is no reasoning - sent"),
        _ms("ttst", f.second_after_first, "second such chunk - first"),
        _ms("e2e", f.last, "last such chunk - sent"),
        _ms("itl", f.decode_to_last, "(e2e - ttft) / (N - 1)"),
        _ms("inter_chunk", f.gaps, "gaps between such chunks, pooled"),
        _tps("output_tps_per_user", f.decode_tps, "1 / itl"),
        _tps("e2e_output_tps", f.tps_to_last, "N / e2e"),
        _tps("prefill_tps_per_user", f.prompt_tps, "prompt tokens / ttft, cached ones too"),
    ),
)

GENAI_PERF = Profile(
    name="genai-perf",
    version="0.0.16",
    source="PyPI genai-perf 0.0.16, perf_analyzer repository 263c5f6e",
    accepts=CONTENT,
    counts=tokens_in,
    window=TO_LAST,
    metrics=(
        _ms("ttft", f.first, "first chunk with content - sent; reasoning does not count"),
        _ms("ttst", f.second_after_first, "second such chunk - first"),
        _ms("e2e", f.last, "last such chunk - sent"),
        _ms("itl", f.decode_to_last_ns, "round((e2e - ttft) / (N - 1)) in nanoseconds"),
        _tps("output_tps_per_user", f.decode_tps, "1 / itl"),
    ),
)

LLMPERF = Profile(
    name="llmperf",
    version="f1d6bed",
    source="ray-project/llmperf f1d6bed (December 2024)",
    accepts=CONTENT,
    counts=tokens_in_and_bos,
    window=WHOLE,
    metrics=(
        _ms("ttft", f.first, "first chunk with content - sent"),
        _ms("e2e", f.body, "end of the stream, [DONE] included, - sent"),
        _ms("itl", f.last_per_data_chunk, "(last content - sent) / data chunks, empty ones too"),
        _tps("output_tps_per_user", f.tps_to_end, "N / e2e"),
    ),
    remarks=(
        "it asks for no usage and fails where it is sent: a usage chunk is left out here",
        "its N is a Llama tokenizer's, with one token for the beginning of the sequence",
    ),
)

VLLM = Profile(
    name="vllm",
    version="009e6d4a",
    source="vllm/benchmarks/serve.py 009e6d4a, lib/endpoint_request_func.py 02cfb534",
    accepts=CHOICES,
    counts=tokens_reported,
    window=WHOLE,
    keeps_empty=True,
    metrics=(
        _ms("ttft", f.first, "first chunk with `choices` - sent: the role chunk counts"),
        _ms("e2e", f.last, "last chunk with `choices`, the finish chunk included, - sent"),
        _ms("tpot", f.decode_to_last, "(e2e - ttft) / (N - 1)"),
        _ms("itl", f.gaps, "gaps between chunks with `choices`, pooled"),
    ),
)

SGLANG = Profile(
    name="sglang",
    version="0.5.23",
    source="PyPI sglang 0.5.23, benchmark/serving.py",
    accepts=SPOKEN,
    counts=tokens_reported,
    window=WHOLE,
    metrics=(
        _ms("ttft", f.first, "first chunk with content or reasoning - sent"),
        _ms("e2e", f.body, "last line read, [DONE] included, - sent"),
        _ms("tpot", f.decode_to_end, "(e2e - ttft) / (N - 1)"),
        _ms("itl", f.gaps, "gaps between such chunks, pooled"),
    ),
    remarks=(
        "where no usage is sent it takes the requested length for N, which is not known here",
    ),
)

GUIDELLM = Profile(
    name="guidellm",
    version="0.8.1",
    source="PyPI guidellm 0.8.1",
    accepts=ANSWER,
    counts=tokens_reported_or_chunks,
    window=WHOLE,
    metrics=(
        _ms("ttft", f.first, "first chunk with text, reasoning or tool call - sent"),
        _ms("ttfo", f.first_output, "first such chunk that is no reasoning - sent"),
        _ms("e2e", f.body, "end of the stream - sent"),
        _ms("tpot", f.last_per_token, "(last such chunk - sent) / N: the TTFT is in it"),
        _ms("itl", f.decode_to_last, "(last - first) / (N - 1), weighted by N - 1", f.decode_steps),
        _tps("output_tps_per_user", f.tps_to_end, "N / e2e"),
    ),
    remarks=("it divides by its measured window; here by that from first send to last end",),
)

INFERENCE_PERF = Profile(
    name="inference-perf",
    version="0.7.0",
    source="PyPI inference-perf 0.7.0, repository 7de5ef2e",
    accepts=CONTENT,
    counts=tokens_in,
    window=WHOLE,
    metrics=(
        _ms("ttft", f.first_of_two, "first chunk with content - sent, of answers with N >= 2"),
        _ms("e2e", f.body, "end of the body - sent"),
        _ms("tpot", f.decode_to_last, "(last - first) / (N - 1)"),
        _ms("ntpot", f.body_per_token, "e2e / N"),
        _ms("itl", f.token_gaps, "gaps between tokens, zero within a chunk, pooled"),
    ),
)

PREFOLD = Profile(
    name="prefold",
    version="1",
    source="this project",
    accepts=ANSWER,
    counts=tokens_reported,
    window=TO_LAST,
    metrics=(
        _ms("ttft", f.first, "first chunk with text, reasoning or tool call - sent: prefill"),
        _ms("e2e", f.last, "last such chunk - sent"),
        _ms("tpot", f.decode_to_last, "(e2e - ttft) / (N - 1): decode alone"),
        _ms("e2e_per_token", f.last_per_token, "e2e / N: prefill and decode in one"),
        _ms("gap", f.gaps, "gaps between such chunks, pooled: every stall is one sample"),
        _ms("gap_mean", f.mean_gap, "mean gap of each request"),
        _ms("gap_max", f.largest_gap, "largest gap of each request"),
        _tps("prefill_tps", f.prefill_tps, "prompt tokens that were not cached / ttft"),
    ),
)

PROFILES = {
    profile.name: profile
    for profile in (
        PREFOLD,
        AIPERF,
        GENAI_PERF,
        LLMPERF,
        VLLM,
        SGLANG,
        GUIDELLM,
        INFERENCE_PERF,
    )
}
