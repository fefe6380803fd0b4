"""What a compressor loses, on real texts: answers, keys, digits and names that are gone.

    python -m tests.compression.quality --compressor lexical surprisal hash \\
        --passages nq_open_oracle.jsonl.xz --pairs kv_retrieval_75_first100.jsonl.xz \\
        --meetings qmsum_test.jsonl.xz

Passages are the gold paragraphs of NQ-open (nelson-liu/lost-in-the-middle), pairs its UUID keys and
values, meetings QMSum's. Of the answers that a text holds, it counts those that the compressed
text still holds, letter for letter, or all words of them. `hash` keeps words by a checksum: what
protection alone is worth.

With `--answers`, what a model answers from the compressed documents instead: SmolLM2-135M-Instruct
of the embedded engine, another one (`--answering`), or one that is served (`--endpoint`). Prints
figures only.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefold.backends.embedded import ensure_engine
from prefold.compression.catalog import CompressorChoice, open_compressor, open_scorer
from prefold.compression.compressor import Compressor, Passage, compress_checked
from prefold.compression.protect import protect
from prefold.compression.scored import ScoredCompressor
from prefold.compression.torch_models import DTYPES, Placement
from prefold.proxy.tokens.gguf_tokenizer import tokenizer_parts
from tests.benchmark.rag.corpus import Question
from tests.compression import answers
from tests.compression.answering import Answering, LocalModel, ServedModel
from tests.compression.remembering import Remembering
from tests.support.hash_scorer import HashScorer

COLUMNS = ("texts", "compressor", "rate", "words", "answers", "their words", "digits", "names")
DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
NAMES = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")  # a capital after a word that ends no sentence
PAIRS = 10  # in a prompt
ANSWER_TOKENS = {"NQ passages": 24, "key-value pairs": 96}  # that key and value have some 35 each


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    text: str
    answers: tuple[str, ...]


def main() -> None:
    options = _arguments()
    if options.answers:
        _answers(options)
    else:
        _losses(options)


def _losses(options: argparse.Namespace) -> None:
    _print(COLUMNS, "---")
    for compressor in (_compressor(name, options) for name in options.compressor):
        for name, cases in _sets(options):
            for protected in (True, False) if options.unprotected else (True,):
                label = compressor.name + ("" if protected else ", no protection")
                for rate in options.rates:
                    shorts = _short(compressor, [case.text for case in cases], rate, protected)
                    _print((name, label, str(rate), *_figures(cases, shorts)))


def _answers(options: argparse.Namespace) -> None:
    model = _answering(options)
    compressors = [_compressor(name, options) for name in options.compressor]
    _print(answers.COLUMNS, "---")
    for name, questions in _questions(options):
        most = ANSWER_TOKENS[name]
        originals = model.answers(questions, most)
        found = answers.compare(questions, originals, originals)
        _print((name, "none", "-", "1.00", f"{found.right:.2f}", "-", "-", "-", "-"))
        texts = list(dict.fromkeys(text for one in questions for text in one.documents))
        for rate in options.rates:
            for compressor in compressors:
                forms = dict(zip(texts, _short(compressor, texts, rate, True), strict=True))
                asked = answers.with_documents(questions, forms)
                found = answers.compare(questions, originals, model.answers(asked, most))
                words = answers.words_of(asked) / answers.words_of(questions)
                start = (name, compressor.name, str(rate), f"{words:.2f}")
                _print((*start, *answers.cells(found)))


def _print(cells: Sequence[str], under: str = "") -> None:
    print("| " + " | ".join(cells) + " |", flush=True)
    if under:
        print(f"|{under}" * len(cells) + "|")


def _compressor(name: str, options: argparse.Namespace) -> Compressor:
    if name == "hash":
        return ScoredCompressor(HashScorer())
    model, tokenizer_json = options.model, None
    if name == "surprisal" and model is None:
        model = str(ensure_engine().model)
    if model is not None and model.endswith(".gguf"):
        tokenizer_json = tokenizer_parts(Path(model)).tokenizer_json
    choice = CompressorChoice(
        name=name,
        model=model,
        tokenizer_json=tokenizer_json,
        placement=Placement(dtype=options.dtype),
    )
    if name in ("surprisal", "llmlingua2"):
        return ScoredCompressor(Remembering(open_scorer(choice)))
    return open_compressor(choice)


def _answering(options: argparse.Namespace) -> Answering:
    if options.endpoint:
        return ServedModel(options.endpoint, options.answering or "")
    return LocalModel(options.answering or str(ensure_engine().model))


def _short(compressor: Compressor, texts: list[str], rate: float, protected: bool) -> list[str]:
    passages = [
        Passage(text=text, rate=rate, protected=protect(text) if protected else ())
        for text in texts
    ]
    results = compress_checked(compressor, passages)
    return [result.text(text) for result, text in zip(results, texts, strict=True)]


def _figures(cases: list[Case], shorts: list[str]) -> tuple[str, ...]:
    """From the column `words` on."""
    words = sum(len(short.split()) for short in shorts) / sum(len(c.text.split()) for c in cases)
    pairs = [
        (answer.lower(), short.lower())
        for case, short in zip(cases, shorts, strict=True)
        for answer in case.answers
        if answer.lower() in case.text.lower()
    ]
    return (
        f"{words:.2f}",
        _share([answer in short for answer, short in pairs]),
        _share([set(answer.split()) <= set(_words(short)) for answer, short in pairs]),
        _found(DIGITS, cases, shorts),
        _found(NAMES, cases, shorts),
    )


def _words(text: str) -> list[str]:
    return text.split() + re.findall(r"[\w'-]+", text)


def _found(pattern: re.Pattern[str], cases: list[Case], shorts: list[str]) -> str:
    return _share(
        [
            one in short
            for case, short in zip(cases, shorts, strict=True)
            for one in pattern.findall(case.text)
        ]
    )


def _share(hits: list[bool]) -> str:
    return f"{sum(hits) / len(hits):.3f}" if hits else "-"


def _sets(options: argparse.Namespace) -> Iterator[tuple[str, list[Case]]]:
    if options.passages:
        rows = _rows(options.passages, options.limit)
        yield (
            "NQ passages",
            [Case(text=row["ctxs"][0]["text"], answers=tuple(row["answers"])) for row in rows],
        )
    if options.pairs:
        rows = _rows(options.pairs, options.limit)
        yield (
            "key-value pairs",
            [
                Case(
                    text=answers.pairs_text(row["ordered_kv_records"]),
                    answers=(row["key"], row["value"]),
                )
                for row in rows
            ],
        )
    if options.meetings:
        rows = _rows(options.meetings, options.limit)
        yield "QMSum meetings", [Case(text=_meeting(row), answers=()) for row in rows]


def _questions(options: argparse.Namespace) -> Iterator[tuple[str, list[Question]]]:
    """Of a random sample of each file's rows."""
    rng = random.Random(options.seed)
    if options.passages:
        rows = _rows(options.passages, options.limit)
        rows = rng.sample(rows, min(options.answers, len(rows)))
        yield (
            "NQ passages",
            answers.passage_questions(rows, documents=options.documents, seed=options.seed),
        )
    if options.pairs:
        rows = _rows(options.pairs, options.limit)[: options.answers]
        yield "key-value pairs", answers.pair_questions(rows, pairs=PAIRS, seed=options.seed)


def _meeting(row: dict[str, Any]) -> str:
    return "\n".join(f"{one['speaker']}: {one['content']}" for one in row["meeting_transcripts"])


def _rows(file: Path, limit: int) -> list[dict[str, Any]]:
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line, _ in zip(lines, range(limit), strict=False)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a compressor loses, on real texts.")
    parser.add_argument("--passages", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--meetings", type=Path)
    parser.add_argument("--compressor", nargs="+", default=["lexical", "hash"])
    parser.add_argument("--model", help="of the compressor")
    parser.add_argument("--dtype", choices=DTYPES, default="auto", help="of the compressor")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.7, 0.5, 0.3])
    parser.add_argument("--limit", type=int, default=3000, help="rows of each file")
    parser.add_argument("--unprotected", action="store_true", help="also without protection")
    parser.add_argument("--answers", type=int, default=0, metavar="QUESTIONS")
    parser.add_argument("--documents", type=int, default=3, help="in a prompt")
    parser.add_argument("--answering", help="model that answers: folder, GGUF file, hub id or name")
    parser.add_argument("--endpoint", help="URL of a server that has it")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
