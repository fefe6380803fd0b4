"""What the model tiers share: where a model runs, in which precision, and what names its weights.

Torch and transformers are imported when a model is loaded, and only then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefold.compression.batching import FILL, micro_batches
from prefold.compression.compressor import CompressorUnavailable
from prefold.compression.int8_linear import in_int8, is_fast_here

DTYPES = ("auto", "float32", "bfloat16", "float16", "int8")
WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "config.json", "tokenizer.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`device`: "auto" (CUDA where there is one), or as torch names it. `dtype`: one of DTYPES;
    "auto" is float32 on a CPU and bfloat16 elsewhere. int8 is for CPUs, and of linear layers:
    norms, attention, embeddings and heads of few labels stay in float32. `batch_tokens`: padding
    included; 0 suits the device.
    """

    device: str = "auto"
    dtype: str = "auto"
    batch_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A Placement come to a decision. `options` are what outputs depend on."""

    torch: Any
    device: str
    dtype: str
    batch_tokens: int

    @property
    def options(self) -> dict[str, object]:
        """Roundings differ by these, and with them, rarely, a word at the threshold."""
        kind = self.device.partition(":")[0]
        return {"device": kind, "dtype": self.dtype, "torch": str(self.torch.__version__)}

    @property
    def loaded_as(self) -> Any:
        """torch's type in which weights are to be loaded."""
        return getattr(self.torch, "float32" if self.dtype == "int8" else self.dtype)

    def batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """Which rows go through the model together.

        In int8 only those of one length. Padding makes attention add in another order, and what
        that changes in a float's last bit can move an activation by a whole step of its 127: in
        padded batches a text's probabilities would move by hundredths with the texts beside it.
        """
        fill = 1.0 if self.dtype == "int8" else FILL
        return micro_batches(lengths, self.batch_tokens, fill)

    def ready(self, model: Any) -> Any:
        """A Hugging Face model as it was loaded, to be run here and in this precision."""
        model = model.eval().to(self.device)
        if self.dtype == "int8":
            in_int8(self.torch, model)
        return model


def runtime(placement: Placement) -> Runtime:
    """Raises CompressorUnavailable where torch is missing or has no such device."""
    try:
        import torch
    except ImportError:
        raise CompressorUnavailable(
            "this compressor needs torch: pip install 'prefold[compression]'"
        ) from None
    device = placement.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise CompressorUnavailable("device is cuda, but torch finds none")
    on_cpu = device.startswith("cpu")
    dtype = placement.dtype
    if dtype == "auto":
        dtype = "float32" if on_cpu else "bfloat16"
    if dtype not in DTYPES:
        raise CompressorUnavailable(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
    if dtype == "int8" and not (on_cpu and is_fast_here(torch)):
        raise CompressorUnavailable("dtype int8 is for CPUs that have AVX512-VNNI, and x86 alone")
    return Runtime(
        torch=torch,
        device=device,
        dtype=dtype,
        batch_tokens=placement.batch_tokens or _batch_tokens(on_cpu, dtype),
    )


def _batch_tokens(on_cpu: bool, dtype: str) -> int:
    """On a CPU few enough for activations to stay in its caches, which tells more in int8."""
    if not on_cpu:
        return 32768
    return 512 if dtype == "int8" else 2048


def weights_revision(folder: Path) -> str:
    """The digest of a model's files, all bytes of them."""
    files = sorted({file for pattern in WEIGHTS for file in folder.glob(pattern)})
    if not any(file.suffix in (".safetensors", ".bin") for file in files):
        raise CompressorUnavailable(f"{folder} holds no model weights")
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").digest()
        total.update(file.name.encode() + b"\0" + digest)
    return total.hexdigest()[:16]


def local_folder(model: str, revision: str | None) -> Path:
    """`model` as a folder: it is one, or a hub id whose files are fetched to the hub's cache."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise CompressorUnavailable(
            f"{model} is no folder, and huggingface_hub is missing"
        ) from None
    patterns = ["*.json", "*.safetensors", "*.model", "*.txt"]
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=patterns))
    except (OSError, ValueError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        kind = type(error).__name__
        raise CompressorUnavailable(f"{model} is no folder and cannot be fetched: {kind}") from None
