"""vLLM's pooling endpoint: what is asked of it, and what its answers hold. Pure.

`POST /pooling` with task `token_classify`, as vLLM 0.32 has it: rows of token ids in, and for each
row a number for each token and label, here as base64 of little-endian float32: a quarter of the
bytes of JSON's numbers. Nothing is to be truncated there: a row that is too long is an error.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from prefold.compression.compressor import CompressorGone

LABELS = 2  # not to be kept, to be kept
Scores = npt.NDArray[np.float32]  # of shape (tokens, labels)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """`use_activation` false: logits. A version that does not know a member ignores it."""

    model: str
    input: list[list[int]]
    use_activation: bool
    task: str = "token_classify"
    encoding_format: str = "base64"
    embed_dtype: str = "float32"
    endianness: str = "little"


class Row(msgspec.Struct, frozen=True):
    index: int
    data: str


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int


class Answered(msgspec.Struct, frozen=True):
    model: str
    data: list[Row]
    usage: Usage


class Card(msgspec.Struct, frozen=True):
    """Of a served model. `root` is what it was loaded from: a folder or a hub id."""

    id: str
    root: str | None = None
    max_model_len: int | None = None


class Cards(msgspec.Struct, frozen=True):
    data: list[Card]


class Version(msgspec.Struct, frozen=True):
    version: str


class Tokens(msgspec.Struct, frozen=True):
    tokens: list[int]


def asked(model: str, rows: Sequence[Sequence[int]], *, activated: bool) -> bytes:
    body = Asked(model=model, input=[list(row) for row in rows], use_activation=activated)
    return msgspec.json.encode(body)


def scores(raw: bytes, lengths: Sequence[int]) -> tuple[str, list[Scores]]:
    """The name that the model answers by, and for each row, of so many tokens, its scores; these
    may be no numbers. Raises CompressorGone if it is no answer to such rows."""
    try:
        answer = msgspec.json.decode(raw, type=Answered)
    except msgspec.MsgspecError:
        raise CompressorGone("it answered something else", "nonsense") from None
    if [row.index for row in answer.data] != list(range(len(lengths))):
        raise CompressorGone(
            f"{len(answer.data)} rows came back for {len(lengths)}", "wrong_number_of_rows"
        )
    if answer.usage.prompt_tokens != sum(lengths):
        raise CompressorGone(
            f"it read {answer.usage.prompt_tokens} tokens of {sum(lengths)}",
            "wrong_number_of_tokens",
        )
    rows = zip(answer.data, lengths, strict=True)
    return answer.model, [_of_row(row.data, tokens) for row, tokens in rows]


def _of_row(data: str, tokens: int) -> Scores:
    try:
        values = np.frombuffer(binascii.a2b_base64(data, strict_mode=True), dtype="<f4")
    except ValueError:  # binascii.Error is one
        raise CompressorGone("a row is no base64 of float32", "nonsense") from None
    if len(values) == tokens * LABELS:
        return values.reshape(tokens, LABELS)
    labels, rest = divmod(len(values), tokens)
    if labels and not rest:
        raise CompressorGone(f"it has {labels} labels, not {LABELS}", "wrong_number_of_labels")
    raise CompressorGone(
        f"{len(values)} values came back for {tokens} tokens", "wrong_number_of_tokens"
    )


def kept(logits: Scores) -> npt.NDArray[np.float32]:
    """The probability of the second label, of each token."""
    with np.errstate(all="ignore"):  # what is no number stays none
        odds = logits[:, 0].astype(np.float64) - logits[:, 1]
        return (1 / (1 + np.exp(odds))).astype(np.float32)
