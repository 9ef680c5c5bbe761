"""The table of docs/how-to/python.md: every cell is a test. Rows are what users of PyTorch do, columns kinds of edges."""

import contextlib
import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import edgewise
from edgewise import EdgeSet, edge_attention
from edgewise.nn import MultiheadEdgeAttention, SbmEdges, WindowEdges

raw = torch.ops.edgewise


def own(query, key):
    return torch.sigmoid(query @ key.mT)


COLUMNS = {
    "pattern": lambda: WindowEdges(5),
    "pattern in squares": lambda: WindowEdges(5, unit=16),
    "learned": lambda: SbmEdges(4, 8),
    "learned in squares": lambda: SbmEdges(4, 8, unit=16),
    "own": lambda: edgewise.nn.FunctionEdges(own),
    "own in squares": lambda: edgewise.nn.FunctionEdges(own, unit=16),
}


@pytest.fixture(params=COLUMNS)
def attention(request):
    torch.manual_seed(1)
    return MultiheadEdgeAttention(32, 4, COLUMNS[request.param](), dropout=0.1, density_weight=0.1)


@contextlib.contextmanager
def compilations():
    from torch._dynamo.utils import counters

    counters.clear()
    yield lambda: counters["stats"]["unique_graphs"]


def step(model, x):
    loss = model(x)[0].square().mean()
    loss.backward()
    return loss.detach()


def test_eager(attention):
    x, y = torch.randn(2, 40, 32), torch.randn(2, 40, 32)
    optimizer = torch.optim.Adam(attention.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (attention(x)[0] - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_fullgraph_once_over_twenty_steps(attention, backend, request):
    if backend == "inductor" and request.node.callspec.params["attention"] != "learned in squares":
        pytest.skip("one kind tells what inductor does; the others take long")
    compiled = torch.compile(attention, fullgraph=True, backend=backend)
    optimizer = torch.optim.SGD(attention.parameters(), lr=0.01)
    with compilations() as count:
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            losses.append(step(compiled, torch.randn(2, 40, 32)))
            optimizer.step()
        assert count() == 1
    assert torch.stack(losses).isfinite().all()


@pytest.fixture
def same_draws(monkeypatch):
    """A compiled program numbers the draws of training its own way."""
    monkeypatch.setattr(edgewise.nn.EdgeSource, "draw_seed", lambda self: torch.tensor([3], dtype=torch.int64))


def test_inductor_gives_the_gradients_of_eager_steps(same_draws):
    """Of all kinds of edges in one program, with inputs that inductor works out anew for the backward pass."""
    torch.manual_seed(1)
    sources = nn.ModuleList([make() for make in COLUMNS.values()])
    x, w = torch.randn(2, 4, 40, 8, requires_grad=True), torch.randn(len(sources), 8, 8, requires_grad=True)

    def loss(x, w):
        total = 0
        for n, source in enumerate(sources):
            h, penalty = source.attend(edgewise.nn.AttentionCall((x @ w[n]).sin(), (x @ w[n]).cos(), (x @ w[n]).tanh()))
            total = total + (h.sin() * h.cos() + h.tanh()).square().mean()
            total = total if penalty is None else total + penalty.mean()
        return total

    given = (x, w, *sources.parameters())
    expected = torch.autograd.grad(loss(x, w), given)
    found = torch.autograd.grad(torch.compile(loss, fullgraph=True)(x, w), given)
    for a, b in zip(found, expected):
        assert (a - b).norm() <= 1e-4 * b.norm()
    for n in range(len(sources)):  # each kind by itself: one that is wrong must not hide behind another
        assert (found[1][n] - expected[1][n]).norm() <= 1e-4 * expected[1][n].norm(), list(COLUMNS)[n]


def test_another_density_weight_is_the_same_program():
    attention = MultiheadEdgeAttention(32, 4, SbmEdges(4, 8), density_weight=0.1)
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    with compilations() as count:
        for n in range(10):
            attention.density_weight = 0.01 * n
            compiled(torch.randn(2, 40, 32))[0].sum().backward()
        assert count() == 1


def test_compiled_steps_are_the_eager_ones(attention, same_draws):
    x = torch.randn(2, 40, 32)
    attention.dropout = 0.0
    expected = step(attention, x)
    grads = [p.grad.clone() for p in attention.parameters()]
    attention.zero_grad()
    found = step(torch.compile(attention, fullgraph=True, backend="aot_eager"), x)
    torch.testing.assert_close(found, expected)
    for a, b in zip(attention.parameters(), grads):
        torch.testing.assert_close(a.grad, b)


def test_compile_lengths_that_change(attention):
    compiled = torch.compile(attention.eval(), fullgraph=True, backend="aot_eager")
    for length in (40, 17, 64, 40):
        x = torch.randn(2, length, 32)
        torch.testing.assert_close(compiled(x)[0], attention(x)[0])


def test_compile_edge_sets_that_change():
    """Two graphs for five sets: the sizes of the first, then any."""
    q, k, v = (torch.randn(1, 2, 40, 8, requires_grad=True) for _ in range(3))
    compiled = torch.compile(lambda edges: edge_attention(q, k, v, edges).square().sum(), fullgraph=True, backend="aot_eager")
    with compilations() as count:
        for width in range(1, 6):
            edges = EdgeSet.window(40, width)
            torch.testing.assert_close(compiled(edges), edge_attention(q, k, v, edges).square().sum())
        assert count() <= 2


def test_making_edges_inside_of_a_compiled_function():
    q, k, v = (torch.randn(1, 2, 40, 8, requires_grad=True) for _ in range(3))
    compiled = torch.compile(lambda: edge_attention(q, k, v, EdgeSet.window(40, 3)), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(), edge_attention(q, k, v, EdgeSet.window(40, 3)))


OPS = {
    "plan": lambda q, k, v: (raw.plan_attention.default, (q, k, v, EdgeSet.window(20, 3).plan(), [1, 1, 20, 20], None,
                                                          torch.tensor([3]), True, None, 0.1, True)),
    "squares": lambda q, k, v: (raw.plan_attention.default, (q, k, v, EdgeSet.window(20, 3, unit=16).plan(), [1, 1, 20, 20],
                                                             torch.ones(2, 20, dtype=torch.bool), None, False, 0.5, 0.0, True)),
    "sbm": lambda q, k, v: (raw.sbm_attention.default, (q, k, v, list(SbmEdges(2, 4).parameters()), None, torch.tensor([3]),
                                                        "clusters=32", True, False, None, 0.0, None, True)),
    "own": lambda q, k, v: (raw.drawn_attention.default, (q, k, v, torch.rand(2, 2, 20, 20, requires_grad=True), None,
                                                          torch.tensor([3]), "probe_rate=0.1", True, False, None, 0.0, True)),
}


@pytest.mark.parametrize("op", OPS)
def test_opcheck(op):
    q, k, v = (torch.randn(2, 2, 20, 4, requires_grad=True) for _ in range(3))
    # The tape's number is another in every call, so opcheck's comparison of outputs is done by the tests above.
    torch.library.opcheck(*OPS[op](q, k, v), test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))


@pytest.mark.parametrize("op", ["edge_plan", "plan_mask", "plan_counts", "plan_to"])
def test_opcheck_of_plans(op):
    edges = EdgeSet.window(20, 3)
    offsets, columns = edges.csr()
    arguments = {"edge_plan": (offsets, columns, [1, 1, 20, 20]), "plan_to": (edges.plan(), [1, 1, 20, 20], torch.device("cpu"))}
    torch.library.opcheck(getattr(raw, op).default, arguments.get(op, (edges.plan(), [1, 1, 20, 20])),
                          test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("unit", [1, 16])
def test_gradcheck(unit):
    q, k, v = (torch.randn(1, 2, 20, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    edges = EdgeSet.window(20, 2, unit=unit)
    assert torch.autograd.gradcheck(lambda *x: edge_attention(*x, edges, is_causal=True), (q, k, v))


def test_gradcheck_of_a_learned_layer():
    """Of query, key and value: the edges do not move with them in evaluation, where no probes are drawn either."""
    torch.manual_seed(0)
    source = SbmEdges(2, 3).double().eval()
    for parameter in source.parameters():
        parameter.requires_grad_(False)
    v = torch.randn(1, 2, 12, 3, dtype=torch.float64, requires_grad=True)
    q, k = (torch.randn(1, 2, 12, 3, dtype=torch.float64) for _ in range(2))
    assert torch.autograd.gradcheck(lambda v: source.attend(edgewise.nn.AttentionCall(q, k, v))[0], (v,))


def test_forward_mode_derivatives_are_refused_not_left_out(attention):
    import torch.autograd.forward_ad as forward_ad

    for parameter in attention.parameters():
        parameter.requires_grad_(False)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="no tangents"):
        attention(forward_ad.make_dual(torch.randn(2, 40, 32), torch.randn(2, 40, 32)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("compiled", [False, True])
def test_autocast(attention, dtype, compiled):
    x = torch.randn(2, 40, 32)
    attention.eval()
    expected = attention(x)[0]
    run = torch.compile(attention, fullgraph=True, backend="aot_eager") if compiled else attention
    with torch.autocast("cpu", dtype=dtype):
        out = run(x)[0]
    assert out.dtype == dtype and out.isfinite().all()
    out.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in attention.parameters())
    if attention.edges.extra_repr().startswith("width"):  # learned edges are others where probabilities are rounded
        torch.testing.assert_close(out.float(), expected, atol=5e-2, rtol=5e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_modules_of_another_dtype(attention, dtype):
    attention.to(dtype)
    x = torch.randn(2, 40, 32, dtype=dtype)
    out = attention(x)[0]
    out.square().mean().backward()
    assert out.dtype == dtype and all(p.grad.isfinite().all() for p in attention.parameters())


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpointing_replays_the_same_edges(attention, use_reentrant):
    x = torch.randn(2, 40, 32, requires_grad=True)
    torch.manual_seed(7)
    out = attention(x)[0]
    out.square().sum().backward()
    expected, x.grad = x.grad, None
    grads = [p.grad.clone() for p in attention.parameters()]
    attention.zero_grad()
    torch.manual_seed(7)
    again = checkpoint(lambda x: attention(x)[0], x, use_reentrant=use_reentrant)
    again.square().sum().backward()
    assert torch.equal(again, out) and torch.equal(x.grad, expected)
    for a, b in zip(attention.parameters(), grads):
        assert torch.equal(a.grad, b)


def test_saved_tensors_on_the_cpu(attention):
    """Hooks move what is saved, the tape's ticket too: the backward pass does the work again."""
    x = torch.randn(2, 40, 32)
    torch.manual_seed(7)
    step(attention, x)
    grads = [p.grad.clone() for p in attention.parameters()]
    attention.zero_grad()
    torch.manual_seed(7)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        step(attention, x)
    for a, b in zip(attention.parameters(), grads):
        assert torch.equal(a.grad, b)


def test_func_grad_and_functional_call(attention):
    x = torch.randn(2, 40, 32)
    parameters = {name: p.detach() for name, p in attention.named_parameters()}
    loss = lambda parameters: torch.func.functional_call(attention, parameters, (x,))[0].square().mean()
    torch.manual_seed(7)
    found = torch.func.grad(loss)(parameters)
    torch.manual_seed(7)
    step(attention, x)
    for name, p in attention.named_parameters():
        torch.testing.assert_close(found[name], p.grad, msg=name)


def test_export(attention):
    attention.eval()
    x = torch.randn(2, 40, 32)
    program = torch.export.export(attention, (x,))
    torch.testing.assert_close(program.module()(x)[0], attention(x)[0])


@pytest.mark.parametrize("attention", ["pattern", "learned in squares", "own"], indirect=True)
def test_data_parallel_in_two_processes(attention, tmp_path):
    import torch.multiprocessing as processes

    processes.spawn(_train_in_process, (attention, str(tmp_path / "meeting"), str(tmp_path)), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for a, b in zip(first, second):
        assert torch.equal(a, b)


@pytest.mark.parametrize("attention", ["pattern", "learned in squares", "own"], indirect=True)
def test_sharded_parameters_in_two_processes(attention, tmp_path):
    """FSDP2 gives the steps of one process over the same tokens."""
    import torch.multiprocessing as processes

    attention.dropout = 0.0
    attention.edges.eval()  # both processes draw the same edges; the layer still sends its penalty
    expected = copy.deepcopy(attention)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the processes have: sums in another order may choose another edge
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
    for number in range(3):
        optimizer.zero_grad()
        step(expected, tokens_of(number))
        optimizer.step()
    torch.set_num_threads(threads)
    processes.spawn(_train_sharded, (attention, str(tmp_path / "meeting"), str(tmp_path)), nprocs=2)
    for rank in range(2):
        for (name, a), b in zip(expected.named_parameters(), torch.load(tmp_path / f"{rank}.pt")):
            torch.testing.assert_close(a.detach(), b, atol=1e-5, rtol=1e-4, msg=name)


def tokens_of(number):
    return torch.randn(2, 40, 32, generator=torch.Generator().manual_seed(number))


def _train_sharded(rank, attention, meeting, folder):
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    model = fully_shard(copy.deepcopy(attention), mesh=torch.distributed.init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(3):
        optimizer.zero_grad()
        step(model, tokens_of(number))
        optimizer.step()
    torch.save([p.full_tensor().detach() for p in model.parameters()], f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def _train_in_process(rank, attention, meeting, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    attention = copy.deepcopy(attention)  # what comes from another process lies in memory that both share
    model = nn.parallel.DistributedDataParallel(attention)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(3):
        optimizer.zero_grad()
        step(model, torch.randn(2, 40, 32))
        optimizer.step()
    torch.save([p.detach() for p in attention.parameters()], f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_record_sees_compiled_layers(attention):
    compiled, x = torch.compile(attention.eval(), fullgraph=True, backend="aot_eager"), torch.randn(2, 40, 32)
    with edgewise.record() as eager:
        attention(x)
    with edgewise.record() as traced:
        compiled(x)
    torch.testing.assert_close(traced.density, eager.density)


@pytest.mark.parametrize("causal", [False, True])
def test_packed_sequences_are_block_diagonal_edges(causal):
    lengths = [5, 12, 3]
    edges = EdgeSet.block_diagonal(lengths, causal=causal)
    q, k, v = (torch.randn(1, 2, 20, 4) for _ in range(3))
    packed = edge_attention(q, k, v, edges)
    for x in zip(*(x.split(lengths, 2) for x in (packed, q, k, v))):
        torch.testing.assert_close(x[0], nn.functional.scaled_dot_product_attention(*x[1:], is_causal=causal))


def test_nested_tensors_are_packed_sequences():
    """Jagged ones hold their sequences packed, and the offsets between them. Gradients reach the nested tensor."""
    sequences = [torch.randn(length, 3, 2, 4) for length in (5, 12, 3)]  # of each: [length, q k v, heads, head dim]
    nested = torch.nested.nested_tensor(sequences, layout=torch.jagged, requires_grad=True)
    q, k, v = nested.values().permute(1, 2, 0, 3).unsqueeze(1)           # [1, heads, tokens of all, head dim] each
    out = edge_attention(q, k, v, EdgeSet.block_diagonal(nested.offsets().diff()))
    answer = torch.nested.nested_tensor_from_jagged(out[0].transpose(0, 1), nested.offsets())
    for one, given in zip(answer.unbind(), sequences):
        q, k, v = given.permute(1, 2, 0, 3).unsqueeze(1)
        torch.testing.assert_close(one, nn.functional.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1))
    out.square().sum().backward()
    assert all(x.isfinite().all() and x.abs().sum() > 0 for x in nested.grad.unbind())


def test_inputs_that_are_not_contiguous(attention):
    attention.eval()
    x = torch.randn(2, 40, 32)
    strange = torch.randn(2, 32, 80).transpose(1, 2)[:, ::2]
    strange.copy_(x)
    assert not strange.is_contiguous()
    mask = torch.zeros(40, 2, dtype=torch.bool).T
    torch.testing.assert_close(attention(strange, key_padding_mask=mask)[0], attention(x, key_padding_mask=mask.contiguous())[0])


def test_lengths_that_change(attention):
    for length in (40, 17, 1, 64):
        out = attention(torch.randn(2, length, 32))[0]
        assert out.shape == (2, length, 32)
        out.sum().backward()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_trains_on_cuda(attention):
    attention.cuda()
    x = torch.randn(2, 40, 32, device="cuda")
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
            loss = attention(x)[0].float().square().mean()
        loss.backward()
        assert loss.isfinite()
    compiled = torch.compile(attention, fullgraph=True)
    compiled(x)[0].sum().backward()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("attention", ["pattern", "pattern in squares"], indirect=True)
def test_cuda_graph_of_a_pattern(attention):
    """Replayed with other inputs, it gives what eager calls give."""
    attention.cuda().eval().bfloat16()
    place = torch.randn(2, 128, 32, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        aside = torch.cuda.Stream()
        with torch.cuda.stream(aside):
            for _ in range(3):
                attention(place)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = attention(place)[0]
        for _ in range(3):
            x = torch.randn_like(place)
            place.copy_(x)
            graph.replay()
            torch.testing.assert_close(out, attention(x)[0])


@pytest.mark.parametrize("name", [name for name in COLUMNS if "pattern" not in name])
def test_learned_edges_with_fewer_key_heads_and_in_cross_attention(name):
    source = MultiheadEdgeAttention(32, 4, COLUMNS[name]()).edges.eval()
    q = torch.randn(2, 4, 33, 8, requires_grad=True)
    k, v = (torch.randn(2, 2, 40, 8, requires_grad=True) for _ in range(2))
    if "own" in name:
        source.function = lambda query, key: torch.full((1, 1, query.shape[2], key.shape[2]), 0.5)
    few, _ = source.attend(edgewise.nn.AttentionCall(q, k, v))
    grads = torch.autograd.grad(few.square().sum(), (q, k, v))
    many, _ = source.attend(edgewise.nn.AttentionCall(q, *(x.repeat_interleave(2, 1) for x in (k, v))))
    torch.testing.assert_close(few, many)
    for a, b in zip(grads, torch.autograd.grad(many.square().sum(), (q, k, v))):
        torch.testing.assert_close(a, b)
    with pytest.raises(ValueError, match="as many queries as keys"):
        source.attend(edgewise.nn.AttentionCall(q, k, v, key_mask=torch.ones(2, 40, dtype=torch.bool)))
