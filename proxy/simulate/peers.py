"""Routing policies of others, from their published descriptions, with their default parameters.

Each is given more than its router has: exact tokens, loads without delay, one process. Units of
text became tokens at 4 characters each. `policies.py` says what each one remembers.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from math import sqrt

from xxhash import xxh3_64_intdigest

from prefold.proxy.simulate.peer import View


def random_choice(view: View) -> int:
    return view.random.randrange(len(view.loads))


def round_robin(view: View) -> int:
    return view.turn % len(view.loads)


def least_load(view: View) -> int:
    """Fewest requests in flight; ties at random."""
    return view.least(load.in_flight for load in view.loads)


def rendezvous(view: View) -> int:
    """Highest random weight (Thaler and Ravishankar, 1998) of the first block after what all
    prompts share. No load term."""
    return max(range(len(view.loads)), key=lambda number: _hash(f"{view.request.opening}/{number}"))


def kubeai(view: View) -> int:
    """KubeAI, PrefixHash: consistent hashing with bounded loads over the first 100 characters of
    the first user message; 256 virtual nodes, at most 1.25 times the mean of requests in flight.
    https://www.kubeai.org/concepts/load-balancing/ The key here is the first block after what all
    prompts share: longer than 100 characters, so that it tells more prompts apart."""
    points, owners = _ring(len(view.loads))
    start = bisect_left(points, _hash(str(view.request.opening)))
    bound = 1.25 * (sum(load.in_flight for load in view.loads) + 1) / len(view.loads)
    for step in range(len(points)):
        number = owners[(start + step) % len(points)]
        if view.loads[number].in_flight + 1 <= bound:
            return number
    return owners[start % len(points)]


@cache
def _ring(backends: int) -> tuple[list[int], list[int]]:
    """Points of the ring in order, and whose they are."""
    ring = sorted((_hash(f"{number}-{copy}"), number) for number in range(backends)
                  for copy in range(256))  # fmt: skip
    return [point for point, _ in ring], [number for _, number in ring]


def sglang(view: View) -> int:
    """SGLang's router, cache_aware: shortest queue for everybody while loads differ by more than
    64 requests and by a factor of 1.5; else the longest match if it is more than 0.3 of the
    prompt; else the shortest queue.
    https://docs.sglang.io/advanced_features/router.html"""
    loads = [load.in_flight for load in view.loads]
    if max(loads) - min(loads) > 64 and max(loads) > 1.5 * min(loads):
        return view.least(loads)
    if max(view.ratios) > 0.3:
        return view.least(loads, view.most_matched())
    return view.least(loads)


def sglang_spill(view: View) -> int:
    """SMG, the router's successor: only the matched worker's own load decides whether it is passed
    over. It is where it exceeds the fleet's mean by a factor of 1.5 and by 64 requests, or by two
    standard deviations of a Poisson count if that is less (at least 4).
    https://github.com/lightseekorg/smg (cache_aware, 1.13)"""
    loads = [load.in_flight for load in view.loads]
    if max(view.ratios) > 0.3:
        number = view.least(loads, view.most_matched())
        mean = sum(loads) / len(loads)
        margin = min(64.0, max(2 * sqrt(mean), 4.0))
        if loads[number] <= mean + margin or loads[number] <= 1.5 * mean:
            return number
    return view.least(loads)


def production_stack(view: View) -> int:
    """vLLM production-stack, prefixaware: any of the endpoints with the longest match. No load
    term. https://docs.vllm.ai/projects/production-stack (router, prefix-aware)"""
    return view.random.choice(view.most_matched())


def production_stack_load(view: View) -> int:
    """vLLM production-stack, loadaware: greatest matched / prompt - beta x (load - mean) /
    max(1, mean) with beta 1; where nobody holds anything, the endpoint with the fewest requests.
    https://github.com/vllm-project/production-stack (routing_logic.py, LoadAwareRouter)"""
    if not max(view.matched):
        return view.least(load.sent for load in view.loads)
    loads = [load.in_flight for load in view.loads]
    mean = sum(loads) / len(loads)
    return view.least(
        (load - mean) / max(1.0, mean) - ratio
        for load, ratio in zip(loads, view.ratios, strict=True)
    )


def llm_d(view: View) -> int:
    """llm-d's scheduler with its default profile: 3 x share of the prompt that is cached + 2 x
    queue (1 for the shortest, 0 for the longest) + 2 x free share of the KV cache.
    https://llm-d.ai/docs/architecture/core/router/epp/scheduling Here a KV cache is in use as far
    as running requests fill it."""
    waiting = [load.waiting for load in view.loads]
    longest, spread = max(waiting), max(waiting) - min(waiting)
    capacity = view.engine.cache_tokens // view.engine.block_tokens
    return view.least(
        -3 * ratio
        - 2 * ((longest - load.waiting) / spread if spread else 1.0)
        - 2 * max(1 - load.blocks / capacity, 0.0)
        for load, ratio in zip(view.loads, view.ratios, strict=True)
    )


def dynamo(view: View) -> int:
    """NVIDIA Dynamo's KV router: least of prefill blocks (active and this request's, less its
    overlap) + decode blocks (active and this request's), weights 1, temperature 0.
    https://docs.nvidia.com/dynamo (KV router, cost calculation)"""
    block = view.engine.block_tokens
    prompt = view.request.prompt_tokens
    return view.least(
        max(load.waiting_tokens + prompt - matched, 0) / block + load.blocks + prompt / block
        for load, matched in zip(view.loads, view.matched, strict=True)
    )


def _hash(text: str) -> int:
    return xxh3_64_intdigest(text.encode())
