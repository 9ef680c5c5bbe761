"""What tracing and autograd need to know of ``torch.ops.edgewise``.

Eager calls take ``attend_*``, which autograd records as they run. Traced and transformed programs take the others: fakes
give shapes without running anything, and gradients are operations of their own, so that ``torch.compile`` and
``torch.func`` see plain functions of tensors. There every forward operation also returns a *tape*: a ticket for what its
backward operation can use again. Without it (a traced program, a saved tensor that was moved) the backward operation
draws the same edges from the same seed and does the work again.
"""

import torch
from torch.autograd import forward_ad
from torch.library import register_fake
from torch.utils import _pytree as pytree

ops = torch.ops.edgewise
_formulas = {}  # name of an operation -> (backward, setup_context)


def register_autograd(name: str, backward, *, setup_context) -> None:
    torch.library.register_autograd(f"edgewise::{name}", backward, setup_context=setup_context)
    _formulas[name] = (backward, setup_context)


def is_plain(*tensors: torch.Tensor) -> bool:
    """Whether nothing traces, transforms or stands in for these tensors."""
    return (not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()
            and torch._C._len_torch_dispatch_stack() == 0
            and all(type(x) in (torch.Tensor, torch.nn.Parameter) and not x.is_meta for x in tensors))


def refuse_tangents(*tensors: torch.Tensor) -> None:
    """Autograd of eager calls knows reverse mode alone, and would leave tangents out without a word."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return
    if any(forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError("edge_attention: expected no tangents; forward-mode derivatives are not implemented. Use backward(), "
                                  "or scaled_dot_product_attention with a mask")


def call(name: str, *args):
    """The operation, also under torch.func's transforms, for which torch.library's own autograd is not made."""
    op = getattr(ops, name)
    if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():
        return op(*args)
    flat, spec = pytree.tree_flatten(list(args))
    return _Transformed.apply(name, spec, *flat)


class _Transformed(torch.autograd.Function):
    """Arguments are the operation's, flat: its name, their structure, and they themselves."""

    @staticmethod
    def forward(name, spec, *flat):
        return getattr(ops, name)(*pytree.tree_unflatten(flat, spec))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.name, ctx.spec, *flat = inputs
        _formulas[ctx.name][1](ctx, tuple(pytree.tree_unflatten(flat, ctx.spec)), output)

    @staticmethod
    def backward(ctx, *grads):
        result = list(_formulas[ctx.name][0](ctx, *grads))
        inputs = pytree.tree_unflatten([None] * ctx.spec.num_leaves, ctx.spec)
        flat = []
        for grad, given in zip(result, inputs):
            leaves = pytree.tree_leaves(given, is_leaf=lambda x: x is None)
            flat += grad if isinstance(grad, list) else [grad] * len(leaves)
        return None, None, *flat


def draw_seed() -> torch.Tensor:
    """A seed for one call, from torch's generator: it follows ``torch.manual_seed`` and is replayed by checkpointing."""
    return torch.randint(0, 2**62, (1,), dtype=torch.int64, device="cpu")


def keeps_tape(*tensors: torch.Tensor) -> bool:
    """Whether a forward operation is to leave its backward operation a tape.

    A tape holds the very memory of the operation's inputs and output. A compiler may use that memory again in between, since
    it sees nothing of the tape: inductor does, where it works out an input anew for the backward pass. So traced programs
    have no tape, and their backward operation begins with the forward work, from its own arguments.
    """
    traced = torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0
    return not traced and torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def autocast_dtype(device_type: str) -> torch.dtype | None:
    """The dtype of products under autocast, None outside of it."""
    return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None


def cast_together(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Under autocast some come from a product and some do not. float64 stays as it is, as everywhere in autocast."""
    dtype = autocast_dtype(tensors[0].device.type)
    if dtype is None or any(x.dtype == torch.float64 for x in tensors):
        return tensors
    return tuple(x.to(dtype) for x in tensors)


def _ticket() -> torch.Tensor:
    return torch.empty(1, dtype=torch.int64, device="cpu")


def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _output(query: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if query.dim() != 4 or value.dim() != 4:
        raise ValueError(f"edge_attention: expected query [B, H, L, D] and value [B, H, S, Dv]; got {tuple(query.shape)} and "
                         f"{tuple(value.shape)}")
    return query.new_empty(query.shape[0], query.shape[1], query.shape[2], value.shape[3])


def _lists(rows, edges, device):
    return [_ticket(), torch.empty(rows + 1, dtype=torch.int64, device=device),
            torch.empty(edges, dtype=torch.int32, device=device)]


def _some() -> int:
    return torch.library.get_ctx().new_dynamic_size()


def _never_twice(name: str) -> None:
    def refuse(ctx, *grads):
        raise NotImplementedError(
            "edge_attention: expected to be differentiated once; second derivatives are not implemented. Use "
            "scaled_dot_product_attention with a mask for those")
    register_autograd(name, refuse, setup_context=lambda ctx, inputs, output: None)


# ---- plans ----


@register_fake("edgewise::edge_plan")
def _(row_offsets, col_indices, shape):
    return _lists(shape[0] * shape[1] * shape[2], col_indices.shape[0], col_indices.device)


@register_fake("edgewise::edge_plan_from_mask")
def _(mask):
    return _lists(mask.shape[0] * mask.shape[1] * mask.shape[2], _some(), mask.device)


@register_fake("edgewise::square_plan")
def _(mask, shape):
    rows = mask.shape[0] * mask.shape[1] * mask.shape[2]
    count = lambda size: torch.empty(size, dtype=torch.int32, device=mask.device)
    return [_ticket(), count(rows), count(rows), count(_some())]


@register_fake("edgewise::plan_of_layout")
def _(layout, shape):
    return [_ticket(), *(_like(x) for x in layout)]


@register_fake("edgewise::plan_to")
def _(plan, shape, device):
    return [_ticket(), *(torch.empty(x.shape, dtype=x.dtype, device=device) for x in plan[1:])]


@register_fake("edgewise::plan_as_edges")
def _(plan, shape):
    return _lists(shape[0] * shape[1] * shape[2], _some(), plan[1].device)


@register_fake("edgewise::plan_mask")
def _(plan, shape):
    return torch.empty(shape, dtype=torch.bool, device=plan[1].device)


@register_fake("edgewise::plan_counts")
def _(plan, shape):
    return torch.empty(shape[:2], dtype=torch.int64, device=plan[1].device)


@register_fake("edgewise::random_edges")
def _(query, key, key_mask, seed, alpha, unit, is_causal):
    rows = query.shape[0] * query.shape[1]
    if unit == 1:
        return _lists(rows * query.shape[2], _some(), query.device)
    count = lambda size: torch.empty(size, dtype=torch.int32, device=query.device)
    rows = rows * ((query.shape[2] + 15) // 16)
    return [_ticket(), count(rows), count(rows), count(_some())]


def _of_two(a, b, shape):
    if len(a) == 4 and len(b) == 4:
        rows = a[1].shape[0]
        count = lambda size: torch.empty(size, dtype=torch.int32, device=a[1].device)
        return [_ticket(), count(rows), count(rows), count(_some())]
    return _lists(shape[0] * shape[1] * shape[2], _some(), a[1].device)


register_fake("edgewise::plan_union", _of_two)
register_fake("edgewise::plan_difference", _of_two)


# ---- attention over a plan ----


@register_fake("edgewise::plan_attention")
def _(query, key, value, plan, shape, key_mask, seed, is_causal, scale, dropout_p, keep):
    return _output(query, value), _ticket()


@register_fake("edgewise::plan_attention_backward")
def _(grad_output, tape, query, key, value, plan, shape, key_mask, seed, is_causal, scale, dropout_p):
    return _like(query), _like(key), _like(value)


def _setup_plan_attention(ctx, inputs, output):
    query, key, value, plan, shape, key_mask, seed, is_causal, scale, dropout_p, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1], query, key, value, key_mask, seed, *plan)
    ctx.call = (shape, is_causal, scale, dropout_p)


def _plan_attention_backward(ctx, grad_output, _):
    tape, query, key, value, key_mask, seed, *plan = ctx.saved_tensors
    shape, is_causal, scale, dropout_p = ctx.call
    nothing = [None] * len(plan)
    if grad_output is None:
        return (None, None, None, nothing) + (None,) * 7
    grads = call("plan_attention_backward", grad_output, tape, query, key, value, plan, shape, key_mask, seed, is_causal, scale,
                                        dropout_p)
    return (*grads, nothing) + (None,) * 7


register_autograd("plan_attention", _plan_attention_backward, setup_context=_setup_plan_attention)
_never_twice("plan_attention_backward")


# ---- attention over edges from a block model ----


@register_fake("edgewise::sbm_attention")
def _(query, key, value, parameters, key_mask, seed, options, training, is_causal, scale, dropout_p, autocast, keep):
    heads = query.shape[1]
    return (_output(query, value), parameters[0].new_empty(heads), query.new_empty(heads, dtype=torch.float64), _ticket())


@register_fake("edgewise::sbm_attention_backward")
def _(grad_output, grad_penalty, tape, query, key, value, parameters, key_mask, seed, options, training, is_causal, scale,
      dropout_p, autocast):
    return _like(query), _like(key), _like(value), [_like(x) for x in parameters]


@register_fake("edgewise::sbm_edges")
def _(query, key, parameters, key_mask, seed, options, training, is_causal, autocast):
    return _lists(query.shape[0] * query.shape[1] * query.shape[2], _some(), query.device)


def _setup_sbm_attention(ctx, inputs, output):
    query, key, value, parameters, key_mask, seed, *call, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[2])
    ctx.save_for_backward(output[3], query, key, value, key_mask, seed, *parameters)
    ctx.call = call


def _sbm_attention_backward(ctx, grad_output, grad_penalty, *_):
    tape, query, key, value, key_mask, seed, *parameters = ctx.saved_tensors
    if grad_output is None and grad_penalty is None:
        return (None, None, None, [None] * len(parameters)) + (None,) * 9
    *heads, learned = call("sbm_attention_backward", grad_output, grad_penalty, tape, query, key, value, parameters, key_mask,
                                                 seed, *ctx.call)
    return (*heads, learned) + (None,) * 9


register_autograd("sbm_attention", _sbm_attention_backward, setup_context=_setup_sbm_attention)
_never_twice("sbm_attention_backward")


# ---- attention over edges drawn from given probabilities ----


@register_fake("edgewise::drawn_attention")
def _(query, key, value, probabilities, key_mask, seed, options, training, is_causal, scale, dropout_p, keep):
    return _output(query, value), query.new_empty(query.shape[1], dtype=torch.float64), _ticket()


@register_fake("edgewise::drawn_attention_backward")
def _(grad_output, tape, query, key, value, probabilities, key_mask, seed, options, training, is_causal, scale, dropout_p):
    return _like(query), _like(key), _like(value), _like(probabilities)


@register_fake("edgewise::drawn_edges")
def _(query, key, probabilities, key_mask, seed, options, training, is_causal):
    return _lists(query.shape[0] * query.shape[1] * query.shape[2], _some(), query.device)


def _setup_drawn_attention(ctx, inputs, output):
    query, key, value, probabilities, key_mask, seed, *call, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[2], query, key, value, probabilities, key_mask, seed)
    ctx.call = call


def _drawn_attention_backward(ctx, grad_output, *_):
    tape, query, key, value, probabilities, key_mask, seed = ctx.saved_tensors
    if grad_output is None:
        return (None,) * 12
    grads = call("drawn_attention_backward", grad_output, tape, query, key, value, probabilities, key_mask, seed, *ctx.call)
    return (*grads,) + (None,) * 8


register_autograd("drawn_attention", _drawn_attention_backward, setup_context=_setup_drawn_attention)
_never_twice("drawn_attention_backward")


# ---- sampling from given memberships ----


@register_fake("edgewise::sample_sbm_edges")
def _(query_membership, key_side, *, law="bernoulli", exploration=0.0, key_mask=None, self_loops=False, seed=0, step=0,
      sampler="auto"):
    devices = {t.device for t in (query_membership, key_side, key_mask) if t is not None}
    if len(devices) > 1:
        raise ValueError(f"sample_sbm_edges: expected all tensors on one device; got {sorted(map(str, devices))}")
    batch, heads, queries, _ = query_membership.shape
    return tuple(_lists(batch * heads * queries, _some(), query_membership.device)[1:])
