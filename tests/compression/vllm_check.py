"""Whether a token classifier on a vLLM server keeps what the same one keeps here. Two steps:

    python -m tests.compression.vllm_check make xlm FOLDER    # or bert, modernbert; random weights
    vllm serve FOLDER/... --port 8010                         # it prints the folder
    python -m tests.compression.vllm_check compare FOLDER/... http://127.0.0.1:8010

A folder with real weights will do as well.
"""

from __future__ import annotations

from pathlib import Path

import click

from prefold.compression.catalog import CompressorChoice, VllmPlace, open_compressor
from prefold.compression.compressor import Passage, compress_checked
from prefold.compression.protect import protect
from tests.compression.tiny_models import (
    SENTENCES,
    Shape,
    bert_folder,
    modern_bert_folder,
    xlm_folder,
)

RATES = (0.3, 0.5, 0.7)
SERVABLE = Shape(layers=2, width=128, heads=4, inner=256)
"""vLLM's attention takes heads of 32 numbers, and no smaller ones."""
MAKERS = {"bert": bert_folder, "xlm": xlm_folder, "modernbert": modern_bert_folder}


def passages() -> list[Passage]:
    """Paragraphs in all orders, one of several windows, and the edges: special tokens in a text,
    a word of thousands of characters, nothing at all."""
    texts = [" ".join(SENTENCES[i:] + SENTENCES[:i]) for i in range(len(SENTENCES))]
    texts += [" ".join(SENTENCES) * 20, "the [SEP] of </s> and <unk> or [PAD] at [CLS] on <s> by"]
    texts += ["x" * 4000, "漢" * 3000, ""]
    return [
        Passage(text=text, rate=rate, protected=protect(text)) for text in texts for rate in RATES
    ]


@click.group()
def main() -> None:
    pass


@main.command()
@click.argument("kind", type=click.Choice(list(MAKERS)))
@click.argument("folder", type=click.Path(path_type=Path))
def make(kind: str, folder: Path) -> None:
    """Write a small model with random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    click.echo(MAKERS[kind](folder, shape=SERVABLE))


@main.command()
@click.argument("folder", type=click.Path(exists=True))
@click.argument("url")
@click.option("--key", default="", help="Of the server.")
def compare(folder: str, url: str, key: str) -> None:
    """Compress the same texts with both."""
    choices = [
        CompressorChoice(name="llmlingua2", model=folder, vllm=place)
        for place in (None, VllmPlace(url=url, api_key=key))
    ]
    here, there = [compress_checked(open_compressor(choice), passages()) for choice in choices]
    equal = sum(one == other for one, other in zip(here, there, strict=True))
    click.echo(f"{equal} of {len(here)} texts are kept alike")


if __name__ == "__main__":
    main()
