"""edgewise.nn: sources, MultiheadEdgeAttention, EdgeTransformerEncoderLayer, record()."""

import copy
import pickle

import pytest
import torch
from torch import nn

import edgewise
from edgewise import EdgeSet
from edgewise.nn import (EdgeSource, EdgeTransformerEncoderLayer, FullEdges, FunctionEdges, GivenEdges,
                         MultiheadEdgeAttention, RandomEdges, SbmEdges, WindowEdges)


class Nearest(EdgeSource):
    """The source of the documents."""

    def __init__(self, dim, **options):
        super().__init__(**options)
        self.query, self.key = nn.Linear(dim, 16), nn.Linear(dim, 16)

    def choose(self, query, key):
        return torch.sigmoid(self.query(query) @ self.key(key).mT)


SOURCES = {
    "dense": lambda: None,
    "window": lambda: WindowEdges(5),
    "window squares": lambda: WindowEdges(5, unit=16),
    "full": FullEdges,
    "random": lambda: RandomEdges(6),
    "random squares": lambda: RandomEdges(2, unit=16),
    "given": lambda: EdgeSet.window(40, 9),
    "function": lambda: lambda query, key: torch.sigmoid(query @ key.mT),
    "own": lambda: Nearest(8),
    "own squares": lambda: Nearest(8, unit=16, window=0),
    "own and window": lambda: Nearest(8, window=2),
    "sbm": lambda: SbmEdges(4, 8),
    "sbm squares": lambda: SbmEdges(4, 8, unit=16, window=0),
    "sbm and window": lambda: SbmEdges(4, 8, window=2),
    "sbm paper": lambda: SbmEdges(4, 8, preset="paper"),
    "sbm published": lambda: SbmEdges(4, 8, preset="published"),
}
LEARNERS = [name for name in SOURCES if name == "function" or name.startswith("own") or name.startswith("sbm")]


@pytest.fixture(params=SOURCES)
def attention(request):
    torch.manual_seed(1)
    return MultiheadEdgeAttention(32, 4, SOURCES[request.param](), density_weight=0.1)


def padded(batch=3, length=40):
    """True = padding, as in PyTorch."""
    mask = torch.zeros(batch, length, dtype=torch.bool)
    mask[1, 29:] = True
    return mask


def test_shapes_gradients_and_record(attention):
    x = torch.randn(3, 40, 32, requires_grad=True)
    with edgewise.record(edges=True) as seen:
        out, weights = attention(x)
    assert out.shape == x.shape and weights is None
    out.square().sum().backward()
    for name, parameter in attention.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    if attention.edges is None:
        return
    assert seen.density.shape == (1, 4) and len(seen.edges) == 1
    assert 0 < seen.density.min() and seen.density.max() <= 1
    counts = seen.edges[0].counts().double().expand(3 if seen.edges[0].shape[0] == 1 else -1, 4).mean(0) / (40 * 40)
    torch.testing.assert_close(seen.density[0], counts)


@pytest.mark.parametrize("is_causal", [False, True])
def test_padding_and_the_future_are_never_seen(attention, is_causal):
    x, mask = torch.randn(3, 40, 32), padded()
    attention.eval()  # the same random numbers in both calls
    out, _ = attention(x, key_padding_mask=mask, is_causal=is_causal)
    changed = x.clone()
    changed[1, 29:] = 100.0
    again, _ = attention(changed, key_padding_mask=mask, is_causal=is_causal)
    torch.testing.assert_close(again[~mask], out[~mask])
    if is_causal:
        later = x.clone()
        later[:, 20:] += 1
        torch.testing.assert_close(attention(later, key_padding_mask=mask, is_causal=True)[0][:, :20], out[:, :20])
    with edgewise.record(edges=True) as seen:
        attention(x, key_padding_mask=mask, is_causal=is_causal)
    assert (seen.density <= 1).all()


def test_evaluation_is_repeatable_and_training_follows_the_seed(attention):
    x = torch.randn(2, 40, 32)
    draws = attention.edges is not None and any(
        isinstance(attention.edges, kind) for kind in (SbmEdges, Nearest, FunctionEdges, RandomEdges))
    torch.manual_seed(5)
    first, second = attention(x)[0], attention(x)[0]
    torch.manual_seed(5)
    assert torch.equal(attention(x)[0], first) and torch.equal(first, second) != draws
    attention.eval()
    assert torch.equal(attention(x)[0], attention(x)[0])


def test_deepcopy_pickle_and_state_dict(attention):
    if isinstance(attention.edges, FunctionEdges):
        pytest.skip("a lambda cannot be pickled")
    x = torch.randn(2, 40, 32)
    attention(x)[0].sum().backward()  # also after a step
    attention.eval()
    expected = attention(x)[0]
    assert torch.equal(copy.deepcopy(attention)(x)[0], expected)
    assert torch.equal(pickle.loads(pickle.dumps(attention))(x)[0], expected)
    other = copy.deepcopy(attention)
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    other.load_state_dict(attention.state_dict())
    assert torch.equal(other(x)[0], expected)


def test_takes_the_weights_of_torchs_attention():
    theirs = nn.MultiheadAttention(32, 4, batch_first=True)
    x, mask = torch.randn(3, 40, 32), padded()
    for edges in (None, FullEdges(), FullEdges(unit=16)):
        mine = MultiheadEdgeAttention(32, 4, edges)
        mine.load_state_dict(theirs.state_dict())
        torch.testing.assert_close(mine(x)[0], theirs(x, x, x, need_weights=False)[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(mine(x, x, x, mask)[0], theirs(x, x, x, mask, need_weights=False)[0], atol=1e-5, rtol=1e-5)
        y = torch.randn(3, 17, 32)
        torch.testing.assert_close(mine(y, x, x, mask)[0], theirs(y, x, x, mask, need_weights=False)[0], atol=1e-5, rtol=1e-5)
        forbidden = torch.rand(40, 40) < 0.5
        forbidden.fill_diagonal_(False)
        torch.testing.assert_close(mine(x, attn_mask=forbidden)[0], theirs(x, x, x, attn_mask=forbidden, need_weights=False)[0],
                                   atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(mine(x[0])[0], theirs(x[0], x[0], x[0], need_weights=False)[0], atol=1e-5, rtol=1e-5)
    learned = MultiheadEdgeAttention(32, 4, SbmEdges(4, 8))
    missing, unexpected = learned.load_state_dict(theirs.state_dict(), strict=False)
    assert not unexpected and all(name.startswith("edges.") for name in missing)


def test_batch_second():
    first, second = MultiheadEdgeAttention(32, 4, WindowEdges(3)), MultiheadEdgeAttention(32, 4, WindowEdges(3), batch_first=False)
    second.load_state_dict(first.state_dict())
    x = torch.randn(3, 40, 32)
    torch.testing.assert_close(second(x.transpose(0, 1))[0].transpose(0, 1), first(x)[0])


def test_layer_takes_the_weights_of_torchs_layer():
    x, mask = torch.randn(3, 40, 32), padded()
    for norm_first in (False, True):
        options = dict(dim_feedforward=64, activation="gelu", norm_first=norm_first, batch_first=True)
        theirs = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, **options), 2, enable_nested_tensor=False).eval()
        mine = nn.TransformerEncoder(EdgeTransformerEncoderLayer(32, 4, FullEdges(), **options), 2,
                                     enable_nested_tensor=False).eval()
        mine.load_state_dict(theirs.state_dict())
        with torch.no_grad():
            torch.testing.assert_close(mine(x), theirs(x), atol=1e-5, rtol=1e-5)
            valid = ~mask
            torch.testing.assert_close(mine(x, src_key_padding_mask=mask)[valid], theirs(x, src_key_padding_mask=mask)[valid],
                                       atol=1e-5, rtol=1e-5)
            future = nn.Transformer.generate_square_subsequent_mask(40)
            torch.testing.assert_close(mine(x, future, is_causal=True), theirs(x, future, is_causal=True), atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(mine(x, future), theirs(x, future), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", LEARNERS)
def test_the_penalty_needs_no_bookkeeping(name):
    """Its gradient is that of a loss to which it was added by hand."""
    torch.manual_seed(2)
    injected = MultiheadEdgeAttention(32, 4, SOURCES[name](), density_weight=0.7)
    by_hand = MultiheadEdgeAttention(32, 4, SOURCES[name]())
    by_hand.load_state_dict(injected.state_dict())
    x = torch.randn(2, 40, 32)
    torch.manual_seed(9)
    injected(x)[0].square().sum().backward()
    torch.manual_seed(9)
    with edgewise.record() as seen:
        out = by_hand(x)[0]
    assert seen.penalty.shape == (1, 4)
    (out.square().sum() + 0.7 * seen.penalty.mean()).backward()
    for (name, a), b in zip(injected.named_parameters(), by_hand.parameters()):
        torch.testing.assert_close(a.grad, b.grad, msg=name)
    injected.eval()
    with edgewise.record():
        assert torch.equal(injected(x)[0], injected(x)[0])


@pytest.mark.parametrize("name", ["own", "sbm", "sbm squares"])
def test_a_penalty_lowers_the_density(name):
    torch.manual_seed(0)
    attention = MultiheadEdgeAttention(32, 4, SOURCES[name](), density_weight=3.0)
    optimizer = torch.optim.Adam(attention.edges.parameters(), lr=2e-2)
    x = torch.randn(4, 40, 32)

    def density():
        with edgewise.record() as seen, torch.no_grad():
            attention(x)
        return seen.density.mean().item()

    fixed = 0.36 if name == "sbm squares" else 0  # its window of a query's own group
    before = density()
    for _ in range(60):
        optimizer.zero_grad()
        attention(x)[0].mean().backward()
        optimizer.step()
    assert density() - fixed < 0.5 * (before - fixed)


def test_squares_of_one_s_own_are_those_of_the_same_probabilities():
    """Of squares with probability 0 and 1 the edges are known, and so is what a square receives."""
    torch.manual_seed(0)
    query, key, value, weight = (torch.randn(1, 2, 40, 8, dtype=torch.float64) for _ in range(4))
    chosen = torch.tensor([[1.0, 0, 1], [0, 1, 0], [1, 1, 0]])
    p = chosen.clone().requires_grad_()
    source = FunctionEdges(lambda q, k: p, unit=16, probe_rate=1.0, probes_per_row=0, present_form="leave_one_out")
    output, penalty = source.attend(edgewise.nn.AttentionCall(query, key, value))
    edges = EdgeSet.from_squares(chosen.bool().expand(1, 2, 3, 3).clone(), (1, 2, 40, 40))
    torch.testing.assert_close(output, edgewise.edge_attention(query, key, value, edges))
    torch.testing.assert_close(penalty, torch.full((2,), edges.density))
    grad, = torch.autograd.grad((output * weight).sum(), p)
    for i in range(3):  # switching one square as a whole, in both heads at once: every row is of one square row
        for j in range(3):
            other = chosen.clone()
            other[i, j] = 1 - other[i, j]
            switched = EdgeSet.from_squares(other.bool().expand(1, 2, 3, 3).clone(), (1, 2, 40, 40))
            with_it, without = (output, edgewise.edge_attention(query, key, value, switched))
            effect = ((with_it - without) * weight).sum() * (1 if chosen[i, j] else -1)
            torch.testing.assert_close(grad[i, j].double(), effect, atol=1e-4, rtol=1e-4)


def test_the_effect_of_an_edge_is_what_its_probability_receives():
    """For a loss that is linear in the output: the mean over draws is the slope of the expectation, by enumeration."""
    torch.manual_seed(0)
    double = lambda *shape: torch.randn(*shape, dtype=torch.float64)
    query, key, value, weight = double(1, 1, 1, 4), double(1, 1, 3, 4), double(1, 1, 3, 4), double(1, 1, 1, 4)
    p = torch.tensor([[[[0.3, 0.6, 0.5]]]], dtype=torch.float32)
    sets = [torch.tensor([[[[bool(n >> j & 1) for j in range(3)]]]]) for n in range(8)]
    outs = [(edgewise.edge_attention(query, key, value, EdgeSet.from_mask(mask)) * weight).sum() for mask in sets]
    exact = p.double().clone().requires_grad_()
    expectation = sum(torch.where(mask, exact, 1 - exact).prod() * out for mask, out in zip(sets, outs))
    expected, = torch.autograd.grad(expectation, exact)

    draws = 20_000
    many = lambda x: x.expand(draws, -1, -1, -1)
    learned = p.clone().requires_grad_()
    source = FunctionEdges(lambda q, k: learned, probe_rate=0.5, probes_per_row=0, present_form="leave_one_out")
    call = edgewise.nn.AttentionCall(many(query), many(key), many(value))
    torch.manual_seed(1)
    output, _ = source.attend(call)
    grad, = torch.autograd.grad((output * weight).sum() / draws, learned)
    torch.testing.assert_close(grad.double(), expected, atol=0.03, rtol=0.03)


def test_a_long_sparse_causal_layer_does_not_see_the_future():
    """Where samplers other than the direct one would be cheaper: their rows share random numbers."""
    torch.manual_seed(0)
    attention = MultiheadEdgeAttention(32, 4, SbmEdges(4, 8, initial_density=0.005)).eval()
    x = torch.randn(1, 800, 32)
    later = x.clone()
    later[:, 600:] += 1
    with torch.no_grad():
        a, b = (attention(y, is_causal=True)[0][:, :600] for y in (x, later))
    torch.testing.assert_close(a, b)


def test_the_penalty_of_causal_squares_is_of_those_that_can_be_drawn():
    query, key, value = (torch.randn(1, 1, 40, 8) for _ in range(3))
    p = torch.rand(1, 1, 3, 3).requires_grad_()
    source = FunctionEdges(lambda q, k: p, unit=16, window=0)
    _, penalty = source.attend(edgewise.nn.AttentionCall(query, key, value, is_causal=True))
    grad, = torch.autograd.grad(penalty.sum(), p)
    pairs = torch.tensor([[0.0, 0, 0], [256, 0, 0], [128, 128, 0]])  # the last group of queries has 8 tokens
    torch.testing.assert_close(grad[0, 0], pairs / (40 * 41 / 2))


def test_masks_mean_what_they_mean_in_torch():
    x = torch.randn(2, 10, 32)
    theirs = nn.MultiheadAttention(32, 4, batch_first=True)
    for edges in (None, FullEdges()):
        mine = MultiheadEdgeAttention(32, 4, edges)
        mine.load_state_dict(theirs.state_dict())
        causal = nn.Transformer.generate_square_subsequent_mask(10)
        padding = torch.zeros(2, 10).masked_fill(torch.arange(10) > 7, -torch.inf)
        torch.testing.assert_close(mine(x, key_padding_mask=padding, attn_mask=causal)[0],
                                   theirs(x, x, x, padding, need_weights=False, attn_mask=causal)[0], atol=1e-5, rtol=1e-5)
        alibi = -0.5 * (torch.arange(10)[:, None] - torch.arange(10)).abs().float()
        for name in ("attn_mask", "key_padding_mask"):
            for dtype in (torch.int64, torch.uint8):
                ones = torch.ones((10, 10) if name == "attn_mask" else (2, 10), dtype=dtype)
                with pytest.raises(TypeError, match=f"expected {name} to be bool"):
                    mine(x, **{name: ones})
            with pytest.raises(ValueError, match=f"floating {name} of 0 and -inf"):
                mine(x, **{name: alibi if name == "attn_mask" else alibi[:2]})


def test_a_mask_of_other_items_and_heads_than_the_edges():
    x, masks = torch.randn(2, 10, 32), torch.zeros(8, 10, 10, dtype=torch.bool)
    masks[:, :, 3] = True
    given = EdgeSet.from_mask(torch.rand(2, 4, 10, 10) < 0.5)
    for edges, pairs in ((WindowEdges(3), EdgeSet.window(10, 3).to_dense()), (WindowEdges(3, unit=16), None), (given, given.to_dense())):
        attention = MultiheadEdgeAttention(32, 4, edges)
        allowed = torch.ones(2, 4, 10, 10, dtype=torch.bool) if pairs is None else pairs.expand(2, 4, -1, -1).clone()
        allowed[:, :, :, 3] = False
        expected = MultiheadEdgeAttention(32, 4, EdgeSet.from_mask(allowed))
        expected.load_state_dict(attention.state_dict())
        for mask in (masks, masks[0]):
            torch.testing.assert_close(attention(x, attn_mask=mask)[0], expected(x)[0])


def test_positions_beside_query_and_key_are_self_attention():
    attention, x, mask = MultiheadEdgeAttention(32, 4, SbmEdges(4, 8)).eval(), torch.randn(3, 40, 32), padded()
    places = x + torch.randn(40, 32)
    out, _ = attention(places, places, x, key_padding_mask=mask)
    changed = x.clone()
    changed[1, 29:] = 7
    again = places.clone()
    again[1, 29:] = 7
    torch.testing.assert_close(attention(again, again, changed, key_padding_mask=mask)[0][~mask], out[~mask])


def test_a_source_of_one_s_own_gets_as_many_key_heads_as_query_heads():
    for unit in (1, 16):
        source = Nearest(8, unit=unit).eval()
        q, k, v = torch.randn(2, 4, 40, 8), torch.randn(2, 2, 40, 8), torch.randn(2, 2, 40, 8)
        few, _ = source.attend(edgewise.nn.AttentionCall(q, k, v))
        many, _ = source.attend(edgewise.nn.AttentionCall(q, *(x.repeat_interleave(2, 1) for x in (k, v))))
        torch.testing.assert_close(few, many)


def test_draws_in_evaluation_are_numbered_by_place():
    torch.manual_seed(0)
    layer = EdgeTransformerEncoderLayer(32, 4, SbmEdges(4, 8), dim_feedforward=16)
    x = torch.randn(2, 40, 32)

    def encoder():
        model = nn.TransformerEncoder(copy.deepcopy(layer), 3, enable_nested_tensor=False)
        model.load_state_dict({name: x for name, x in model.state_dict().items()})
        return edgewise.nn.number_draws(model).eval()

    first, second = encoder(), encoder()
    assert [x.self_attn.edges.evaluation_seed for x in first.layers] == [1, 2, 3]
    torch.testing.assert_close(first(x), second(x))
    kept = edgewise.nn.number_draws(nn.ModuleList([SbmEdges(4, 8, seed=7), SbmEdges(4, 8)]))
    assert [x.evaluation_seed for x in kept] == [7, 2]


def test_a_record_is_of_its_thread():
    import threading

    attention, x = MultiheadEdgeAttention(32, 4, WindowEdges(1)), torch.randn(1, 40, 32)
    begun, done = threading.Event(), threading.Event()
    theirs = []

    def other():
        with edgewise.record() as seen:
            attention(x)
            begun.set()
            done.wait(60)
        theirs.append(seen)

    thread = threading.Thread(target=other)
    thread.start()
    assert begun.wait(60)
    with edgewise.record() as mine:
        attention(x)
        attention(x)
        done.set()
        thread.join()
    assert mine.density.shape == (2, 4) and theirs[0].density.shape == (1, 4)


def test_checkpointed_layers_are_recorded_once():
    attention, x = MultiheadEdgeAttention(32, 4, SbmEdges(4, 8), density_weight=0.1), torch.randn(1, 40, 32, requires_grad=True)
    with edgewise.record() as seen:
        torch.utils.checkpoint.checkpoint(lambda x: attention(x)[0], x, use_reentrant=False).sum().backward()
    assert seen.density.shape == (1, 4) and seen.penalty.shape == (1, 4)


def test_a_recorded_penalty_is_differentiated_where_the_layer_does_not_send_it():
    attention, x = MultiheadEdgeAttention(32, 4, SbmEdges(4, 8), density_weight=0.1), torch.randn(1, 40, 32)
    with edgewise.record() as seen:
        attention(x)
    assert 0 < seen.penalty.mean().item() < 1
    with pytest.raises(RuntimeError, match="expected density_weight=0"):
        seen.penalty.sum().backward()
    attention.density_weight = 0
    with edgewise.record() as seen:
        attention(x)
    seen.penalty.sum().backward()
    assert attention.edges.clusters.grad.abs().sum() > 0


def test_a_record_of_differing_head_counts_is_a_list():
    with edgewise.record() as seen:
        for heads in (4, 2):
            MultiheadEdgeAttention(32, heads, WindowEdges(1))(torch.randn(1, 40, 32))
    assert [len(x) for x in seen.densities] == [4, 2]
    with pytest.raises(ValueError, match=r"one number of heads; got \[4, 2\]"):
        seen.density


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("edges", [WindowEdges(5), WindowEdges(5, unit=16), WindowEdges(2, sinks=3), WindowEdges(2, 16, sinks=20),
                                   EdgeSet.from_mask(torch.rand(1, 4, 40, 40) < 0.3)], ids=str)
def test_densities_of_patterns_without_a_mask_are_those_with_one(edges, is_causal):
    """With a mask they are counted pair by pair, without one by edges."""
    attention, x = MultiheadEdgeAttention(32, 4, edges), torch.randn(2, 40, 32)
    densities = []
    for mask in (None, torch.zeros(2, 40, dtype=torch.bool)):
        with edgewise.record() as seen:
            attention(x, key_padding_mask=mask, is_causal=is_causal)
        densities.append(seen.density)
    torch.testing.assert_close(*densities)


@pytest.mark.parametrize("make, error, message", [
    (lambda: MultiheadEdgeAttention(30, 4), ValueError, "multiple of num_heads"),
    (lambda: MultiheadEdgeAttention(32, 4, 7), TypeError, "expected edges to be"),
    (lambda: MultiheadEdgeAttention(32, 4, dropout=1.0), ValueError, "dropout"),
    (lambda: MultiheadEdgeAttention(32, 4)(torch.zeros(2, 5, 31)), ValueError, r"query \[B, N, 32\]"),
    (lambda: MultiheadEdgeAttention(32, 4)(torch.zeros(2, 5, 32), need_weights=True), NotImplementedError, "record"),
    (lambda: MultiheadEdgeAttention(32, 4, SbmEdges(4, 8))(torch.zeros(2, 5, 32), key_padding_mask=torch.zeros(2, 4)), ValueError,
     r"key_padding_mask \[2, 5\]"),
    (lambda: MultiheadEdgeAttention(32, 4, SbmEdges(4, 8))(torch.zeros(2, 5, 32), attn_mask=torch.ones(5, 5, dtype=torch.bool)),
     NotImplementedError, "is_causal=True"),
    (lambda: MultiheadEdgeAttention(32, 4, SbmEdges(4, 8, unit=16))(torch.zeros(2, 40, 32), is_causal=True), ValueError, "window"),
    (lambda: MultiheadEdgeAttention(32, 4, SbmEdges(2, 16))(torch.zeros(2, 5, 32)), ValueError, "clusters"),
    (lambda: MultiheadEdgeAttention(32, 4, lambda q, k: q @ k.mT)(torch.randn(2, 5, 32)), ValueError, "sigmoid"),
    (lambda: MultiheadEdgeAttention(32, 4, lambda q, k: 3)(torch.randn(2, 5, 32)), TypeError, "probabilities or an EdgeSet"),
    (lambda: MultiheadEdgeAttention(32, 4, EdgeSource())(torch.randn(2, 5, 32)), NotImplementedError, "choose"),
    (lambda: MultiheadEdgeAttention(32, 4, WindowEdges(2))(torch.zeros(2, 5, 32), torch.zeros(2, 6, 32)), ValueError, "as many"),
    (lambda: MultiheadEdgeAttention(32, 4, FunctionEdges(lambda q, k: torch.sigmoid(q @ k.mT), unit=16))(
        torch.zeros(2, 40, 32), is_causal=True), ValueError, "window"),
    (lambda: Nearest(8, unit=4), ValueError, "unit 1"),
    (lambda: MultiheadEdgeAttention(32, 4, SbmEdges(4, 8))(torch.full((2, 40, 32), float("nan"))), ValueError, "finite"),
    (lambda: MultiheadEdgeAttention(32, 4, SbmEdges(4, 8))(torch.zeros(2, 5, 32), torch.zeros(2, 5, 32), key_padding_mask=torch.ones(
        2, 5, dtype=torch.bool)), NotImplementedError, "cross-attention"),
    (lambda: SbmEdges(4, 8, preset="best"), ValueError, "edgewise, paper or published"),
    (lambda: SbmEdges(4, 8, unit=4), ValueError, "unit 1"),
    (lambda: SbmEdges(4, 8, initial_density=1.5), ValueError, "initial_density"),
    (lambda: MultiheadEdgeAttention(32, 4, SbmEdges(4, 8, probe_ratio=1))(torch.zeros(2, 5, 32)), ValueError, "probe_ratio"),
    (lambda: MultiheadEdgeAttention(32, 4, SbmEdges(4, 8, sampler="fast"))(torch.zeros(2, 5, 32)), ValueError, "auto, direct"),
    (lambda: EdgeTransformerEncoderLayer(32, 4, activation="swish"), ValueError, "relu, gelu"),
    (lambda: GivenEdges(3), TypeError, "EdgeSet"),
])
def test_refuses_with_a_sentence(make, error, message):
    with pytest.raises(error, match=message):
        make()
