"""`prefold demo --compression`: what the gate decides before two real engines, and what it gains.

The same questions go through a proxy without compression and one with it, each before fresh
engines. What a request gained is the difference of its two measured TTFTs.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, cast

import openai
from openai.types.chat import ChatCompletionMessageParam
from rich import box
from rich.console import Console
from rich.table import Table

from prefold.backends.embedded import MODEL_NAME, EnginePaths
from prefold.backends.engine_process import start_engine
from prefold.proxy.compression.switch import HEADER
from prefold.proxy.demo.arm import (
    MAX_TOKENS,
    MODEL_ALIAS,
    Arm,
    DemoError,
    proxy_config,
    proxy_process,
)
from prefold.proxy.demo.client import parse_decision
from prefold.proxy.demo.machine import describe_machine
from prefold.proxy.demo.rag_workload import DOCUMENTS, SITUATIONS, Question, build_questions

BACKENDS, SLOTS, CONTEXT = 2, 8, 2048
LEGEND = (
    "TTFT (prefill side): request sent to first chunk with content, as the client saw it; medians. "
    "Predicted: what the gate told it expects to gain over sending the original there and then. "
    "Gained: TTFT without compression less TTFT with it, of the same question. The two differ "
    "where engines without compression hold what the gate would have had to compute: the originals "
    "of documents that came before."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    mode: str
    compressor: str
    questions: int
    """Of each situation."""
    document_tokens: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question as its client saw it; `told` is the header's content."""

    situation: str
    ttft_s: float
    prompt_tokens: int
    told: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SituationReport:
    """Medians; None where nothing was predicted."""

    situation: str
    forms: dict[str, int]
    prompt_tokens: int
    sent_tokens: int
    ttft_off_ms: float
    ttft_ms: float
    predicted_gain_ms: float | None
    measured_gain_ms: float


def run_gate_demo(
    options: GateOptions,
    paths: EnginePaths,
    console: Console,
    logs: Path,
    json_file: str | None,
    ledger: Path | None,
) -> bool:
    """Raises DemoError, EngineStartError; True where all were answered, as anything else raises."""
    if options.compressor == "lexical" and importlib.util.find_spec("wordfreq") is None:
        raise DemoError("lexical is an extra: pip install 'prefold[compression-lexical]'")
    questions = build_questions(
        seed=options.seed, each=options.questions, document_tokens=options.document_tokens
    )
    console.print(
        f"{MODEL_NAME} on {BACKENDS} llama.cpp backends of 1 thread; prompts of {DOCUMENTS} "
        f"documents of about {options.document_tokens} tokens, one request at a time; compressor "
        f"{options.compressor}, mode {options.mode}.",
        highlight=False,
    )
    with console.status("running without compression"):
        off = _arm("off", options, paths, questions, logs, ledger)
    with console.status(f"running with mode {options.mode}"):
        on = _arm(options.mode, options, paths, questions, logs, ledger)
    reports = summarise(off, on)
    console.print(as_table(reports), LEGEND, highlight=False)
    if json_file is not None:
        data = json.dumps(
            {
                "machine": describe_machine(),
                "settings": asdict(options),
                "definitions": LEGEND,
                "situations": [asdict(report) for report in reports],
            },
            indent=2,
        )
        if json_file == "-":
            print(data)
        else:
            Path(json_file).write_text(data + "\n")
    return True


def summarise(off: Sequence[Asked], on: Sequence[Asked]) -> list[SituationReport]:
    """Of the same questions in the same order."""
    reports = []
    for situation in SITUATIONS:
        pairs = [
            (before, after)
            for before, after in zip(off, on, strict=True)
            if after.situation == situation
        ]
        if not pairs:
            continue
        gains = [
            float(after.told["predicted_gain_s"]) * 1000
            for _, after in pairs
            if "predicted_gain_s" in after.told
        ]
        forms = Counter(
            f"{after.told.get('form', 'original')} ({after.told.get('reason', 'short')})"
            for _, after in pairs
        )
        reports.append(
            SituationReport(
                situation=situation,
                forms=dict(forms),
                prompt_tokens=round(median(before.prompt_tokens for before, _ in pairs)),
                sent_tokens=round(median(after.prompt_tokens for _, after in pairs)),
                ttft_off_ms=_ms([before.ttft_s for before, _ in pairs]),
                ttft_ms=_ms([after.ttft_s for _, after in pairs]),
                predicted_gain_ms=round(median(gains), 1) if gains else None,
                measured_gain_ms=_ms([before.ttft_s - after.ttft_s for before, after in pairs]),
            )
        )
    return reports


def as_table(reports: Sequence[SituationReport]) -> Table:
    table = Table(
        title="Medians, times in milliseconds",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for heading in ("documents", "sent as"):
        table.add_column(heading, no_wrap=True)
    for heading in ("tokens", "TTFT off", "TTFT", "predicted", "gained"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in reports:
        predicted = one.predicted_gain_ms
        table.add_row(
            one.situation,
            "\n".join(one.forms),
            f"{one.prompt_tokens}->{one.sent_tokens}",
            f"{one.ttft_off_ms:,.0f}",
            f"{one.ttft_ms:,.0f}",
            "-" if predicted is None else f"{predicted:,.0f}",
            f"{one.measured_gain_ms:,.0f}",
        )
    return table


def _arm(
    mode: str,
    options: GateOptions,
    paths: EnginePaths,
    questions: Sequence[Question],
    logs: Path,
    ledger: Path | None,
) -> list[Asked]:
    arm = Arm(
        policy="prefix",
        cache="roomy",
        backends=BACKENDS,
        slots=SLOTS,
        context_per_slot=CONTEXT,
        clients=1,
    )
    more = ["[compression]", f"mode = {json.dumps(mode)}", "min_tokens = 256"]
    more += [f"compressor = {json.dumps(options.compressor)}", "deadline_s = 5.0"]
    with ExitStack() as stack:
        urls = {}
        for number in range(BACKENDS):
            log = stack.enter_context((logs / f"{mode}-engine-{number}.log").open("w+b"))
            engine = start_engine(
                paths, slots=SLOTS, context_per_slot=CONTEXT, alias=MODEL_ALIAS, log=log
            )
            urls[f"engine-{number}"] = stack.enter_context(engine).wait_ready()
        url = stack.enter_context(
            proxy_process(
                mode,
                lambda ports: proxy_config(
                    arm, urls, paths.model, ports, more, label=f"compression-{mode}", ledger=ledger
                ),
                logs,
            )
        )
        return asyncio.run(_ask_all(url, questions, compressed=mode != "off"))


async def _ask_all(url: str, questions: Sequence[Question], *, compressed: bool) -> list[Asked]:
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="demo", max_retries=0, timeout=300.0
    ) as api:
        if compressed:
            await _until_ready(api, questions[0])
        return [await _ask(api, question) for question in questions]


async def _until_ready(api: openai.AsyncOpenAI, like: Question) -> None:
    """The compressor's process takes seconds to start; until then nothing is told of it. The
    question that finds out is not one of those that are measured."""
    probe = Question(
        situation="",
        messages=({"role": "system", "content": "Wait."}, *like.messages[1:]),
        mode="shadow",
    )
    deadline = time.monotonic() + 120.0
    while not (await _ask(api, probe)).told:
        if time.monotonic() > deadline:
            raise DemoError("the compressor did not start")
        await asyncio.sleep(0.2)


async def _ask(api: openai.AsyncOpenAI, question: Question) -> Asked:
    """Raises DemoError: one question without an answer leaves nothing to compare."""
    headers = {HEADER: question.mode} if question.mode is not None else {}
    begun, first, usage = time.perf_counter(), None, None
    try:
        stream = await api.chat.completions.create(
            model=MODEL_ALIAS,
            messages=cast(list[ChatCompletionMessageParam], list[Any](question.messages)),
            stream=True,
            stream_options={"include_usage": True},
            max_tokens=MAX_TOKENS,
            temperature=0.0,
            extra_headers=headers,
        )
        async for chunk in stream:
            if first is None and any(choice.delta.content for choice in chunk.choices):
                first = time.perf_counter()
            usage = chunk.usage or usage
    except openai.OpenAIError as error:
        raise DemoError(f"a request failed: {type(error).__name__}") from None
    if first is None or usage is None:
        raise DemoError("an answer held no content or no usage")
    return Asked(
        situation=question.situation,
        ttft_s=first - begun,
        prompt_tokens=usage.prompt_tokens,
        told=parse_decision(stream.response.headers.get(HEADER, "")),
    )


def _ms(seconds: Sequence[float]) -> float:
    return round(median(seconds) * 1000, 1)
