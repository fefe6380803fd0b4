"""Rows of made-up ledgers, of which the truth is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from prefold.measurement.ledger.reader import LedgerRow

START = 1_800_000_000.0


def row(number: int = 1, **members: Any) -> LedgerRow:
    """A streamed answer of three tokens: TTFT 100 ms, then one each 20 ms; 600 of 1,000 prompt
    tokens cached, as expected. `ttft` (seconds) moves all of them; `prompt` and `uncached` set all
    counts of the prompt."""
    ttft = members.pop("ttft", 0.1)
    gaps = members.pop("gaps", [0.02, 0.02])
    prompt = members.pop("prompt", 1000)
    cached = prompt - members.pop("uncached", 400)
    tokens = [ttft, *(ttft + np.cumsum(gaps)).tolist()]
    given: dict[str, Any] = {
        "id": number,
        "received": START + number,
        "request_id": None,
        "endpoint": "/v1/chat/completions",
        "model": "m",
        "backend": "b0",
        "labels": {},
        "tenant": None,
        "arm": None,
        "mode": "feedback",
        "reason": "prefix",
        "outcome": "ok",
        "error": None,
        "status": 200,
        "attempts": 1,
        "streamed": True,
        "compression": None,
        "compression_reason": None,
        "original_tokens": prompt,
        "sent_tokens": prompt,
        "removed_tokens": None,
        "prompt_tokens": prompt,
        "available_tokens": cached,
        "expected_tokens": cached,
        "reported_tokens": cached,
        "output_tokens": len(tokens),
        "prefix_tokens": prompt,
        "parsed": 0.001,
        "encoded": 0.002,
        "matched": 0.003,
        "compressed": None,
        "leased": 0.004,
        "sent": 0.005,
        "headers": ttft,
        "first_event": ttft,
        "first_token": tokens[0],
        "last_token": tokens[-1],
        "end": tokens[-1] + 0.001,
        "predicted": None,
        "fallback": None,
        "compressor_waited": None,
        "compressor_spent": None,
        "tokens": tokens,
        "token_kinds": [],
        "other_events": [(tokens[-1], "done")],
        "blocks": [],
        "conversation": number.to_bytes(8, "little"),
        "slice_start": None,
        "round_start": None,
    }
    return LedgerRow(**{**given, **members})


def conversation(number: int) -> bytes:
    return number.to_bytes(8, "little")


def experiment(
    seed: int,
    *,
    conversations: int = 200,
    arms: Iterable[str] = ("control", "treated"),
    fixed_ms: float = 0.0,
    share: float = 0.0,
    tokens_per_s: float = 10_000.0,
) -> list[LedgerRow]:
    """Conversations of one to several turns, in turn to each of the arms. Prefill takes 1 /
    `tokens_per_s` for each uncached token, a queue and a noise of 30 %, more alike within a
    conversation. In the arm named treated, `share` of the prefill is saved and `fixed_ms` are
    spent."""
    random = np.random.default_rng(seed)
    names = tuple(arms)
    rows: list[LedgerRow] = []
    for talk in range(conversations):
        arm = names[talk % len(names)]
        slow = random.lognormal(0, 0.2)
        for _ in range(1 + random.poisson(2)):
            prompt = int(random.integers(200, 8000))
            uncached = int(random.integers(50, prompt))
            prefill = uncached / tokens_per_s * slow * random.lognormal(0, 0.2)
            queue = random.exponential(0.02)
            treated = arm == "treated"
            ttft = 0.03 + queue + prefill * (1 - share * treated) + fixed_ms / 1000 * treated
            rows.append(
                row(
                    len(rows) + 1,
                    arm=arm,
                    conversation=conversation(talk),
                    ttft=ttft,
                    gaps=(0.02 * random.lognormal(0, 0.2, int(random.integers(1, 6)))).tolist(),
                    prompt=prompt,
                    uncached=uncached,
                    outcome="upstream_failed" if random.random() < 0.02 else "ok",
                    backend=f"b{random.integers(0, 2)}",
                )
            )
    return rows


SLICE_S = 600.0
WASHOUT_S = 60.0


def by_slices(
    seed: int,
    *,
    rounds: int = 40,
    requests: int = 12,
    ms_less: float = 0.0,
    reuse: float = 0.0,
    unsettled: float = 0.0,
) -> list[LedgerRow]:
    """Rounds of a slice of each of two arms, in an order by lot. TTFTs follow the load: of the hour
    of the day, and of the slice, which is somewhat like the one before it. In the arm
    named treated they are `ms_less` shorter, and `reuse` more of the prompt is cached, but for
    the share `unsettled` of it in the earlier half of a slice. Conversations have two turns."""
    random = np.random.default_rng(seed)
    rows: list[LedgerRow] = []
    shock = 0.0
    for number in range(2 * rounds):
        if number % 2 == 0:
            order = random.permutation(["control", "treated"])
        arm = str(order[number % 2])
        start = START + number * SLICE_S
        shock = 0.5 * shock + random.normal(0, 0.3)
        load = np.exp(0.8 * np.sin(2 * np.pi * start / 86400) + shock)
        for turn in range(max(2 * round(requests * load / 2), 2)):
            offset = random.uniform(0, SLICE_S)
            treated = arm == "treated"
            early = offset < (WASHOUT_S + SLICE_S) / 2
            share = 0.5 + reuse * treated * (1 - unsettled * early)
            ttft = 0.05 + 0.15 * load * random.lognormal(0, 0.4) - ms_less / 1000 * treated
            rows.append(
                row(
                    len(rows) + 1,
                    received=start + offset,
                    arm=arm if offset >= WASHOUT_S else None,
                    slice_start=start,
                    round_start=start - number % 2 * SLICE_S,
                    conversation=conversation(number * 10_000 + turn // 2),
                    ttft=max(ttft, 0.01),
                    uncached=round(1000 * (1 - share + random.uniform(-0.2, 0.2))),
                    outcome="upstream_failed" if random.random() < 0.02 else "ok",
                )
            )
    return rows
