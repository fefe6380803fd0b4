"""Models by name: aliases, and the encoder of each model whose tokenizer is known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prefold.proxy.chat_template import ChatTemplate
from prefold.proxy.encoder import Encoder
from prefold.proxy.errors import BadRequest, ModelNotFound
from prefold.proxy.tokenizer import TokenizerError, load_tokenizer

log = logging.getLogger(__name__)


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
    ) -> None:
        self._sources = sources
        self._aliases = aliases
        self._memo_bytes = memo_bytes
        self._inline_chars = inline_chars
        self._encoders: dict[str, Encoder | None] = {}
        self._problems: dict[str, str] = {}
        self._loading = asyncio.Lock()

    def names(self, served: Sequence[str]) -> list[str]:
        """Names a client may ask for: served models and the aliases of those."""
        extra = [alias for alias, model in self._aliases.items() if model in served]
        return list(dict.fromkeys([*served, *extra]))

    def resolve(self, name: str | None, served: Sequence[str]) -> str:
        """The served model meant by `name`; raises BadRequest or ModelNotFound."""
        if name is None:
            if len(served) == 1:
                return served[0]
            raise BadRequest("you must provide a model parameter", param="model")
        model = self._aliases.get(name, name)
        if model not in served:
            raise ModelNotFound("The requested model does not exist.", param="model")
        return model

    def encoder(self, model: str) -> Encoder | None:
        return self._encoders.get(model)

    def problem(self, model: str) -> str:
        """Why `model` has no encoder; "" if it has one."""
        return self._problems.get(model, "no tokenizer is known for this model")

    async def prepare(self, model: str, engines_own: str | None) -> Encoder | None:
        """The model's encoder, loaded on first use: from the configured source, else from where
        the engine loaded the model, if that is on this machine too. None: see `problem`."""
        async with self._loading:
            if model not in self._encoders:
                self._encoders[model] = await self._load(model, engines_own)
            return self._encoders[model]

    async def _load(self, model: str, engines_own: str | None) -> Encoder | None:
        source = self._sources.get(model, ModelSource())
        place = source.tokenizer
        if (
            not place
            and engines_own
            and Path(engines_own).is_absolute()
            and Path(engines_own).exists()
        ):
            place = engines_own
        if not place:
            return None
        try:
            loaded = await asyncio.to_thread(load_tokenizer, place)
            template = loaded.template
            if source.chat_template:
                text = Path(source.chat_template).read_text(encoding="utf-8")
                template = ChatTemplate(
                    text, bos_token=loaded.bos_token, eos_token=loaded.eos_token
                )
        except (TokenizerError, OSError) as error:
            log.warning("no exact tokens for model %s: %s", model, error)
            self._problems[model] = str(error)
            return None
        self._problems[model] = ""
        log.info("model %s: %s", model, loaded.tokenizer.describe())
        return Encoder(
            loaded.tokenizer,
            template,
            memo_bytes=self._memo_bytes,
            inline_chars=self._inline_chars,
        )

    def close(self) -> None:
        for encoder in self._encoders.values():
            if encoder is not None:
                encoder.close()
