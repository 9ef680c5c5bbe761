"""edgewise.hf.attach: models of transformers with edges, against the same models with eager attention."""

import copy

import pytest
import torch
from hf_models import CAUSAL, LENGTH, MODELS, RELATIVES, TEXT, answer, batch_of, make

import edgewise
from edgewise import EdgeSet, hf, nn


def sbm(layer, config, **options):
    return nn.SbmEdges(config.num_attention_heads, config.hidden_size // config.num_attention_heads, clusters=8, **options)


def full(layer, config):
    return nn.FullEdges()


def eager(name, **options):
    model = make(name, **options)
    model.set_attn_implementation("eager")
    return model


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("edges", [full, lambda layer, config: nn.FullEdges(unit=16), lambda layer, config: None],
                         ids=["edges", "squares", "dense layers"])
def test_full_edges_give_the_dense_answer_and_gradients(name, padded, edges):
    if padded and name == "vit":
        pytest.skip("pictures have no padding")
    given, valid = batch_of(name, padded=padded)
    dense, model = eager(name), hf.attach(make(name), edges)
    expected, found = answer(dense, given)[valid], answer(model, given)[valid]
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=2e-5)
    expected.square().mean().backward()
    found.square().mean().backward()
    for (key, a), b in zip(dense.named_parameters(), model.parameters()):
        if a.grad is not None:
            torch.testing.assert_close(b.grad, a.grad, atol=2e-6, rtol=1e-4, msg=key)


@pytest.mark.parametrize("name", RELATIVES)
def test_relatives(name):
    given, _ = batch_of(name, padded=name != "deit")
    valid = given["attention_mask"].bool() if "attention_mask" in given else slice(None)
    dense = make(name)
    dense.set_attn_implementation("eager")
    model = hf.attach(make(name), full)
    torch.testing.assert_close(answer(model, given)[valid], answer(dense, given)[valid], atol=2e-6, rtol=2e-5)
    hf.attach(model, sbm, density_weight=1.0).train()
    answer(model, given)[valid].sum().backward()
    assert all(x.clusters.grad.abs().sum() > 0 for x in model.modules() if isinstance(x, nn.SbmEdges))


def test_sliding_windows_of_a_model_are_refused():
    import transformers

    from hf_models import SIZES

    model = transformers.MistralModel(transformers.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=5))
    with pytest.raises(NotImplementedError, match="sliding window"):
        hf.attach(model, full)(**batch_of("mistral")[0])


@pytest.mark.parametrize("name", MODELS)
def test_edges_are_what_a_dense_model_with_that_mask_attends_to(name):
    """A window against eager attention, whose mask [B, 1, L, S] says the same."""
    given, valid = batch_of(name, padded=name != "vit")
    if name in ("vit", "roberta"):  # neither takes masks of pairs together with positions of padding
        given.pop("attention_mask", None)
        valid[:] = True
    length = valid.shape[1]
    pairs = EdgeSet.window(length, 3).to_dense() & valid[:, None, None, :]
    if name in CAUSAL:
        pairs = pairs.tril()
    model = hf.attach(make(name), lambda layer, config: nn.WindowEdges(3))
    found = answer(model, given)[valid]
    bias = torch.zeros(pairs.shape).masked_fill(~pairs, torch.finfo(torch.float32).min)
    dense = eager(name)
    if name == "vit":
        expected = dense(**given, attention_mask=bias).last_hidden_state[valid]
    else:
        expected = answer(dense, {**given, "attention_mask": bias})[valid]
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("name", TEXT)
def test_padding_changes_nothing(name):
    """Each item of a padded batch alone, cut to its length."""
    given, valid = batch_of(name, padded=True)
    model = hf.attach(make(name), lambda layer, config: nn.WindowEdges(4)).eval()
    if name in CAUSAL:
        given["position_ids"] = (valid.long().cumsum(1) - 1).clamp_min(0)
    together = answer(model, given)
    for item, keep in enumerate(valid):
        alone = answer(model, {"input_ids": given["input_ids"][item:item + 1, keep]})
        torch.testing.assert_close(together[item, keep], alone[0], atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("name", TEXT)
@pytest.mark.parametrize("edges", [sbm, lambda *x: sbm(*x, unit=16, window=0),
                                   lambda layer, config: (lambda query, key: torch.sigmoid(query @ key.mT))],
                         ids=["learned", "learned in squares", "own"])
def test_what_stands_in_the_padding_changes_nothing(name, edges):
    """Of learned edges neither; alone an item would draw others, by its place in the batch."""
    given, valid = batch_of(name, padded=True)
    model = hf.attach(make(name), edges).eval()
    other = {**given, "input_ids": given["input_ids"].masked_fill(~valid, 7)}
    torch.testing.assert_close(answer(model, other)[valid], answer(model, given)[valid], atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("unit", [1, 16])
def test_the_loss_and_the_penalty_reach_the_learner(name, unit):
    given, valid = batch_of(name, padded=name != "vit")
    window = 0 if unit == 16 and name in CAUSAL else None
    grads = []
    for weight in (0.0, 3.0):
        model = hf.attach(make(name), lambda *x: sbm(*x, unit=unit, window=window, seed=1), density_weight=weight).train()
        for layer in model.modules():
            if isinstance(layer, torch.nn.Dropout):
                layer.p = 0.0
        torch.manual_seed(11)
        answer(model, given)[valid].square().mean().backward()
        learners = [x for x in model.modules() if isinstance(x, nn.SbmEdges)]
        assert len(learners) == 3
        grads.append([x.clusters.grad for x in learners])
        assert all(x.isfinite().all() and x.abs().sum() > 0 for x in grads[-1])
    # The two runs differ by their learners' random start, which attach draws anew: compare the sizes.
    assert all(b.abs().sum() > a.abs().sum() for a, b in zip(*grads))


def test_density_weight_is_of_the_mean_over_layers():
    given, _ = batch_of("bert")
    model = hf.attach(make("bert"), sbm, density_weight=0.7)
    learners = [x for x in model.modules() if isinstance(x, nn.SbmEdges)]
    grads = []
    for weight in (0.0, 0.7):
        for layer in model.encoder.layer:
            layer.attention.self.edgewise_density_weight = weight / 3
            layer.attention.self.train()
        model.zero_grad()
        torch.manual_seed(0)
        with edgewise.record() as seen:
            out = answer(model, given)
        assert seen.density.shape == (3, 4) and seen.penalty.shape == (3, 4)
        (0 * out.sum() + (0 if weight else 0.7 * seen.penalty.mean())).backward()
        grads.append([x.clusters.grad for x in learners])
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b)


def test_layers_are_chosen_one_by_one():
    model = hf.attach(make("bert"), lambda layer, config: nn.WindowEdges(layer) if layer else None)
    given, _ = batch_of("bert")
    with edgewise.record(edges=True) as seen:
        model(**given)
    assert [len(x) for x in seen.edges] == [len(EdgeSet.window(LENGTH, width)) for width in (1, 2)]
    model = hf.attach(make("bert"), full, layers=[2])
    assert [hasattr(x.attention.self, "edges") for x in model.encoder.layer] == [False, False, True]
    hf.attach(model, lambda layer, config: nn.WindowEdges(5), layers=[0])
    assert sorted(model.config.edgewise["layers"]) == ["0", "2"]


def test_models_of_one_config_stay_apart():
    import transformers

    from hf_models import SIZES

    config = transformers.BertConfig(**SIZES)
    one, other = (transformers.BertModel(config).eval() for _ in range(2))
    before = config.to_dict()
    hf.attach(one, sbm, density_weight=0.3)
    assert config.to_dict() == before and other.config._attn_implementation != "edgewise"
    assert one.encoder.layer[0].attention.self.config is one.config
    given, _ = batch_of("bert")
    other.set_attn_implementation("eager")
    assert other(**given, output_attentions=True).attentions is not None
    hf.attach(other, full, layers=[0])
    assert one.config.edgewise["density_weight"] == 0.3 and other.config.edgewise["density_weight"] == 0.0
    hf.detach(other)
    with edgewise.record() as seen:
        one(**given)
        other(**given)
    assert seen.density.shape == (3, 4)


def test_attaching_again_keeps_what_is_not_said():
    model = hf.attach(make("bert"), sbm, density_weight=0.3, cached="dense")
    hf.attach(model, full, layers=[0])
    assert model.config.edgewise["density_weight"] == 0.3 and model.config.edgewise["cached"] == "dense"
    for layer in model.encoder.layer:
        assert layer.attention.self.edgewise_density_weight.item() == 0.15  # of two learners
        assert layer.attention.self.edgewise_cached == "dense"
    hf.attach(model, full, density_weight=0.0, cached="edges")
    assert model.config.edgewise["density_weight"] == 0.0 and model.config.edgewise["cached"] == "edges"


@pytest.mark.parametrize("composed", [False, True])
def test_detach_goes_back_to_dense_attention(composed):
    import transformers

    from hf_models import SIZES

    def build():
        torch.manual_seed(4)
        if not composed:
            return make("bert")
        decoder = transformers.BertLMHeadModel(transformers.BertConfig(**SIZES, is_decoder=True, add_cross_attention=True))
        return transformers.EncoderDecoderModel(encoder=make("bert"), decoder=decoder).eval()

    given, _ = batch_of("bert", padded=True)
    if composed:
        given["decoder_input_ids"] = batch_of("bert")[0]["input_ids"][:, :7]
    model = hf.attach(build(), lambda layer, config: nn.WindowEdges(1))
    with pytest.raises(NotImplementedError, match="detach"):
        model(**given, output_attentions=True)
    hf.detach(model, "eager")
    torch.testing.assert_close(answer(model, given), answer(build(), given), atol=2e-6, rtol=2e-5)
    assert model(**given, output_attentions=True) is not None
    assert not any(hasattr(x, "edges") or hasattr(getattr(x, "config", None), "edgewise") for x in model.modules())
    assert list(model.state_dict()) == list(build().state_dict())


def test_draws_in_evaluation_are_those_of_the_layer():
    """Not of how many sources were made before: a state dict is enough for the same answers."""
    given, _ = batch_of("bert")
    one, other = (hf.attach(make("bert"), sbm).eval() for _ in range(2))
    other.load_state_dict(one.state_dict())
    assert torch.equal(answer(one, given), answer(other, given))
    assert [x.attention.self.edges.evaluation_seed for x in one.encoder.layer] == [1, 2, 3]
    assert {x.attention.self.edges.evaluation_seed for x in hf.attach(other, lambda *x: sbm(*x, seed=9)).encoder.layer} == {9}


def test_models_of_other_tasks_and_copies():
    import transformers

    from hf_models import SIZES

    model = transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES, num_labels=3))
    hf.attach(model, sbm, density_weight=0.1)
    given, _ = batch_of("bert")
    again = copy.deepcopy(model.train())
    out = again(**given, labels=torch.tensor([0, 1, 2]))
    out.loss.backward()
    assert again.bert.encoder.layer[0].attention.self.edges.clusters.grad is not None
    assert model.bert.encoder.layer[0].attention.self.edges.clusters.grad is None


def test_an_encoder_with_a_decoder():
    """Self-attention of both gets edges, cross-attention stays dense and leaves the encoder's padding out."""
    import transformers

    from hf_models import SIZES

    torch.manual_seed(4)
    decoder = transformers.BertLMHeadModel(transformers.BertConfig(**SIZES, is_decoder=True, add_cross_attention=True))
    dense = transformers.EncoderDecoderModel(encoder=make("bert"), decoder=decoder).eval()
    model = hf.attach(copy.deepcopy(dense), full)
    assert len(model.config.edgewise["layers"]) == 6
    given, _ = batch_of("bert", padded=True)
    ids = batch_of("bert")[0]["input_ids"][:, :7]
    found, expected = (x(**given, decoder_input_ids=ids).logits for x in (model, dense))
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=2e-5)
    options = dict(max_new_tokens=6, do_sample=False, decoder_start_token_id=1, pad_token_id=0)
    assert torch.equal(model.generate(**given, **options), dense.generate(**given, **options))


def test_dropout_is_that_of_the_config():
    given, _ = batch_of("bert")
    for p, same in ((0.0, True), (0.5, False)):
        model = hf.attach(make("bert", attention_probs_dropout_prob=p, hidden_dropout_prob=0.0), full).train()
        assert torch.equal(answer(model, given), answer(model, given)) == same
        model.eval()
        assert torch.equal(answer(model, given), answer(model, given))


def test_scale_of_the_model():
    """GPT-2's own scale by layer."""
    given, _ = batch_of("gpt2")
    options = dict(scale_attn_by_inverse_layer_idx=True)
    torch.testing.assert_close(answer(hf.attach(make("gpt2", **options), full), given), answer(eager("gpt2", **options), given),
                               atol=2e-6, rtol=2e-5)


# ---- generation ----

KINDS = {
    "window": lambda layer, config: nn.WindowEdges(3),
    "window in squares": lambda layer, config: nn.WindowEdges(3, unit=16),
    "window and sinks": lambda layer, config: nn.WindowEdges(3, sinks=2),
    "full": full,
    "learned": lambda *x: sbm(*x, seed=4),
    "own": lambda layer, config: (lambda query, key: torch.sigmoid(query @ key.mT)),
}


@pytest.mark.parametrize("name", ("gpt2", "llama"))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padded", [False, True])
def test_generation_with_a_cache_is_that_without(name, kind, padded):
    given, _ = batch_of(name, padded=padded)
    model = hf.attach(make(name), KINDS[kind]).eval()
    options = dict(max_new_tokens=20, do_sample=False, return_dict_in_generate=True, output_logits=True)
    expected, found = (model.generate(**given, **options, use_cache=use) for use in (False, True))
    assert torch.equal(found.sequences, expected.sequences)
    for a, b in zip(found.logits, expected.logits):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ("gpt2", "llama"))
def test_several_new_tokens_beside_a_cache(name):
    model, dense = hf.attach(make(name), sbm).eval(), eager(name).eval()
    tokens = batch_of(name)[0]["input_ids"]
    for x in (model, hf.attach(dense, full)):
        head = x(tokens[:, :9], use_cache=True)
        tail = x(tokens[:, 9:], past_key_values=head.past_key_values)
        torch.testing.assert_close(tail.logits, x(tokens).logits[:, 9:], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ("gpt2", "llama"))
def test_a_new_token_attends_densely_if_told_so(name):
    """A window of no neighbours: alone in the first pass, and beside a cache every key."""
    model = hf.attach(make(name), lambda layer, config: nn.WindowEdges(0), cached="dense").eval()
    both = hf.attach(make(name), full).eval()
    tokens = batch_of(name)[0]["input_ids"]
    cache = both(tokens[:, :-1], use_cache=True).past_key_values
    expected = both(tokens).logits[:, -1:]
    torch.testing.assert_close(model(tokens[:, -1:], past_key_values=cache).logits, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ("gpt2", "llama"))
def test_learned_squares_generate(name):
    model = hf.attach(make(name), lambda *x: sbm(*x, unit=16, window=0)).eval()
    given, _ = batch_of(name, padded=True)
    out = model.generate(**given, max_new_tokens=20, do_sample=False)
    assert out.shape == (3, LENGTH + 20)


# ---- what is refused ----

@pytest.mark.parametrize("name", MODELS)
def test_weights_are_refused(name):
    model = hf.attach(make(name), full)
    with pytest.raises(NotImplementedError, match="output_attentions"):
        model(**batch_of(name)[0], output_attentions=True)


@pytest.mark.parametrize("name", ("gpt2", "llama"))
def test_packed_positions_are_refused(name):
    model = hf.attach(make(name), full)
    positions = torch.tensor([list(range(8)) + list(range(LENGTH - 8))] * 3)
    for cache in (False, True):
        with pytest.raises(NotImplementedError, match="packed position_ids"):
            model(**batch_of(name)[0], position_ids=positions, use_cache=cache)
        model(**batch_of(name)[0], position_ids=torch.arange(LENGTH)[None] + 3, use_cache=cache)


@pytest.mark.parametrize("argument", ["softcap", "s_aux", "position_bias", "sliding_window", "cu_seq_lens_q"])
def test_arguments_that_edges_do_not_have_are_refused(argument):
    model = hf.attach(make("bert"), full)
    x = torch.randn(1, 4, 5, 8)
    attend = __import__("transformers").AttentionInterface()["edgewise"]
    attention = model.encoder.layer[0].attention.self
    with pytest.raises(NotImplementedError, match=f"no {argument}.*BertSelfAttention"):
        attend(attention, x, x, x, None, **{argument: torch.ones(3)})


def test_masks_of_pairs_and_fixed_caches_are_refused():
    model = hf.attach(make("llama"), full)
    given, _ = batch_of("llama")
    with pytest.raises(NotImplementedError, match=r"attention mask \[B, 20\]"):
        model(**given, attention_mask=torch.zeros(3, 1, LENGTH, LENGTH))
    with pytest.raises(NotImplementedError, match="cache that grows"):
        model.generate(**given, max_new_tokens=3, cache_implementation="static")


def test_bad_arguments_of_attach():
    import transformers

    model = make("bert")
    for wrong, error, match in ((dict(edges=nn.FullEdges()), TypeError, "function of layer and config"),
                                (dict(edges=full, layers=[3]), IndexError, r"layers in \[0, 3\)"),
                                (dict(edges=full, density_weight=-1), ValueError, "density_weight"),
                                (dict(edges=full, cached="some"), ValueError, "edges or dense"),
                                (dict(edges=lambda layer, config: 3), TypeError, "edgewise.nn source")):
        with pytest.raises(error, match=match):
            hf.attach(model, **wrong)
    assert not hasattr(model.config, "edgewise") and model.config._attn_implementation != "edgewise"
    with pytest.raises(TypeError, match="model of transformers"):
        hf.attach(torch.nn.Linear(2, 2), full)
    small = transformers.T5Model(transformers.T5Config(vocab_size=20, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2))
    with pytest.raises(NotImplementedError, match="T5Model, which has none"):
        hf.attach(small, full)


def test_wrong_head_count_is_said():
    model = hf.attach(make("bert"), lambda layer, config: nn.SbmEdges(2, 8))
    with pytest.raises((ValueError, RuntimeError), match="heads|clusters"):
        model(**batch_of("bert")[0])
