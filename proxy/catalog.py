"""Models by name: aliases, and the encoder of each model whose tokenizer is known."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefold.proxy.errors import BadRequest, ModelNotFound, NoBackendAvailable, TokenizerError
from prefold.proxy.tokens.chat_template import Dialect
from prefold.proxy.tokens.encoder import Encoder
from prefold.proxy.tokens.tokenizer import LoadedTokenizer, load_tokenizer

DIALECTS: Mapping[str, Dialect] = {dialect.value: dialect for dialect in Dialect}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Configured for one model: "" where nothing is configured."""

    tokenizer: str = ""
    chat_template: str = ""


class ModelCatalog:
    """Mutable: encoders are added as backends are found; `close` ends their threads."""

    def __init__(
        self,
        sources: Mapping[str, ModelSource],
        aliases: Mapping[str, str],
        *,
        memo_bytes: int,
        inline_chars: int,
        alone: bool = True,
    ) -> None:
        """The last three are those of each Encoder."""
        self._sources = sources
        self._aliases = aliases
        self._memo_bytes = memo_bytes
        self._inline_chars = inline_chars
        self._alone = alone
        self._encoders: dict[str, Encoder] = {}
        self._problems: dict[str, str] = {}
        self._dialects: dict[str, Dialect] = {}
        self._loading = asyncio.Lock()

    def cards(self, served: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """By each name a client may ask for, served models and aliases of those, its entry in
        /v1/models: the engine's own, under that name."""
        named = {name: name for name in served} | {
            alias: model for alias, model in self._aliases.items() if model in served
        }
        base = {"object": "model", "created": 0, "owned_by": "prefold"}
        return {name: {**base, **served[model], "id": name} for name, model in named.items()}

    def resolve(self, name: str | None, served: Collection[str]) -> str:
        """The served model meant by `name`; raises BadRequest or ModelNotFound, and
        NoBackendAvailable as long as no backend has said what it serves."""
        if not served:
            raise NoBackendAvailable("No backend is ready yet.")
        if name is None:
            if len(served) == 1:
                return next(iter(served))
            raise BadRequest("you must provide a model parameter", param="model")
        model = self._aliases.get(name, name)
        if model not in served:
            raise ModelNotFound(
                "The requested model does not exist; GET /v1/models lists those that do.",
                param="model",
            )
        return model

    def encoder(self, model: str) -> Encoder | None:
        return self._encoders.get(model)

    def problem(self, model: str) -> str:
        """Why `model` has no encoder; "" if it has one."""
        return self._problems.get(model, "no tokenizer is known for this model")

    async def prepare(self, model: str, engines_own: str | None, engine: str) -> None:
        """Load the model's encoder unless that was done: from the configured source, else from
        where the engine loaded the model, if that is on this machine too. `problem` tells why not.

        The first engine decides in whose dialect chats are prepared for the template.
        """
        async with self._loading:
            if model in self._encoders:
                return
            source = self._sources.get(model, ModelSource())
            dialect = DIALECTS.get(engine)
            try:
                loaded = await asyncio.to_thread(_load, source, engines_own, dialect)
            except (TokenizerError, OSError) as error:
                self._problems[model] = str(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever a model's files hold, its
                # backends serve, in a lower mode
                self._problems[model] = f"its files cannot be read: {type(error).__name__}"
                return
            self._problems[model] = ""
            self._encoders[model] = Encoder(
                loaded.tokenizer,
                loaded.template,
                memo_bytes=self._memo_bytes,
                inline_chars=self._inline_chars,
                alone=self._alone,
            )
            self._dialects[model] = loaded.dialect

    def prepares_as(self, model: str, engine: str) -> bool:
        """Whether chats of `model` are prepared as this engine does it."""
        return DIALECTS.get(engine) == self._dialects.get(model)

    def close(self) -> None:
        for encoder in self._encoders.values():
            encoder.close()


def _load(source: ModelSource, engines_own: str | None, dialect: Dialect | None) -> LoadedTokenizer:
    """Blocking: reads files and proves libraries equal. Raises TokenizerError or OSError."""
    place = source.tokenizer
    if not place and engines_own and Path(engines_own).is_absolute() and Path(engines_own).exists():
        place = engines_own
    if not place:
        raise TokenizerError("no tokenizer is configured, and the engine's own is not here")
    loaded = load_tokenizer(place, dialect=dialect)
    if source.chat_template:
        loaded = loaded.with_template(Path(source.chat_template).read_text(encoding="utf-8"))
    return loaded
