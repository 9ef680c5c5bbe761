"""edgewise.edge_attention: what it computes, what it takes, what it refuses."""

import random

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import edgewise
from edgewise import EdgeSet, edge_attention


def inputs(batch=2, heads=4, queries=37, keys=37, dim=8, key_heads=None, dtype=torch.float32, requires_grad=True):
    make = lambda h, n: torch.randn(batch, h, n, dim, dtype=dtype, requires_grad=requires_grad)
    key_heads = key_heads or heads
    return make(heads, queries), make(key_heads, keys), make(key_heads, keys)


def dense(q, k, v, mask, **options):
    """Rows without edges give 0, as over edges."""
    mask = mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
    return torch.where(mask.any(-1, keepdim=True), out, torch.zeros_like(out))


def some_edges(unit, batch=2, heads=4, queries=37, keys=37):
    if unit == 1:
        return EdgeSet.from_mask(torch.rand(batch, heads, queries, keys) < 0.3)
    groups = lambda n: (n + 15) // 16
    return EdgeSet.from_squares(torch.rand(batch, heads, groups(queries), groups(keys)) < 0.6, (batch, heads, queries, keys))


TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("unit", [1, 16])
@pytest.mark.parametrize("queries, keys", [(37, 37), (1, 1), (16, 33), (64, 16)])
def test_forward_and_backward_are_those_of_a_mask(dtype, unit, queries, keys):
    q, k, v = inputs(queries=queries, keys=keys, dtype=dtype)
    edges = some_edges(unit, queries=queries, keys=keys)
    out = edge_attention(q, k, v, edges)
    expected = dense(*(x.double() for x in (q, k, v)), edges.to_dense())
    assert out.dtype == dtype and out.is_contiguous()
    torch.testing.assert_close(out.double(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    weight = torch.randn_like(out)
    mine = torch.autograd.grad((out * weight).sum(), (q, k, v))
    theirs = torch.autograd.grad((expected * weight).sum(), (q, k, v))
    for a, b in zip(mine, theirs):
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), b.double(), atol=5 * TOLERANCE[dtype], rtol=5 * TOLERANCE[dtype])


@pytest.mark.parametrize("unit", [1, 16])
@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (2, 1), (2, 4)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_one_item_or_one_head_serves_all(unit, shape, is_causal):
    q, k, v = inputs(dtype=torch.float64)
    edges = some_edges(unit, *shape)
    mask = edges.to_dense() & (torch.ones(37, 37, dtype=torch.bool).tril() if is_causal else torch.tensor(True))
    out, expected = edge_attention(q, k, v, edges, is_causal=is_causal), dense(q, k, v, mask)
    torch.testing.assert_close(out, expected)
    for a, b in zip(torch.autograd.grad(out.square().sum(), (q, k, v)), torch.autograd.grad(expected.square().sum(), (q, k, v))):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("unit", [1, 16])
@pytest.mark.parametrize("key_heads", [1, 2])
def test_grouped_heads(unit, key_heads):
    q, k, v = inputs(key_heads=key_heads, dtype=torch.float64)
    edges = some_edges(unit)
    out = edge_attention(q, k, v, edges, enable_gqa=True)
    expected = dense(q, k, v, edges.to_dense(), enable_gqa=True)
    torch.testing.assert_close(out, expected)
    for a, b in zip(torch.autograd.grad(out.square().sum(), (q, k, v)), torch.autograd.grad(expected.square().sum(), (q, k, v))):
        torch.testing.assert_close(a, b)
    with pytest.raises(ValueError, match="enable_gqa=True"):
        edge_attention(q, k, v, edges)


@pytest.mark.parametrize("unit", [1, 16])
def test_key_mask_and_scale(unit):
    q, k, v = inputs(dtype=torch.float64)
    edges, keep = some_edges(unit), torch.rand(2, 37) < 0.7
    for scale in (None, 0.0, 0.3):
        out = edge_attention(q, k, v, edges, scale=scale, key_mask=keep)
        torch.testing.assert_close(out, dense(q, k, v, edges.to_dense() & keep[:, None, None], scale=scale))


@pytest.mark.parametrize("unit", [1, 16])
def test_other_layouts_of_memory(unit):
    q, k, v = (x.detach() for x in inputs(dtype=torch.float64))
    edges = some_edges(unit)
    expected = edge_attention(q, k, v, edges)
    odd = lambda x: x.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
    q2, k2, v2 = odd(q), odd(k), odd(v)
    out = edge_attention(q2, k2, v2, edges)
    torch.testing.assert_close(out, expected)
    grads = torch.autograd.grad(out, (q2, k2, v2), torch.randn(2, 37, 4, 8, dtype=torch.float64).transpose(1, 2))
    assert all(g.isfinite().all() for g in grads)
    # A gradient that is one number seen everywhere.
    torch.testing.assert_close(torch.autograd.grad(edge_attention(q2, k2, v2, edges).sum(), v2)[0],
                               torch.autograd.grad(edge_attention(q2, k2, v2, edges) @ torch.ones(8, dtype=torch.float64), v2,
                                                   torch.ones(2, 4, 37, dtype=torch.float64))[0])


def test_dropout_follows_the_seed_and_keeps_the_mean():
    v = torch.ones(64, 4, 32, 8)
    q = k = torch.zeros(64, 4, 32, 8)
    edges = EdgeSet.full(32)
    torch.manual_seed(3)
    first, second = (edge_attention(q, k, v, edges, dropout_p=0.4) for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(first, edge_attention(q, k, v, edges, dropout_p=0.4))
    assert not torch.equal(first, second)  # every call draws its own
    # 64 * 4 * 32 rows of 32 edges each; a row's variance is 0.4 / 0.6 / 32.
    error = (0.4 / 0.6 / 32 / (64 * 4 * 32)) ** 0.5
    assert abs(first[..., 0].double().mean().item() - 1) < 4.7 * error
    before = torch.random.get_rng_state()
    edge_attention(q, k, v, edges)
    assert torch.equal(before, torch.random.get_rng_state())  # nothing is drawn without dropout
    seed = torch.tensor([5])
    assert torch.equal(edge_attention(q, k, v, edges, 0.4, seed=seed), edge_attention(q, k, v, edges, 0.4, seed=seed))


@pytest.mark.parametrize("unit", [1, 16])
def test_gradients_under_dropout_are_those_of_the_forward_pass(unit):
    q, k, v = inputs(1, 2, 20, 20, 4, dtype=torch.float64)
    edges, seed = some_edges(unit, 1, 2, 20, 20), torch.tensor([11])
    assert torch.autograd.gradcheck(lambda *x: edge_attention(*x, edges, 0.3, True, seed=seed), (q, k, v))


@pytest.mark.parametrize("unit", [1, 16])
def test_without_its_tape_the_backward_pass_does_the_work_again(unit):
    q, k, v = inputs()
    edges, seed, grad = some_edges(unit), torch.tensor([3]), torch.randn(2, 4, 37, 8)
    call = (edges.plan(), list(edges.shape), None, seed, True, None, 0.2)
    raw = torch.ops.edgewise
    _, tape = raw.plan_attention(q.detach(), k.detach(), v.detach(), *call, True)
    assert tape.item() > 0
    known = raw.plan_attention_backward(grad, tape, q, k, v, *call)
    again = raw.plan_attention_backward(grad, torch.zeros(1, dtype=torch.int64), q, k, v, *call)
    for a, b in zip(known, again):
        assert torch.equal(a, b)


def test_the_two_ways_are_one():
    """What autograd records as it runs, and what traced programs call."""
    q, k, v = inputs()
    edges, seed = some_edges(1), torch.tensor([3])
    known = (edges.plan(), list(edges.shape), None, seed, True, None, 0.2)
    raw = torch.ops.edgewise
    recorded, (traced, _) = raw.attend_plan(q, k, v, *known), raw.plan_attention(q, k, v, *known, True)
    assert torch.equal(recorded, traced)
    weight = torch.randn_like(recorded)
    for a, b in zip(torch.autograd.grad((recorded * weight).sum(), (q, k, v)), torch.autograd.grad((traced * weight).sum(), (q, k, v))):
        assert torch.equal(a, b)


def test_a_tape_lives_as_long_as_its_graph():
    q, k, v = inputs()
    edges = some_edges(1)
    out, _ = torch.ops.edgewise.plan_attention(q, k, v, edges.plan(), list(edges.shape), None, None, False, None, 0.0, True)
    a, = torch.autograd.grad(out.sum(), q, retain_graph=True)
    b, = torch.autograd.grad(out.sum(), q)
    assert torch.equal(a, b)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out.sum(), q)


def test_inputs_that_were_changed_in_between_are_refused():
    q, k, v = inputs()
    shifted = k * 1
    out = edge_attention(q, shifted, v, some_edges(1))
    shifted.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_second_derivatives_are_refused_not_silently_zero():
    q, k, v = inputs()
    with pytest.raises(NotImplementedError, match="differentiated once"):
        torch.autograd.grad(edge_attention(q, k, v, some_edges(1)).square().sum(), q, create_graph=True)
    slope = torch.func.grad(lambda q: edge_attention(q, k.detach(), v.detach(), some_edges(1)).square().sum())
    with pytest.raises(NotImplementedError, match="differentiated once"):
        torch.func.grad(lambda q: slope(q).sum())(q.detach())


def test_inference_mode_and_training_share_a_set():
    edges = some_edges(1)
    with torch.inference_mode():
        edge_attention(*inputs(requires_grad=False), edges, is_causal=True)
    q, k, v = inputs()
    edge_attention(q, k, v, edges, is_causal=True).sum().backward()
    assert q.grad is not None


def test_edges_made_in_inference_mode_serve_training():
    with torch.inference_mode():
        edges = EdgeSet.window(37, 3)
    q, k, v = inputs()
    edge_attention(q, k, v, edges).sum().backward()
    assert q.grad is not None


def test_a_plan_that_was_changed_is_checked_again():
    q, k, v = (x.detach() for x in inputs(1, 1, 8, 8))
    edges = EdgeSet.window(8, 1)
    edge_attention(q, k, v, edges)
    edges.plan()[2].fill_(1000)
    with pytest.raises(IndexError, match="columns"):
        edge_attention(q, k, v, edges)


def change(**changes):
    def call():
        q, k, v = inputs()
        edge_attention(**({"query": q, "key": k, "value": v, "edges": some_edges(1)} | {
            name: value({"query": q, "key": k, "value": v}[name]) if callable(value) else value
            for name, value in changes.items()}))
    return call


@pytest.mark.parametrize("call, error, message", [
    (change(edges=torch.ones(3, 3)), TypeError, "expected an edgewise.EdgeSet"),
    (change(edges=EdgeSet.window(36, 2)), ValueError, "edges of 37 queries and 37 keys"),
    (change(edges=EdgeSet.from_mask(torch.ones(3, 1, 37, 37, dtype=torch.bool))), ValueError, "1 for all"),
    (change(query=lambda q: q[0]), ValueError, r"query \[B, H, L, D\]"),
    (change(query=lambda q: q.double()), TypeError, "one dtype"),
    (change(query=lambda q: q[:1]), ValueError, "to match query"),
    (change(key=lambda k: k[..., :4]), ValueError, "to match query"),
    (change(value=lambda v: v[:, :, :5]), ValueError, "to match query"),
    (change(query=lambda q: q.int(), key=lambda k: k.int(), value=lambda v: v.int()), TypeError, "float32, float64 or bfloat16"),
    (change(dropout_p=1.5), ValueError, r"dropout_p in \[0, 1\]"),
    (change(scale=float("nan")), ValueError, "finite scale"),
    (change(key_mask=torch.ones(2, 5, dtype=torch.bool)), ValueError, r"key mask \[2, 37\]"),
    (change(key_mask=torch.ones(2, 37)), TypeError, "bool key mask"),
    (change(dropout_p=0.1, seed=torch.tensor([0.5])), TypeError, "int64 seed"),
    (change(dropout_p=0.1, seed=torch.zeros(9, dtype=torch.int64)), ValueError, "1 to 4 numbers"),
])
def test_refuses_with_a_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_plans_that_are_none_are_refused():
    q, k, v = (x.detach() for x in inputs(1, 1, 8, 8))
    plan = EdgeSet.window(8, 1).plan()
    raw = lambda p, shape=(1, 1, 8, 8): torch.ops.edgewise.plan_attention(q, k, v, p, shape, None, None, False, None, 0.0, False)
    raw(plan)
    for bad in ([], plan[:1], plan[1:], [plan[0]] * 3, [plan[0], plan[2], plan[1]], plan + plan,
                [plan[0], plan[1].float(), plan[2]], [plan[0], plan[1] + 1, plan[2]]):
        with pytest.raises((ValueError, IndexError, TypeError), match="expected"):
            raw(bad)
    with pytest.raises(ValueError, match="expected"):
        raw(plan, (1, 1, 4, 8))


def test_random_calls_give_a_result_or_a_sentence():
    generator = random.Random(0)
    sizes = [0, 1, 2, 5, 16, 17]
    dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool]
    made = refused = 0
    for _ in range(10_000):
        some = lambda *chances: generator.choices(sizes, k=len(chances))
        shape = [generator.choice(sizes[1:3]), generator.choice([1, 2]), *some(1, 1, 1)]
        wrong = lambda s: s if generator.random() < 0.8 else [generator.choice(sizes) for _ in range(generator.choice([2, 3, 4]))]
        tensor = lambda s: torch.ones(s, dtype=generator.choice(dtypes) if generator.random() < 0.05 else torch.float32)
        batch, heads, queries, keys, dim = shape
        q, k = tensor(wrong([batch, heads, queries, dim])), tensor(wrong([batch, heads, keys, dim]))
        v = tensor(wrong([batch, heads, keys, generator.choice([dim, 3])]))
        try:
            edges = EdgeSet.from_mask(torch.rand(wrong([batch, generator.choice([1, heads]), queries, keys])) < 0.5)
            out = edge_attention(q, k, v, edges, generator.choice([0.0, 0.0, 0.5, 2.0, -1.0]), generator.random() < 0.3)
            assert out.shape == (*q.shape[:3], v.shape[3]) and out.isfinite().all()
            made += 1
        except (ValueError, TypeError, IndexError, NotImplementedError) as error:
            assert "expected" in str(error), error
            refused += 1
    assert made > 1000 and refused > 1000


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("unit", [1, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_cuda_is_the_cpu(unit, dtype):
    q, k, v = inputs(queries=100, keys=100, dim=32, dtype=dtype)
    edges, weight = some_edges(unit, 1, 4, 100, 100), torch.randn(2, 4, 100, 32)
    there = [x.detach().cuda().requires_grad_() for x in (q, k, v)]
    for causal in (False, True):
        out = edge_attention(q, k, v, edges, is_causal=causal)
        mine = edge_attention(*there, edges.to("cuda"), is_causal=causal)
        close = dict(atol=5 * TOLERANCE[dtype] + 1e-3, rtol=5 * TOLERANCE[dtype] + 1e-3)
        torch.testing.assert_close(mine.cpu().float(), out.float(), **close)
        for a, b in zip(torch.autograd.grad((mine.cpu() * weight).sum(), there), torch.autograd.grad((out * weight).sum(), (q, k, v))):
            torch.testing.assert_close(a.cpu().float(), b.float(), **close)


def test_synchronize_is_harmless_without_a_gpu():
    edgewise.synchronize()
