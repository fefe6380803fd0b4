"""Linear layers in 8-bit integers, for CPUs that multiply those faster (VNNI) than floats.

Weights have one scale for each output, activations one for each token: so a token's result does
not depend on what else is in the batch, as it would with one scale for all. Products and their sums
are exact integers. `torch` is handed in, since it is imported with a model only.
"""

from __future__ import annotations

from functools import partial
from typing import Any

TOP = 127.0
TINY = 1e-12  # in place of the scale of what is all zeros
LEAST = 16  # inputs and outputs: smaller layers gain nothing, and a head of two labels decides all


def in_int8(torch: Any, model: Any) -> None:
    """Makes every `torch.nn.Linear` in `model` compute in integers, but those that are tiny.

    They go on to take and to give float32. (With one input torch._int_mm would be wrong.)
    """
    for layer in model.modules():
        if type(layer) is torch.nn.Linear and min(layer.weight.shape) >= LEAST:
            _convert(torch, layer)


def is_fast_here(torch: Any) -> bool:
    """Without these, torch multiplies integers one by one, or sums them inexactly."""
    return bool(torch.backends.mkldnn.is_available() and torch.cpu._is_vnni_supported())


def _convert(torch: Any, layer: Any) -> None:
    weight = layer.weight.detach().float()
    scales = weight.abs().amax(dim=1).clamp_(min=TINY) / TOP
    codes = (weight / scales[:, None]).round_().to(torch.int8)
    layer.weight = torch.nn.Parameter(codes, requires_grad=False)
    layer.register_buffer("scales", scales)
    layer.forward = partial(_forward, torch, layer)


def _forward(torch: Any, layer: Any, inputs: Any) -> Any:
    """Of shape (..., inputs) to (..., outputs)."""
    rows = inputs.reshape(-1, inputs.shape[-1])
    # Two passes for the largest and the smallest: 6 to 15 times as fast as one for the norm.
    most = torch.maximum(rows.amax(dim=1, keepdim=True), rows.amin(dim=1, keepdim=True).neg_())
    most.clamp_(min=TINY)
    codes = (rows * (TOP / most)).round_().to(torch.int8)
    sums = torch._int_mm(codes, layer.weight.t()).float()
    outputs = sums.mul_(most / TOP).mul_(layer.scales)
    if layer.bias is not None:
        outputs.add_(layer.bias)
    return outputs.reshape(*inputs.shape[:-1], outputs.shape[-1])
