"""DensityCallback: the density weight of edgewise.hf.attach under a Trainer."""

from __future__ import annotations

import torch
from transformers import TrainerCallback

__all__ = ["DensityCallback"]


class DensityCallback(TrainerCallback):
    """Keeps the density weight what it says while a Trainer accumulates gradients or scales the loss.

    A layer sends the gradient of its density with every backward pass, as large as its weight. A step of n backward passes
    would get it n times, and with float16 the optimizer divides it by the factor of the loss. So before every step

        weight of the layers = density_weight * factor of the loss / gradient_accumulation_steps

    >>> import transformers
    >>> trainer = transformers.Trainer(model, arguments, callbacks=[edgewise.hf.DensityCallback()])    # doctest: +SKIP
    """

    def __init__(self):
        self._weights: list[tuple[torch.nn.Module, torch.Tensor]] = []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self._weights = [(x, x.edgewise_density_weight) for x in model.modules() if hasattr(x, "edgewise_density_weight")]

    def on_step_begin(self, args, state, control, optimizer=None, **kwargs):
        scaler = getattr(optimizer, "scaler", None)  # accelerate wraps the optimizer
        factor = 1.0 if scaler is None else scaler.get_scale()
        for attention, weight in self._weights:
            attention.edgewise_density_weight = weight * (factor / args.gradient_accumulation_steps)

    def on_train_end(self, args, state, control, **kwargs):
        for attention, weight in self._weights:
            attention.edgewise_density_weight = weight
        self._weights = []
