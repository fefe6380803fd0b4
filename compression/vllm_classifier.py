"""A token classifier on a vLLM server, in place of one in this process: rows of ids go there.

The tokenizer is here, from the model's folder, so that offsets are exact. Its weights are not: what
names them is what the server says of its model, and a revision that the settings give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from prefold.compression import vllm_pooling as pooling
from prefold.compression.compressor import CompressorGone, CompressorUnavailable
from prefold.compression.tokenizer_files import tokenizer_files
from prefold.compression.vllm_server import TextRefused, VllmServer

LONGEST = 512  # as of the models that run here: LLMLingua-2's were trained on so many
SAMPLE = "Als die Fähre 1987 kam, counted she 42 crates: 서울 and 東京 were not among them."
"""Its own text, on which both tokenizers must agree."""


class VllmClassifier:
    """As TokenClassifier is used."""

    def __init__(
        self, url: str, *, folder: str, revision: str | None, served_model: str, api_key: str
    ) -> None:
        """`folder` has the tokenizer; `served_model` "": the first that the server names. Raises
        CompressorUnavailable where the server serves something else, CompressorGone where it cannot
        be asked now."""
        files = tokenizer_files(Path(folder).expanduser())
        self.tokenizer = files.tokenizer
        self.begin_id, self.end_id = files.begin_id, files.end_id
        self.unknown_id = files.unknown_id
        self._server = VllmServer(url, api_key)
        card = _card(self._server, served_model)
        self._model = card.id
        self._answers_as: str | None = None
        """Of several names of a model the first one, whichever was asked for."""
        self.longest = min(LONGEST, card.max_model_len or LONGEST)
        self._check_tokenizer()
        self._logits = self._has_logits()
        version = self._server.told("/version", pooling.Version)
        self.revision = f"{files.digest}/{revision or card.root or card.id}"
        self.options: Mapping[str, object] = {
            "vllm": "" if version is None else version.version,
            "model": card.id,
            "root": card.root,
            "longest": self.longest,
        }

    def probabilities(self, rows: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
        """Of each row's ids, special tokens included. They may be no numbers. Raises TextRefused,
        CompressorGone."""
        if not rows:
            return []
        found = self._scores(rows, activated=False)
        if self._logits:
            return [pooling.kept(row) for row in found]
        return [row[:, 1] for row in found]

    def _scores(self, rows: Sequence[Sequence[int]], *, activated: bool) -> list[pooling.Scores]:
        body = pooling.asked(self._model, rows, activated=activated)
        raw = self._server.post("/pooling", body)
        name, found = pooling.scores(raw, list(map(len, rows)))
        if self._answers_as not in (None, name):
            raise CompressorGone("it answered as another model", "another")
        self._answers_as = name
        return found

    def _check_tokenizer(self) -> None:
        """Scores of other tokens would look like scores. A server without /tokenize is believed."""
        asked = {"model": self._model, "prompt": SAMPLE, "add_special_tokens": False}
        try:
            told = self._server.told("/tokenize", pooling.Tokens, msgspec.json.encode(asked))
        except TextRefused:
            raise CompressorUnavailable("its tokenizer refuses a plain text") from None
        ours = self.tokenizer.encode(SAMPLE, add_special_tokens=False).ids
        if told is not None and told.tokens != ours:
            raise CompressorUnavailable("its tokenizer is not the one of compression.model")

    def _has_logits(self) -> bool:
        """Whether it gives logits when they are asked for; some versions give probabilities even
        then."""
        ids = self.tokenizer.encode(SAMPLE, add_special_tokens=False).ids
        rows = [[self.begin_id, *ids[: self.longest - 2], self.end_id]]
        try:
            [plain], [activated] = (self._scores(rows, activated=on) for on in (False, True))
        except TextRefused:
            raise CompressorUnavailable("it does not pool for task token_classify") from None
        except CompressorGone as error:
            if error.cause in ("wrong_number_of_labels", "wrong_number_of_tokens", "status_404"):
                raise CompressorUnavailable(str(error)) from None
            raise
        if not np.allclose(plain, activated, atol=1e-3):
            return True
        if not np.allclose(activated.sum(axis=1), 1, atol=1e-2):
            raise CompressorUnavailable("it gives neither logits nor probabilities")
        return False


def _card(server: VllmServer, name: str) -> pooling.Card:
    """Raises CompressorUnavailable."""
    cards = server.told("/v1/models", pooling.Cards)
    for card in () if cards is None else cards.data:
        if name in ("", card.id):
            return card
    raise CompressorUnavailable(f"it serves no model {name!r}" if name else "it serves no model")
