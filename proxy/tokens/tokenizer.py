"""A tokenizer that answers with the engine's own token ids, and where it is loaded from."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from prefold.proxy.errors import NotEncodable, TokenizerError
from prefold.proxy.tokens.chat_template import ChatTemplate, Dialect
from prefold.proxy.tokens.gguf_tokenizer import tokenizer_parts
from prefold.proxy.tokens.probe_texts import probe_texts
from prefold.proxy.tokens.token_libraries import HuggingFace, TokenIds, TokenLibrary, prove_fast

__all__ = ["LoadedTokenizer", "NotEncodable", "Tokenizer", "TokenizerError", "load_tokenizer"]


class Tokenizer:
    """Encodes text exactly as `tokenizer.json` says.

    `fast` is True if `fastokens` does it, whose ids then proved identical. `bos_ids` is what an
    engine puts before a plain completion prompt, mostly nothing or one id.
    """

    def __init__(self, tokenizer_json: str, *, name: str, try_fast: bool = True) -> None:
        """Raises `TokenizerError` if the text is no tokenizer that can be followed exactly."""
        started = time.perf_counter()
        reference = _parse(tokenizer_json, name)
        self.name = name
        self._added = list(reference.get_added_tokens_decoder().values())
        self.special_tokens = tuple(token.content for token in self._added if token.special)
        self.vocabulary_size = reference.get_vocab_size()
        self.bos_ids = _bos_ids(reference)

        slow = HuggingFace(reference)
        fast, reason = None, "fastokens was not asked for"
        if try_fast:
            fast, reason = prove_fast(tokenizer_json, slow, self.special_tokens)
        self.fast = fast is not None
        self._library: TokenLibrary = fast or slow
        self._verdict = f"{reason}; loaded in {time.perf_counter() - started:.2f} s"

    def encode(self, text: str) -> TokenIds:
        """Ids of `text`, with special tokens in it parsed as such and none added.

        Raises `NotEncodable` on lone surrogates and on bytes the vocabulary has no token for.
        """
        return self.encode_many([text])[0]

    def encode_many(self, texts: list[str]) -> list[TokenIds]:
        """Ids of each text on its own."""
        try:
            return self._library.encode_many(texts)
        except UnicodeEncodeError:
            raise NotEncodable("the text holds lone surrogates") from None
        except ValueError:
            raise NotEncodable("the text holds a byte that the vocabulary lacks") from None

    def encode_with_bos(self, text: str) -> TokenIds:
        """Ids of a plain completion prompt, as an engine's /v1/completions makes them."""
        return np.concatenate([np.array(self.bos_ids, dtype=np.uint32), self.encode(text)])

    def describe(self) -> str:
        """One line on which library encodes, and why, for `prefold check`."""
        library = "fastokens" if self.fast else "tokenizers"
        return f"{self.name}: {self.vocabulary_size} tokens, encoded by {library} ({self._verdict})"

    def cuts_at(self, token: str) -> bool:
        """Whether a text may be cut before each `token` and the pieces encoded on their own.

        Added tokens are found before anything else is done to a text, and nothing merges across
        one. This holds unless the token takes white space from its left, or another added token
        can overlap its beginning. The reasoning is then put to the test on the probe texts.
        """
        flags = next((added for added in self._added if added.content == token), None)
        if flags is None or flags.lstrip or flags.single_word or flags.normalized:
            return False
        if any(_overlaps_beginning(other.content, token) for other in self._added):
            return False
        texts = token.join(probe_texts(self.special_tokens)).split(token)
        pieces = [texts[0], *(token + text for text in texts[1:])]
        return np.array_equal(
            self.encode("".join(pieces)), np.concatenate(self.encode_many(pieces))
        )


def _parse(tokenizer_json: str, name: str) -> tokenizers.Tokenizer:
    try:
        reference = tokenizers.Tokenizer.from_str(tokenizer_json)
    except Exception as error:  # the library raises nothing narrower
        raise TokenizerError(f"{name}: tokenizer.json is not readable: {error}") from error
    reference.no_truncation()
    reference.no_padding()
    return reference


def _bos_ids(reference: tokenizers.Tokenizer) -> tuple[int, ...]:
    """What the post-processor puts before a text."""
    plain = reference.encode("a", add_special_tokens=False).ids
    whole = reference.encode("a", add_special_tokens=True).ids
    start = len(whole) - len(plain)
    if whole[start:] != plain:
        raise TokenizerError("the tokenizer puts special tokens after a prompt, not only before it")
    return tuple(whole[:start])


def _overlaps_beginning(other: str, token: str) -> bool:
    """Whether finding `other` in a text can hide the beginning of `token` or take its place."""
    if other != token and token in other:
        return True
    return any(other.endswith(token[:size]) for size in range(1, len(token)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTokenizer:
    """A model's tokenizer and chat template. `template` is None where the model has none."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    bos_token: str | None
    eos_token: str | None
    dialect: Dialect

    def with_template(self, source: str) -> "LoadedTokenizer":
        """The same tokenizer with another chat template."""
        template = ChatTemplate(
            source,
            self.bos_token,
            self.eos_token,
            dialect=self.dialect,
            starts_with_bos=self.dialect is Dialect.LLAMA_CPP and bool(self.tokenizer.bos_ids),
        )
        return replace(self, template=template)


def load_tokenizer(
    source: str, *, dialect: Dialect | None = None, try_fast: bool = True
) -> LoadedTokenizer:
    """Load from a GGUF file, a folder of Hugging Face files, or by a hub id.

    A hub id is only asked for where no such path exists. `dialect` is the engine's kind; without
    it a GGUF file stands for llama.cpp and anything else for vLLM. Raises `TokenizerError`.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        dialect = dialect or Dialect.VLLM
        return _from_files(source, lambda name: _read(path / name), dialect, try_fast)
    if path.exists():
        parts = tokenizer_parts(path)
        tokenizer = Tokenizer(parts.tokenizer_json, name=path.name, try_fast=try_fast)
        return _assemble(tokenizer, parts.config, None, dialect or Dialect.LLAMA_CPP)
    dialect = dialect or Dialect.VLLM
    return _from_files(source, lambda name: _download(source, name), dialect, try_fast)


def _from_files(
    source: str, read: Callable[[str], str | None], dialect: Dialect, try_fast: bool
) -> LoadedTokenizer:
    tokenizer_json = read("tokenizer.json")
    if tokenizer_json is None:
        tokenizer_json = _converted_by_transformers(source)
    try:
        config = json.loads(read("tokenizer_config.json") or "{}")
    except ValueError as error:
        raise TokenizerError(f"{source}: tokenizer_config.json is not JSON: {error}") from error
    tokenizer = Tokenizer(tokenizer_json, name=source, try_fast=try_fast)
    return _assemble(tokenizer, config, read("chat_template.jinja"), dialect)


def _assemble(
    tokenizer: Tokenizer, config: dict[str, Any], template: str | None, dialect: Dialect
) -> LoadedTokenizer:
    loaded = LoadedTokenizer(
        tokenizer=tokenizer,
        template=None,
        bos_token=_token_text(config.get("bos_token")),
        eos_token=_token_text(config.get("eos_token")),
        dialect=dialect,
    )
    template = template or _default_template(config.get("chat_template"))
    return loaded.with_template(template) if template else loaded


def _token_text(token: Any) -> str | None:
    """A special token is written as its text or as an object with its flags."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _default_template(template: Any) -> str | None:
    """Some models carry a list of named templates; chats use the one called `default`."""
    if isinstance(template, list):
        named = {each.get("name"): each.get("template") for each in template}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _download(hub_id: str, name: str) -> str | None:
    # Imported here: most sources are local, and `prefold --help` should not wait for it.
    from huggingface_hub import errors, hf_hub_download

    try:
        return _read(Path(hf_hub_download(hub_id, name)))
    except (errors.HFValidationError, errors.EntryNotFoundError, OSError) as error:
        offline = isinstance(error, errors.LocalEntryNotFoundError)
        if isinstance(error, errors.EntryNotFoundError) and not offline:
            return None  # the model is there, this file is not
        raise TokenizerError(f"{hub_id} is no path here and not to be had: {error}") from error


def _converted_by_transformers(source: str) -> str:
    """Make a `tokenizer.json` of older vocabulary files."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise TokenizerError(
            f"{source} has no tokenizer.json; to convert what it has, install prefold[transformers]"
        ) from error
    try:
        converted = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        return str(converted.backend_tokenizer.to_str())
    except (OSError, ValueError, ImportError, AttributeError) as error:
        raise TokenizerError(f"{source}: transformers cannot convert it: {error}") from error
