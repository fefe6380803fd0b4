"""`prefold compress`: what a compressor makes of a text, for anyone to look at."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click
from tokenizers import Tokenizer

from prefold.backends.embedded import model_path
from prefold.compression.catalog import MODES, NAMES, CompressorChoice, open_compressor
from prefold.compression.compressor import (
    Compressed,
    Compressor,
    CompressorUnavailable,
    Passage,
    compress_checked,
)
from prefold.compression.protect import Protection, protect
from prefold.compression.token_weights import TokenWeights
from prefold.compression.torch_models import DTYPES, Placement
from prefold.proxy.errors import TokenizerError
from prefold.proxy.progress import working
from prefold.proxy.tokens.gguf_tokenizer import tokenizer_parts


@click.command()
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option(
    "--compressor", "name", type=click.Choice(NAMES), default="lexical", show_default=True
)
@click.option("--rate", type=click.FloatRange(0, 1, min_open=True), default=0.5, show_default=True,
              help="Share of the words to keep; of the tokens, with --tokenizer.")  # fmt: skip
@click.option("--model", metavar="PATH", help="Folder or hub id of the compressor's model; for "
              "surprisal also a GGUF file, by default the embedded engine's.")  # fmt: skip
@click.option("--mode", type=click.Choice(MODES), default="stable", show_default=True,
              help="Of llmlingua2; reference decides as the package llmlingua does.")  # fmt: skip
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...")
@click.option("--dtype", type=click.Choice(DTYPES), default="auto", show_default=True,
              help="Precision of a model: auto is float32 on a CPU, where int8 is faster, and "
              "bfloat16 elsewhere.")  # fmt: skip
@click.option("--language", default="en", show_default=True, help="Of lexical, for Latin letters.")
@click.option("--question", default="",
              help="Of llmlingua with a causal model: makes it LongLLMLingua.")  # fmt: skip
@click.option("--tokenizer", metavar="FILE", type=click.Path(exists=True, path_type=Path),
              help="tokenizer.json, its folder or a GGUF file: count in its tokens.")  # fmt: skip
@click.option("--keep", "markers", nargs=2, multiple=True, metavar="OPENING CLOSING",
              help="Markers between which nothing is cut.")  # fmt: skip
@click.option("--quotes", nargs=2, multiple=True, metavar="OPENING CLOSING",
              help="Quotation marks whose contents stay.")  # fmt: skip
@click.option("--no-protection", is_flag=True, help="Let code, numbers and names be cut too.")
@click.option("--json", "as_json", is_flag=True, help="Text, spans kept, counts and seconds.")
def compress(
    file: Path | None,
    name: str,
    rate: float,
    model: str | None,
    mode: str,
    device: str,
    dtype: str,
    language: str,
    question: str,
    tokenizer: Path | None,
    markers: tuple[tuple[str, str], ...],
    quotes: tuple[tuple[str, str], ...],
    no_protection: bool,
    as_json: bool,
) -> None:
    """Shorten a text, from FILE or standard input, and print what is left of it."""
    text = _read(file)
    try:
        counter = _tokenizer(tokenizer) if tokenizer else None
        placement = Placement(device=device, dtype=dtype)
        with working(f"opening {name}"):
            compressor = open_compressor(
                _choice(name, model, mode, language, question, placement),
                TokenWeights(counter) if counter else None,
            )
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
    except (CompressorUnavailable, TokenizerError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    rules = Protection(keep=markers or Protection().keep, quotes=quotes)
    begun = time.perf_counter()
    spans = () if no_protection else protect(text, rules)
    passage = Passage(text=text, rate=rate, protected=spans)
    with working("shortening"):
        [result] = compress_checked(compressor, [passage])
    seconds = time.perf_counter() - begun
    if as_json:
        click.echo(json.dumps(_report(passage, result, compressor, counter, seconds)))
    else:
        click.echo(result.text(text), nl=False)


def _read(file: Path | None) -> str:
    """Line ends stay as they are."""
    body = file.read_bytes() if file else sys.stdin.buffer.read()
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise click.ClickException("the text is not UTF-8") from None


def _choice(
    name: str,
    model: str | None,
    mode: str,
    language: str,
    question: str,
    placement: Placement,
) -> CompressorChoice:
    """With the embedded engine's model for surprisal, where it has been fetched."""
    tokenizer_json = None
    if name == "surprisal" and model is None and (embedded := model_path()):
        model = str(embedded)
    if model and model.endswith(".gguf"):
        tokenizer_json = tokenizer_parts(Path(model)).tokenizer_json
    return CompressorChoice(
        name=name,
        model=model,
        mode=mode,
        language=language,
        placement=placement,
        tokenizer_json=tokenizer_json,
        question=question,
    )


def _tokenizer(path: Path) -> Tokenizer:
    """Raises ValueError or TokenizerError."""
    if path.suffix == ".gguf":
        return Tokenizer.from_str(tokenizer_parts(path).tokenizer_json)
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        return Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as error:  # noqa: BLE001 - the library raises bare Exception
        raise ValueError(f"{file} is no tokenizer: {type(error).__name__}") from None


def _report(
    passage: Passage,
    result: Compressed,
    compressor: Compressor,
    counter: Tokenizer | None,
    seconds: float,
) -> dict[str, Any]:
    """`tokens` is null without a tokenizer: words are no tokens."""
    left = result.text(passage.text)
    return {
        "text": left,
        "kept": [list(span) for span in result.kept],
        "protected": [list(span) for span in passage.protected],
        "tokens": _counts(passage.text, left, counter) if counter else None,
        "words": {"before": len(passage.text.split()), "after": len(left.split())},
        "seconds": round(seconds, 6),
        "rate": passage.rate,
        "compressor": {
            "name": compressor.name,
            "revision": compressor.revision,
            "digest": compressor.digest,
        },
    }


def _counts(before: str, after: str, counter: Tokenizer) -> dict[str, int]:
    counts = [len(counter.encode(text, add_special_tokens=False).ids) for text in (before, after)]
    return {"before": counts[0], "after": counts[1]}
