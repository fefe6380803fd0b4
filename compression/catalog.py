"""Compressors by name. What a name needs is imported when it is opened."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from prefold.compression.compressor import Compressor, CompressorUnavailable, NullCompressor
from prefold.compression.scored import ScoredCompressor, Scorer, Weights
from prefold.compression.torch_models import Placement

NAMES = ("null", "lexical", "sentences", "surprisal", "llmlingua2", "llmlingua")
MODES = ("stable", "reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmPlace:
    """A vLLM server that serves a token classifier. `model`: its name there, "" for the first."""

    url: str
    model: str = ""
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressorChoice:
    """`model`: a folder, a GGUF file (surprisal) or a hub id. `language`: of lexical, for Latin
    letters. `mode` and `special_tokens`: of llmlingua2. `tokenizer_json`: for models that come
    without one. `question`: of llmlingua, makes it LongLLMLingua. `vllm`: of llmlingua2, where its
    classifier is served; of `model`, a folder, only the tokenizer is used then.
    """

    name: str
    model: str | None = None
    model_revision: str | None = None
    placement: Placement = field(default_factory=Placement)
    language: str = "en"
    mode: str = "stable"
    special_tokens: str = "released"
    tokenizer_json: str | None = None
    question: str = ""
    vllm: VllmPlace | None = None


def open_compressor(choice: CompressorChoice, weights: Weights | None = None) -> Compressor:
    """`weights` decide what the rate counts: words if not given. The package counts its own tokens.

    Raises CompressorUnavailable where a package or model is missing, ValueError for a bad choice.
    """
    if choice.name == "null":
        return NullCompressor()
    if choice.name == "llmlingua2" and choice.mode != "stable":
        return _reference(choice)
    if choice.name == "llmlingua":
        return _package(choice)
    if choice.name == "sentences":
        return _sentences(choice, weights)
    return ScoredCompressor(open_scorer(choice), weights)


def open_scorer(choice: CompressorChoice) -> Scorer:
    """Raises as `open_compressor` does; ValueError for a name that scores no words."""
    if choice.name == "lexical":
        from prefold.compression.lexical import LexicalScorer

        return LexicalScorer(choice.language)
    if choice.name == "surprisal":
        from prefold.compression.causal_lm import CausalLM
        from prefold.compression.surprisal import SurprisalScorer

        return SurprisalScorer(
            CausalLM(
                _model(choice),
                revision=choice.model_revision,
                placement=choice.placement,
                tokenizer_json=choice.tokenizer_json,
            )
        )
    if choice.name == "llmlingua2":
        from prefold.compression.llmlingua2 import LLMLingua2Scorer

        served = choice.vllm
        return LLMLingua2Scorer(_classifier(choice) if served is None else _served(choice, served))
    raise ValueError(f"no compressor is called {choice.name!r}; known: {', '.join(NAMES)}")


def _reference(choice: CompressorChoice) -> Compressor:
    from prefold.compression.llmlingua2_reference import ReferenceCompressor, ReferenceOptions

    if choice.mode != "reference":
        raise ValueError(f"no mode is called {choice.mode!r}; known: {', '.join(MODES)}")
    if choice.placement.dtype not in ("auto", "float32"):
        raise ValueError("mode reference is for comparison, and in float32 only")
    try:
        import tiktoken
    except ImportError:
        raise CompressorUnavailable("mode reference needs tiktoken: pip install tiktoken") from None
    try:
        cl100k = tiktoken.get_encoding("cl100k_base")
    except OSError:  # which it fetches if TIKTOKEN_CACHE_DIR does not hold it
        raise CompressorUnavailable("tiktoken cannot fetch cl100k_base") from None
    return ReferenceCompressor(
        _classifier(replace(choice, placement=replace(choice.placement, dtype="float32"))),
        ReferenceOptions(special_tokens=choice.special_tokens),
        lambda word: len(cl100k.encode_ordinary(word)),
        "cl100k",
    )


def _package(choice: CompressorChoice) -> Compressor:
    from prefold.compression.llmlingua_package import PackageCompressor

    return PackageCompressor(
        _model(choice),
        revision=choice.model_revision,
        placement=choice.placement,
        question=choice.question,
    )


def _sentences(choice: CompressorChoice, weights: Weights | None) -> Compressor:
    from prefold.compression.sentences import SentenceCompressor
    from prefold.compression.sentences_encoder import SentenceEncoder

    encoder = SentenceEncoder(
        choice.model, revision=choice.model_revision, placement=choice.placement
    )
    return SentenceCompressor(encoder, weights)


def _classifier(choice: CompressorChoice) -> Any:
    from prefold.compression.token_classifier import TokenClassifier

    return TokenClassifier(
        _model(choice), revision=choice.model_revision, placement=choice.placement
    )


def _served(choice: CompressorChoice, place: VllmPlace) -> Any:
    from prefold.compression.vllm_classifier import VllmClassifier

    return VllmClassifier(
        place.url,
        folder=_model(choice),
        revision=choice.model_revision,
        served_model=place.model,
        api_key=place.api_key,
    )


def _model(choice: CompressorChoice) -> str:
    if choice.model is None:
        raise CompressorUnavailable(f"{choice.name} needs a model: a folder or a hub id")
    return choice.model
