"""Attention over edges as transformers calls it: the function of an attention module, and the one that makes its masks.

Attention over edges wants to know which keys are valid, [B, S], and whether it is causal; transformers' masks for eager
attention hold both in one [B, 1, L, S] tensor. So the name "edgewise" is registered twice, for attention and for masks.
"""

from __future__ import annotations

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

from ..nn.attention import add_density_penalty, sends
from ..nn.dense import attend_dense
from ..nn.sources import AttentionCall
from ..recording import see
from .cached import attend_last

__all__ = ["NAME", "refuse_weights"]

NAME = "edgewise"

# What some models hand to attention and attention over edges does not have.
_UNKNOWN = ("softcap", "s_aux", "position_bias", "sliding_window", "head_mask", "cu_seq_lens_q", "cu_seq_lens_k", "cache")
_INSTEAD = "edgewise.hf.detach(model) goes back to dense attention"


def _attend(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **kwargs):
    """query [B, H, L, D], key and value [B, Hk, S, D], attention_mask [B, S] bool or None -> [B, L, H, D] and no weights."""
    _refuse_unknown(module, kwargs)
    queries, keys = query.shape[2], key.shape[2]
    if attention_mask is not None and (attention_mask.dim() != 2 or attention_mask.shape[1] != keys):
        raise NotImplementedError(f"edgewise.hf: expected an attention mask [B, {keys}], 1 = valid key; {type(module).__name__} "
                                  f"got one of shape {list(attention_mask.shape)}. Masks of pairs are for the source: give edges "
                                  f"that leave those pairs out. {_INSTEAD}")
    causal = _is_causal(module, is_causal)
    if causal and attention_mask is None and queries == keys and getattr(module, "edgewise_first", False):
        _refuse_packed(kwargs.get("position_ids"))
    call = AttentionCall(query, key, value, attention_mask, causal, scaling, dropout)
    see(call)
    source = getattr(module, "edges", None)
    if source is None:
        output, penalty = attend_dense(call, first_query=keys - queries if causal else 0), None
    elif causal and queries < keys:
        output, penalty = attend_last(source, call, module.edgewise_cached), None
    else:
        call.sends_penalty = module.training and sends(module.edgewise_density_weight)
        output, penalty = source.attend(call)
    if penalty is not None and call.sends_penalty:
        output = add_density_penalty(output, penalty, module.edgewise_density_weight)
    return output.transpose(1, 2).contiguous(), None


def _is_causal(module, said: bool | None) -> bool:
    if said is not None:
        return said
    return getattr(module, "is_causal", True) and getattr(module.config, "is_causal", True)


def _refuse_unknown(module, kwargs: dict) -> None:
    for name in _UNKNOWN:
        given = kwargs.get(name)
        if given is not None and given is not False:
            what = "a tensor" if isinstance(given, torch.Tensor) else given
            raise NotImplementedError(f"edgewise.hf: expected no {name}, which attention over edges does not have; "
                                      f"{type(module).__name__} got {name}={what}. {_INSTEAD}")


def refuse_weights(model, args, kwargs) -> None:
    """A hook before a model's forward: not every model tells its attention that somebody wants the weights."""
    if kwargs.get("output_attentions") and model.config._attn_implementation == NAME:
        raise NotImplementedError("edgewise.hf: expected output_attentions=False; attention over edges has no matrix of weights. "
                                  f"edgewise.record(edges=True) gives the edges. {_INSTEAD}")


_PACKED = ("edgewise.hf: expected one sequence per item; got packed position_ids, which start again within an item. Give the "
           "sequences as items of a batch with an attention_mask")


def _refuse_packed(position_ids: torch.Tensor | None) -> None:
    """transformers tells of packed sequences by its mask function, save beside a cache and while tracing. Once a pass."""
    if position_ids is None or position_ids.shape[-1] < 2:
        return
    rising = (position_ids.diff(dim=-1) > 0).all()
    if torch.compiler.is_compiling():
        torch._assert_async(rising, _PACKED)  # when the program runs
    elif not rising:
        raise NotImplementedError(_PACKED)


def _mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=causal_mask_function, attention_mask=None,
          **_) -> torch.Tensor | None:
    """[B, kv_length] bool, true = valid key, or None where all are."""
    plain = mask_function in (causal_mask_function, bidirectional_mask_function)
    # While tracing, transformers says of all that is not said to be padded that it may be packed.
    if not plain and not (torch.compiler.is_compiling() and attention_mask is None):
        raise NotImplementedError("edgewise.hf: expected causal or bidirectional attention over one sequence per item; got a mask "
                                  "function of another kind, such as packed position_ids or a sliding window. Packed sequences "
                                  f"can be items of a batch; a window is edgewise.nn.WindowEdges. {_INSTEAD}")
    if isinstance(q_offset, torch.Tensor) or kv_offset != 0:
        raise NotImplementedError("edgewise.hf: expected a cache that grows with the text (DynamicCache, the default); got one of "
                                  "fixed size. Leave cache_implementation out")
    if attention_mask is None:
        return None
    missing = kv_length - attention_mask.shape[-1]
    return torch.nn.functional.pad(attention_mask, (0, missing)) if missing > 0 else attention_mask[:, -kv_length:]


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, _mask)
