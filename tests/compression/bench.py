"""Our `llmlingua2` beside the package `llmlingua`: same model, texts and options, in one run.

    make bench-compression ARGS="--quick"

Random weights in the shapes of the published models, fp32, on this machine's CPU. The package runs
in a process of its own and gets all documents in one call, which is where it batches best; "one by
one" is how a server has to call it for requests of different users. Parity is the share of words
on which our mode `reference` and the package decide alike. On a machine with other load, compare
tokens a CPU second, with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefold.compression.compressor import Compressor, Passage
from prefold.compression.llmlingua2 import LLMLingua2Scorer
from prefold.compression.llmlingua2_reference import ReferenceCompressor, ReferenceOptions
from prefold.compression.scored import ScoredCompressor
from prefold.compression.token_classifier import TokenClassifier
from prefold.compression.torch_models import Placement
from tests.compression.package import cl100k_tokens, run_package
from tests.compression.tiny_models import (
    BERT_BASE,
    SENTENCES,
    TINY,
    XLM_LARGE,
    bert_folder,
    xlm_folder,
)

SHAPES: dict[str, Callable[[Path], Path]] = {
    "tiny": lambda folder: bert_folder(folder, shape=TINY),
    "bert-base": lambda folder: bert_folder(folder, shape=BERT_BASE),
    "xlm-large": lambda folder: xlm_folder(folder, shape=XLM_LARGE),
}
RATE = 0.5
UNITS = ("tokens_per_s", "tokens_per_cpu_s")
Times = tuple[float, float]  # seconds on the clock, seconds of the CPU
MOST_ALONE = 8  # documents that the package also gets one by one


def main() -> None:
    options = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        model = SHAPES[options.shape](Path(folder))
        classifier = TokenClassifier(str(model), revision=None, placement=Placement())
        rows = []
        for tokens in options.tokens:
            for documents in options.documents:
                rows.append(_row(model, classifier, tokens, documents, options.repeats))
                print(json.dumps(rows[-1]), flush=True)
    report = {"machine": _machine(), "shape": options.shape, "rate": RATE, "rows": rows}
    print(json.dumps(report["machine"]))
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1), encoding="utf-8")


def _row(
    model: Path, classifier: TokenClassifier, tokens: int, documents: int, repeats: int
) -> dict[str, Any]:
    """The median and the slowest of all calls, and the tokens a second of the median."""
    texts = [_document(classifier, tokens, number) for number in range(documents)]
    passages = [Passage(text=text, rate=RATE) for text in texts]
    reference = ReferenceCompressor(classifier, ReferenceOptions(), cl100k_tokens, "cl100k")
    stable = ScoredCompressor(LLMLingua2Scorer(classifier))
    together = {"texts": texts, "rate": RATE, "use_context_level_filter": False}
    one_by_one = [{**together, "texts": [text]} for text in texts[:MOST_ALONE]]
    warm_up = {**together, "texts": texts[:1]}
    answers = run_package(model, [warm_up] + [together] * repeats + one_by_one)[1:]
    judged = reference.judge(texts, [RATE] * documents)
    total = tokens * documents
    figures = {
        "package": _figures(total, [_times(answer) for answer in answers[:repeats]]),
        "package one by one": _figures(tokens, [_times(answer) for answer in answers[repeats:]]),
        "reference": _figures(total, _timed(reference, passages, repeats)),
        "stable": _figures(total, _timed(stable, passages, repeats)),
    }
    row: dict[str, Any] = {
        "tokens": tokens,
        "documents": documents,
        "parity": _parity(judged, answers[0]),
    }
    row |= figures
    row["peak_mb"] = {"package": answers[-1]["peak_mb"], "ours": _peak_mb()}
    row["load"] = round(os.getloadavg()[0], 1)
    row["times_the_package"] = {
        name: {unit: round(figures[name][unit] / figures["package"][unit], 2) for unit in UNITS}
        for name in ("reference", "stable")
    }
    return row


def _times(answer: dict[str, Any]) -> Times:
    return answer["seconds"], answer["cpu_seconds"]


def _figures(tokens: int, times: list[Times]) -> dict[str, float]:
    """Of calls with `tokens` tokens each."""
    seconds, cpu = zip(*times, strict=True)
    return {
        "tokens_per_s": round(tokens / statistics.median(seconds), 1),
        "tokens_per_cpu_s": round(tokens / statistics.median(cpu), 1),
        "p50_s": round(statistics.median(seconds), 3),
        "worst_s": round(max(seconds), 3),
        "calls": len(times),
    }


def _peak_mb() -> int:
    """Of this process up to now, the model and torch in it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _timed(compressor: Compressor, passages: list[Passage], repeats: int) -> list[Times]:
    compressor.compress(passages[:1])  # warm
    found = []
    for _ in range(repeats):
        begun, spent = time.perf_counter(), time.process_time()
        compressor.compress(passages)
        found.append((time.perf_counter() - begun, time.process_time() - spent))
    return found


def _parity(judged: list[list[Any]], answer: dict[str, Any]) -> float:
    words = [word for chunks in judged for chunk in chunks for word in chunk.words]
    labels = [int(keep) for chunks in judged for chunk in chunks for keep in chunk.keep.tolist()]
    if words != answer["words"]:
        return 0.0
    same = sum(ours == theirs for ours, theirs in zip(labels, answer["labels"], strict=True))
    return float(round(same / len(labels), 6))


def _document(classifier: TokenClassifier, tokens: int, number: int) -> str:
    """Of just over `tokens` tokens of the model; every document is another."""
    prose = SENTENCES[:4]
    parts, count = [f"Document {number}."], 0
    while count < tokens:
        sentence = prose[(len(parts) * 7 + number) % len(prose)]
        parts.append(sentence)
        count += len(classifier.tokenizer.encode(sentence, add_special_tokens=False).ids)
    return " ".join(parts)


def _machine() -> dict[str, Any]:
    import torch
    import transformers

    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small documents, few of them")
    parser.add_argument("--shape", choices=SHAPES, default="bert-base")
    parser.add_argument("--tokens", type=int, nargs="+", default=[200, 2000, 16000])
    parser.add_argument("--documents", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.quick:
        options.tokens, options.documents, options.repeats = [20, 200, 2000], [1, 8], 1
    return options


if __name__ == "__main__":
    main()
