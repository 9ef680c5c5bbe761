"""torch.ops.edgewise.* over CSR, as whoever loads the library without the package meets them."""

import math
import os
import subprocess
import sys

import pytest
import torch

import edgewise

raw = torch.ops.edgewise


def csr(mask):
    """CSR of a boolean mask [B, H, L, S]."""
    rows = mask.reshape(-1, mask.shape[-1])
    offsets = torch.zeros(rows.shape[0] + 1, dtype=torch.int64)
    offsets[1:] = rows.sum(1).cumsum(0)
    return offsets, rows.nonzero()[:, 1].to(torch.int32)


def inputs(dtype=torch.float64, requires_grad=True):
    torch.manual_seed(0)
    make = lambda n: torch.randn(2, 3, n, 8, dtype=dtype, requires_grad=requires_grad)
    mask = torch.rand(2, 3, 5, 7) < 0.5
    return make(5), make(7), make(7), mask


def dense(q, k, v, mask, scale=None):
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return torch.where(mask.any(-1, keepdim=True), out, torch.zeros_like(out))


def test_matches_scaled_dot_product_attention_with_a_mask():
    q, k, v, mask = inputs()
    for scale in (None, 0.3, 0.0):
        out = raw.edge_attention(q, k, v, *csr(mask), scale)
        torch.testing.assert_close(out, dense(q, k, v, mask, scale))
    grads = torch.autograd.grad(out.square().sum(), (q, k, v))
    expected = torch.autograd.grad(dense(q, k, v, mask, 0.0).square().sum(), (q, k, v))
    for mine, theirs in zip(grads, expected):
        torch.testing.assert_close(mine, theirs)


def test_gradcheck():
    q, k, v, mask = inputs()
    assert torch.autograd.gradcheck(lambda *x: raw.edge_attention(*x, *csr(mask)), (q, k, v))


def test_second_derivatives_are_refused_not_silently_zero():
    q, k, v, mask = inputs()
    with pytest.raises(NotImplementedError, match="differentiated once"):
        torch.autograd.grad(raw.edge_attention(q, k, v, *csr(mask)).square().sum(), q, create_graph=True)


def test_autocast_casts_query_key_and_value_together():
    q, k, v, mask = inputs(torch.float32)
    edges = csr(mask)
    plain = raw.edge_attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), *edges)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        # As in a model: the query comes out of a product, the value does not.
        mixed = raw.edge_attention(q.bfloat16(), k, v, *edges)
        credit = raw.edge_credit(torch.ones_like(mixed).float(), q, k.bfloat16(), v, *edges)
    assert mixed.dtype == torch.bfloat16 and torch.equal(mixed, plain)
    assert torch.equal(credit, raw.edge_credit(torch.ones_like(plain), q.bfloat16(), k.bfloat16(), v.bfloat16(), *edges))
    grads = torch.autograd.grad(mixed.float().square().sum(), (q, k, v))
    expected = torch.autograd.grad(plain.float().square().sum(), (q, k, v))
    for mine, theirs in zip(grads, expected):
        assert mine.dtype == torch.float32 and torch.equal(mine, theirs)
    wide = raw.edge_attention(q.half().float(), k, v, *edges)
    with torch.autocast("cpu", dtype=torch.float16):  # no kernel has float16
        assert torch.equal(raw.edge_attention(q.half(), k, v, *edges), wide)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert raw.edge_attention(q.double(), k.double(), v.double(), *edges).dtype == torch.float64
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False), pytest.raises(TypeError, match="one dtype"):
        raw.edge_attention(q.bfloat16(), k, v, *edges)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_autocast_on_cuda():
    q, k, v, mask = (x.detach().cuda() for x in inputs(torch.float32))
    edges = csr(mask.cpu())
    edges = tuple(x.cuda() for x in edges)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert raw.edge_attention(q.bfloat16(), k, v, *edges).dtype == torch.bfloat16
    with torch.autocast("cuda"):  # float16
        assert raw.edge_attention(q.half(), k, v, *edges).dtype == torch.float32


@pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9
                    or os.environ.get("CUDA_LAUNCH_BLOCKING") == "1", reason="needs a Hopper GPU that is not waited for")
def test_bad_edges_on_cuda_are_told_later():
    q, k, v, mask = (x.detach().cuda() for x in inputs(torch.float32))
    offsets, columns = (x.cuda() for x in csr(mask.cpu()))
    bad = columns.clone()
    bad[0] = 99
    assert raw.edge_attention(q, k, v, offsets, bad).isnan().all()
    with pytest.raises(IndexError, match="an earlier call"):
        edgewise.synchronize()
    assert not raw.edge_attention(q, k, v, offsets, columns).isnan().any()
    edgewise.synchronize()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_layouts_and_credit_on_cuda_are_those_of_the_cpu():
    q, k, v, mask = inputs(torch.float32, requires_grad=False)
    edges = csr(mask)
    there = [x.cuda() for x in (q, k, v, *edges)]
    torch.library.opcheck(torch.ops.edgewise.edge_attention_forward.default, tuple(there))
    grad = torch.randn(2, 3, 5, 8)
    for estimator in ("paper", "logit", "counterfactual"):
        expected = raw.edge_credit(grad, q, k, v, *edges, estimator=estimator)
        torch.testing.assert_close(raw.edge_credit(grad.cuda(), *there, estimator=estimator).cpu(), expected)


def test_synchronize_is_harmless_without_a_gpu():
    edgewise.synchronize()


def test_credit_has_no_silent_gradient():
    q, k, v, mask = inputs()
    credit = raw.edge_credit(torch.randn(2, 3, 5, 8, dtype=torch.float64), q, k, v, *csr(mask))
    with pytest.raises(RuntimeError, match="edge_credit is not implemented"):
        credit.sum().backward()


def test_opcheck():
    q, k, v, mask = inputs()
    torch.library.opcheck(torch.ops.edgewise.edge_attention.default, (q, k, v, *csr(mask)))
    torch.library.opcheck(torch.ops.edgewise.edge_attention_forward.default,
                          tuple(x.detach() for x in (q, k, v)) + csr(mask))
    torch.library.opcheck(torch.ops.edgewise.sample_sbm_edges.default, (torch.rand(1, 2, 6, 4), torch.rand(1, 2, 6, 4)))


def test_compiles_and_traces():
    q, k, v, mask = inputs(torch.float32)
    offsets, columns = csr(mask)
    traced = torch.compile(lambda *x: raw.edge_attention(*x, offsets, columns).square().sum(), backend="aot_eager",
                           fullgraph=True)
    loss = traced(q, k, v)
    loss.backward()
    torch.testing.assert_close(loss, raw.edge_attention(q, k, v, offsets, columns).square().sum())
    assert q.grad is not None


def test_sampling_is_repeatable_and_follows_the_law():
    torch.manual_seed(1)
    query, key = torch.rand(400, 1, 8, 4), torch.rand(400, 1, 9, 4) / 4
    query, key = query[:1].expand_as(query), key[:1].expand_as(key)
    offsets, columns = raw.sample_sbm_edges(query, key, seed=3, step=2)
    again = raw.sample_sbm_edges(query, key, seed=3, step=2)
    assert torch.equal(columns, again[1]) and torch.equal(offsets, again[0])
    p = query[0, 0] @ key[0, 0].T
    for law, probability in (("bernoulli", p), ("poisson", 1 - torch.exp(-p))):
        for sampler in ("direct", "fastrg", "auto"):
            offsets, _ = raw.sample_sbm_edges(query, key, law=law, sampler=sampler, seed=5)
            mean = offsets[-1].item() / (400 * 72)
            error = (probability * (1 - probability)).sum().sqrt().item() / 72 / math.sqrt(400)
            assert abs(mean - probability.mean().item()) < 4.7 * error


@pytest.mark.parametrize("sampler", ["auto", "direct", "fastrg", "squeezed", "thinning"])
def test_bools_of_any_byte_are_true(sampler):
    torch.manual_seed(2)
    query, key = torch.rand(2, 2, 64, 4), torch.rand(2, 2, 64, 4) / 4
    mask = torch.rand(2, 64) < 0.6
    odd = (mask.to(torch.uint8) * 255).view(torch.bool)
    for mine, theirs in zip(raw.sample_sbm_edges(query, key, key_mask=odd, sampler=sampler),
                            raw.sample_sbm_edges(query, key, key_mask=mask, sampler=sampler)):
        assert torch.equal(mine, theirs)
    full = torch.full((2, 64), 255, dtype=torch.uint8).view(torch.bool)
    assert torch.equal(raw.sample_sbm_edges(query, key, key_mask=full, sampler=sampler)[1],
                       raw.sample_sbm_edges(query, key, sampler=sampler)[1])


def device_calls():
    """Each op with all of its tensors, by name."""
    q, k, v, mask = inputs(requires_grad=False)
    offsets, columns = csr(mask)
    attention = dict(query=q, key=k, value=v, row_offsets=offsets, col_indices=columns)
    output, lse = torch.ops.edgewise.edge_attention_forward(**attention)
    grad = torch.randn_like(output)
    memberships = dict(query_membership=torch.rand(1, 2, 6, 4), key_side=torch.rand(1, 2, 6, 4),
                       key_mask=torch.ones(1, 6, dtype=torch.bool))
    ops = torch.ops.edgewise
    return [(ops.edge_attention, attention), (ops.edge_attention_forward, attention),
            (ops.edge_attention_backward, dict(grad_output=grad, output=output, lse=lse, **attention)),
            (ops.edge_credit, dict(grad_output=grad, **attention)), (ops.sample_sbm_edges, memberships)]


@pytest.mark.parametrize("other", ["meta", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(),
                                                                                         reason="needs a GPU"))])
@pytest.mark.parametrize("op, call", device_calls(), ids=lambda x: str(x) if not isinstance(x, dict) else "")
def test_one_tensor_on_another_device_is_refused(op, call, other):
    op(**call)
    for name, tensor in call.items():
        with pytest.raises(ValueError, match="expected all tensors on one device"):
            op(**(call | {name: tensor.to(other)}))
        rest = {n: t if n == name else t.to(other) for n, t in call.items()}
        with pytest.raises(ValueError, match="expected all tensors on one device"):
            op(**rest)
    if other == "meta" and "query" in call:  # all of them there: shapes alone
        result = op(**{n: t.to("meta") for n, t in call.items()})
        assert all(t.is_meta for t in (result if isinstance(result, tuple) else (result,)))


def test_a_tensor_that_needs_a_gradient_on_another_device_is_refused():
    q, k, v, mask = inputs()
    with pytest.raises(ValueError, match="expected all tensors on one device"):
        raw.edge_attention(q, k, v.detach().to("meta"), *csr(mask))


def test_credit_of_a_removed_edge_is_the_change_of_the_loss():
    q, k, v, mask = inputs(requires_grad=False)
    mask[:, :, :, 0] = True
    offsets, columns = csr(mask)
    grad = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    credit = raw.edge_credit(grad, q, k, v, offsets, columns, estimator="counterfactual", present_form="leave_one_out")
    loss = (raw.edge_attention(q, k, v, offsets, columns) * grad).sum()
    smaller = mask.clone()
    smaller[0, 0, 0, 0] = False  # the first edge of the first row
    without = (raw.edge_attention(q, k, v, *csr(smaller)) * grad).sum()
    torch.testing.assert_close(credit[0], loss - without)


@pytest.mark.parametrize("change, expected", [
    (dict(row_offsets=torch.zeros(3, dtype=torch.int64)), r"row_offsets \[B\*H\*L \+ 1\]"),
    (dict(col_indices=torch.full((4,), 99, dtype=torch.int32)), "row_offsets|columns in"),
    (dict(query=torch.zeros(2, 3, 5)), r"query \[B, H, L, D\]"),
    (dict(query=torch.zeros(2, 3, 5, 8, dtype=torch.float16)), "float32, float64 or bfloat16|one dtype"),
])
def test_refuses_bad_input_with_a_sentence(change, expected):
    q, k, v, mask = inputs()
    offsets, columns = csr(mask)
    call = dict(query=q, key=k, value=v, row_offsets=offsets, col_indices=columns) | change
    with pytest.raises((ValueError, RuntimeError, TypeError, IndexError), match=expected):
        raw.edge_attention(**call)


def test_refuses_columns_out_of_range_and_unknown_names():
    q, k, v, mask = inputs()
    offsets, columns = csr(mask)
    columns = columns.clone()
    columns[-1] = 7
    with pytest.raises(IndexError, match=r"edge_attention: expected columns in \[0, 7\)"):
        raw.edge_attention(q, k, v, offsets, columns)
    with pytest.raises(IndexError, match=r"edge_credit: expected columns in \[0, 7\)"):
        raw.edge_credit(q, q, k, v, offsets, columns)
    with pytest.raises(ValueError, match="bernoulli, poisson; got 'gauss'"):
        raw.sample_sbm_edges(torch.rand(1, 1, 2, 2), torch.rand(1, 1, 2, 2), law="gauss")
    with pytest.raises(ValueError, match="auto, direct, fastrg"):
        raw.sample_sbm_edges(torch.rand(1, 1, 2, 2), torch.rand(1, 1, 2, 2), sampler="magic")
    with pytest.raises(ValueError, match="finite and not negative"):
        raw.sample_sbm_edges(torch.full((1, 1, 2, 2), float("nan")), torch.rand(1, 1, 2, 2))


def test_a_missing_library_says_what_to_do():
    code = "import os; os.environ['EDGEWISE_LIBRARY'] = '/nowhere/libedgewise.so'; import edgewise"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode != 0 and "which is not a file" in result.stderr
