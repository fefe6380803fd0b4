"""Preble's E2 policy: exploit the prefix where more is cached than new, else explore.

Srivatsa et al., "Preble: Efficient Distributed Prompt Scheduling for LLM Serving" (ICLR 2025), and
its global scheduler. Cost of a GPU: prefill of what was missed in a window of 3 minutes, and decode
of what runs; above 1.5 times the least, prefixes move to the least.
"""

from __future__ import annotations

from collections import deque

from prefold.proxy.simulate.peer import View

WINDOW_S = 180.0
HIGH_LOAD = 1.5
OUTPUT_TOKENS = 45
"""What an answer is taken for before it is known."""
REQUESTS_BEFORE_REBALANCING = 50
"""For each GPU."""


class Preble:
    """Simplified: a prefix moves when a request for it comes, not at once, and there is no split of
    one prefix by its TTFT."""

    def __init__(self) -> None:
        self._window: deque[tuple[float, int, float]] = deque()
        """Time, backend, seconds of prefill."""
        self._prefill_s: list[float] = []

    def __call__(self, view: View) -> int:
        self._forget(view)
        costs = [
            prefill + load.in_flight * OUTPUT_TOKENS * view.engine.token_s
            for prefill, load in zip(self._prefill_s, view.loads, strict=True)
        ]
        number = self._choose(view, costs)
        missed = view.request.prompt_tokens - view.matched[number]
        seconds = missed / view.engine.prefill_tokens_per_s
        self._window.append((view.now, number, seconds))
        self._prefill_s[number] += seconds
        return number

    def _choose(self, view: View, costs: list[float]) -> int:
        cached = max(view.matched)
        if cached <= view.request.prompt_tokens - cached:
            return view.least(costs)
        number = view.least(costs, view.most_matched())
        warm = view.turn >= REQUESTS_BEFORE_REBALANCING * len(costs)
        if warm and costs[number] > HIGH_LOAD * min(costs):
            return view.least(costs)
        return number

    def _forget(self, view: View) -> None:
        if not self._prefill_s:
            self._prefill_s = [0.0] * len(view.loads)
        while self._window and self._window[0][0] < view.now - WINDOW_S:
            _, number, seconds = self._window.popleft()
            self._prefill_s[number] -= seconds
