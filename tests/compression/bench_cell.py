"""One cell of the benchmark: so many documents of so many tokens, by every way to compress them."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from prefold.compression.compressor import Compressed, Compressor, CompressorUnavailable, Passage
from prefold.compression.llmlingua2 import LLMLingua2Scorer
from prefold.compression.llmlingua2_reference import ReferenceCompressor, ReferenceOptions
from prefold.compression.scored import ScoredCompressor
from prefold.compression.token_classifier import TokenClassifier
from prefold.compression.torch_models import Placement
from tests.compression.decisions import share_alike
from tests.compression.package import cl100k_tokens, run_package
from tests.compression.timing import figures, repeated
from tests.compression.tiny_models import SENTENCES

RATE = 0.5
MOST_ALONE = 8  # documents that the package also gets one by one, if they are short:
SHORT = 1000  # tokens; long ones fill its chunks alone as well as together
JUDGED = 16_000  # tokens on which decisions are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    documents: int
    tokens: int

    @classmethod
    def of(cls, text: str) -> Cell:
        """Of "8x2000"."""
        documents, _, tokens = text.partition("x")
        return cls(documents=int(documents), tokens=int(tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """One model in ours; `int8` is None where the CPU cannot."""

    model: Path
    classifier: TokenClassifier
    reference: ReferenceCompressor
    stable: Compressor
    int8: Compressor | None


def open_ways(model: Path) -> Ways:
    classifier = TokenClassifier(str(model), revision=None, placement=Placement(dtype="float32"))
    int8: Compressor | None = None
    try:
        small = TokenClassifier(str(model), revision=None, placement=Placement(dtype="int8"))
        int8 = ScoredCompressor(LLMLingua2Scorer(small))
    except CompressorUnavailable as error:
        print(error)
    return Ways(
        model=model,
        classifier=classifier,
        reference=ReferenceCompressor(classifier, ReferenceOptions(), cl100k_tokens, "cl100k"),
        stable=ScoredCompressor(LLMLingua2Scorer(classifier)),
        int8=int8,
    )


def measured(ways: Ways, cell: Cell, seconds: float) -> dict[str, Any]:
    """A row of the report; a way that was not taken is None."""
    texts = [_document(ways.classifier, cell.tokens, at) for at in range(cell.documents)]
    package, alone, words, labels, peak = _package(ways.model, texts, cell, seconds)
    results: dict[str, list[Compressed]] = {}
    row: dict[str, Any] = {"documents": cell.documents, "tokens": cell.tokens}
    row |= {"package": package, "one by one": alone}
    for name in ("reference", "stable", "int8"):
        compressor: Compressor | None = getattr(ways, name)
        if compressor is None:
            row[name] = None
            continue
        passages = [Passage(text=text, rate=RATE) for text in texts]
        compressor.compress([Passage(text=texts[0][:400], rate=RATE)])  # warm
        call = partial(compressor.compress, passages)
        results[name], times = repeated(call, seconds)
        row[name] = figures(cell.tokens * cell.documents, times)
    row["equal"] = _equal(ways.reference, texts[: max(1, JUDGED // cell.tokens)], words, labels)
    row["int8_as_fp32"] = None
    if "int8" in results:
        row["int8_as_fp32"] = round(share_alike(texts, results["stable"], results["int8"]), 4)
    row["peak_mb"] = {"package": peak, "ours, both precisions": _peak_mb()}
    row["load"] = round(os.getloadavg()[0], 1)
    return row


def _package(
    model: Path, texts: list[str], cell: Cell, seconds: float
) -> tuple[dict[str, float], dict[str, float] | None, list[str], list[int], int]:
    """Figures of all together and one by one, words and decisions, and megabytes."""
    options = {"rate": RATE, "use_context_level_filter": False}
    single = texts[:MOST_ALONE] if cell.tokens <= SHORT else []
    jobs = [{**options, "texts": [texts[0][:400]]}, {**options, "texts": texts, "seconds": seconds}]
    jobs += [{**options, "texts": [text]} for text in single]
    _, together, *alone = run_package(model, jobs)
    times = [tuple(one) for answer in alone for one in answer["times"]]
    return (
        figures(cell.tokens * cell.documents, together["times"]),
        figures(cell.tokens, times) if times else None,
        together["words"],
        together["labels"],
        together["peak_mb"],
    )


def _equal(
    reference: ReferenceCompressor, texts: list[str], words: list[str], labels: list[int]
) -> float:
    """`words` and `labels` are the package's, of these texts and perhaps of others behind them."""
    judged = reference.judge(texts, [RATE] * len(texts))
    ours = [word for chunks in judged for chunk in chunks for word in chunk.words]
    keep = [int(one) for chunks in judged for chunk in chunks for one in chunk.keep.tolist()]
    if ours != words[: len(ours)]:
        return 0.0
    same = sum(left == right for left, right in zip(keep, labels[: len(keep)], strict=True))
    return float(round(same / len(keep), 6))


def _peak_mb() -> int:
    """Of this process up to now, torch and the model in both precisions in it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _document(classifier: TokenClassifier, tokens: int, number: int) -> str:
    """Of just over `tokens` tokens of the model; every document is another."""
    prose = SENTENCES[:4]
    parts, count = [f"Document {number}."], 0
    while count < tokens:
        sentence = prose[(len(parts) * 7 + number) % len(prose)]
        parts.append(sentence)
        count += len(classifier.tokenizer.encode(sentence, add_special_tokens=False).ids)
    return " ".join(parts)
