"""`llmlingua`: the package behind its adapter, in a process of its own, on small models."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from prefold.compression import llmlingua_package_process
from prefold.compression.catalog import CompressorChoice, open_compressor
from prefold.compression.compressor import (
    Compressor,
    CompressorFault,
    CompressorUnavailable,
    Passage,
    compress_checked,
    whole,
)
from prefold.compression.llmlingua_package import PackageCompressor
from prefold.compression.llmlingua_package_process import TupleCaches
from prefold.compression.protect import protect
from tests.compression.package import run_package
from tests.compression.tiny_models import SENTENCES

ENGLISH = " ".join(SENTENCES[:3] * 12)
KINDS = ("llama", "bert", "xlm")
Opened = Callable[[str], Compressor]
pytestmark = pytest.mark.timeout(600)  # every process imports torch


def opened(model: Path, question: str = "") -> Compressor:
    return open_compressor(CompressorChoice(name="llmlingua", model=str(model), question=question))


@pytest.fixture(scope="module")
def compressors(folders: dict[str, Path]) -> Opened:
    """Each is started when it is first asked for, which takes seconds."""

    @cache
    def one(kind: str) -> Compressor:
        if kind == "question":
            return opened(folders["llama"], "Who is the mayor of Springfield?")
        return opened(folders[kind])

    return one


def shorten(compressor: Compressor, text: str, rate: float = 0.5) -> str:
    passage = Passage(text=text, rate=rate, protected=protect(text))
    return compress_checked(compressor, [passage])[0].text(text)


@pytest.mark.parametrize("kind", [*KINDS, "question"])
def test_text_is_shortened_to_spans_of_itself(kind: str, compressors: Opened) -> None:
    """More so at a lower rate, with what is protected in it, and again the same."""
    text = "\n\n".join([ENGLISH, ENGLISH])
    half, tenth = (shorten(compressors(kind), text, rate) for rate in (0.5, 0.1))

    assert len(tenth) < len(half) < len(text)
    for needed in ("1987", "4.2 million", "$1,000"):
        assert needed in tenth
    assert shorten(compressors(kind), text) == half


@pytest.mark.parametrize("kind", ["bert", "xlm"])
def test_words_kept_are_those_of_the_package_called_directly(
    kind: str, folders: dict[str, Path], compressors: Opened
) -> None:
    """Letter for letter, apart from white space, where nothing is protected."""
    [answer] = run_package(folders[kind], [{"texts": [ENGLISH], "rate": 0.4}])

    [result] = compressors(kind).compress([Passage(text=ENGLISH, rate=0.4)])

    assert result.text(ENGLISH).split() != ENGLISH.split()
    assert "".join(result.text(ENGLISH).split()) == "".join(answer["prompt"].split())


def test_caches_sliced_as_lists_give_what_one_pass_gives(folders: dict[str, Path]) -> None:
    """The package's habit on a model of today: the logits after a cache that it cut and gave back
    are those of the same tokens in one pass."""
    import torch
    from transformers import AutoModelForCausalLM

    real: Any = AutoModelForCausalLM.from_pretrained(folders["llama"])
    real.eval()
    model = TupleCaches(real)
    ids = torch.arange(5, 45)[None]
    with torch.no_grad():
        caches = model(ids, past_key_values=None, use_cache=True).past_key_values
        cut = [[keys[:, :, :30], values[:, :, :30]] for keys, values in caches]
        continued = model(
            ids[:, 30:], past_key_values=cut, use_cache=True, attention_mask=torch.ones(1, 40)
        )

    assert torch.allclose(continued.logits, real(ids).logits[:, 30:], atol=1e-5)
    assert continued.past_key_values[0][0].shape[2] == 40


def test_this_process_keeps_its_random_numbers(folders: dict[str, Path]) -> None:
    """The package seeds every generator of the process that it is in."""
    random.seed(7)
    expected = random.Random(7).random()

    opened(folders["bert"])

    assert random.random() == expected


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_what_no_rate_can_change_is_not_asked(kind: str, compressors: Opened) -> None:
    """Empty texts, for which the package has errors, and a rate of 1."""
    for text, rate in (("", 0.5), (" \n", 0.5), (ENGLISH, 1.0)):
        assert compressors(kind).compress([Passage(text=text, rate=rate)]) == [whole(text)]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("bert", "\u2603 " * 9),  # all unknown
        ("bert", "the <|endoftext|> of the committee"),  # a special token to tiktoken
        ("llama", SENTENCES[5] * 12),  # pieces of characters
        ("bert", "the \ud800 bridge over the river"),
    ],
)
def test_where_the_package_fails_it_is_a_fault_and_the_next_text_is_served(
    kind: str, text: str, compressors: Opened
) -> None:
    """Of that text only; the message holds none of it."""
    message = r"^the package(?: failed: [A-Za-z]+Error|'s output is no subsequence of the text)$"
    with pytest.raises(CompressorFault, match=message):
        compressors(kind).compress([Passage(text=text, rate=0.3)])

    assert shorten(compressors(kind), ENGLISH) != ENGLISH


def test_a_classifier_in_a_folder_of_any_name_is_known(
    folders: dict[str, Path], tmp_path: Path, compressors: Opened
) -> None:
    """By its type: the package itself looks for a name in the folder's. The same weights make it
    the same compressor."""
    moved = opened(shutil.copytree(folders["xlm"], tmp_path / "my-model"))

    assert shorten(moved, ENGLISH) == shorten(compressors("xlm"), ENGLISH)
    assert moved.digest == compressors("xlm").digest


def test_what_it_cannot_do_is_said_at_once(folders: dict[str, Path], tmp_path: Path) -> None:
    """A question to a classifier, a classifier of another type, no architecture, no weights."""
    nameless = shutil.copytree(folders["llama"], tmp_path / "nameless")
    config = json.loads((nameless / "config.json").read_bytes())
    (nameless / "config.json").write_text(json.dumps({**config, "architectures": None}))

    for model, question, reason in (
        (folders["bert"], "Why?", "a question needs a causal model"),
        (folders["modernbert"], "", "no LLMLingua-2 for models of type 'modernbert'"),
        (nameless, "", "which architecture"),
        (tmp_path, "", "no model weights"),
    ):
        with pytest.raises(CompressorUnavailable, match=reason):
            opened(model, question)


def test_a_process_that_ended_is_started_anew(folders: dict[str, Path]) -> None:
    """The text it ended with is a fault, the next one is not; a dropped adapter ends its own."""
    compressor = opened(folders["bert"])
    assert isinstance(compressor, PackageCompressor)
    first = compressor.pid
    assert first is not None
    os.kill(first, 9)

    with pytest.raises(CompressorFault, match="has ended"):
        shorten(compressor, ENGLISH)
    assert shorten(compressor, ENGLISH) != ENGLISH

    second = compressor.pid
    assert second not in (first, None)
    del compressor
    for _ in range(100):
        if not Path(f"/proc/{second}").exists():
            break
        time.sleep(0.05)
    assert not Path(f"/proc/{second}").exists()


def test_it_ends_amid_its_work_when_nobody_waits_any_more(folders: dict[str, Path]) -> None:
    """As after a SIGKILL of its parent: its standard input ends, and it gives no answer."""
    order = {"model": str(folders["bert"]), "device": "cpu", "dtype": "auto", "question": ""}

    done = subprocess.run(
        [sys.executable, "-m", llmlingua_package_process.__name__],
        input=json.dumps(order).encode() + b"\n",
        capture_output=True,
        timeout=100,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, b"")


def test_other_questions_and_models_have_other_digests(compressors: Opened) -> None:
    """What decides the output names it."""
    digests = [compressors(kind).digest for kind in (*KINDS, "question")]

    assert len(set(digests)) == len(digests)
