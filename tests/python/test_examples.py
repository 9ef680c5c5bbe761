"""The examples in Python learn what they say, and the examples in docstrings give what they show."""

import doctest
import importlib
import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import edgewise

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def one_thread():
    """So small a model gains nothing from two."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("unit", [1, 16])
def test_repeated_tokens_wants_every_pair(unit):
    """Majority gives 63.5 %; learned edges that stay at their quarter give about 70."""
    example = load("repeated_tokens")
    accuracy, density = example.evaluate(example.train(seed=0, steps=400, unit=unit))
    assert density > 0.97 and accuracy > 0.98


def test_partners_find_each_other_and_little_else(tmp_path, monkeypatch):
    example = load("partners")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    picture = tmp_path / "partners.svg"
    monkeypatch.setattr("sys.argv", ["partners.py", "--steps", "700", "--picture", str(picture)])
    torch.manual_seed(0)
    example.main()
    parts = ElementTree.parse(picture).getroot()
    assert len(parts.findall("{*}polyline")) == 2 and len(parts.findall("{*}rect")) > 100
    accuracy, density, found = example.evaluate(example.train(steps=700))
    assert accuracy > 0.95 and found > 0.95 and density < 0.4


def test_given_edges_know_what_dense_attention_has_to_find_out():
    example = load("own_edges")
    assert example.train_on_graph(True) > 0.9 > 0.75 > example.train_on_graph(False)
    assert example.train_on_documents(True) > 0.95 > 0.6 > example.train_on_documents(False)


def test_a_trainer_teaches_a_model_of_hugging_face_its_edges():
    example = load("hugging_face")
    accuracy, density = example.accuracy(example.train(steps=300, lr=3e-3, density_weight=0.03), example.Texts(500, seed=2))
    assert accuracy > 0.85 and density.shape == (2, 2) and density.mean() < 0.85


@pytest.mark.parametrize("length", [0, 40])
@pytest.mark.parametrize("kind, setting", [("sbm", 1.0), ("squares", 1.0), ("threshold", 1.0), ("window", 2.0),
                                           ("random", 1.0), ("largest", 3.0)])
def test_edges_of_the_sentence_example(kind, setting, length):
    from types import SimpleNamespace

    from hf_models import answer, batch_of, make

    options = SimpleNamespace(length=length, clusters=8, initial_density=0.9)
    edges = load("sentence_similarity").edges_of(kind, setting, options)
    model = edgewise.hf.attach(make("bert"), edges, density_weight=0.1).train()
    given, valid = batch_of("bert", padded=True)
    with edgewise.record() as seen:
        out = answer(model, given)[valid]
    out.square().mean().backward()
    assert out.isfinite().all() and seen.density.shape == (3, 4) and 0.05 < seen.density.mean() <= 1
    learned = [x.grad for name, x in model.named_parameters() if ".edges." in name]
    assert (len(learned) > 0) == (kind in ("sbm", "squares", "threshold")) and all(x.abs().sum() > 0 for x in learned)


def test_spearman_of_the_sentence_example():
    """Against the definition: the correlation of ranks, equal values at the mean of theirs."""
    example = load("sentence_similarity")
    a, b = torch.tensor([3.0, 1.0, 2.0, 2.0]), torch.tensor([0.9, 0.2, 0.3, 0.4])
    expected = torch.corrcoef(torch.tensor([[4.0, 1.0, 2.5, 2.5], [4.0, 1.0, 2.0, 3.0]]))[0, 1].item()
    assert example.spearman(a, b) == pytest.approx(100 * expected, abs=1e-3)


@pytest.mark.parametrize("module", [edgewise.edge_set, edgewise.functional, edgewise.recording, edgewise.nn.sources,
                                    edgewise.nn.attention, edgewise.nn.transformer,
                                    importlib.import_module("edgewise.hf.attach")], ids=lambda m: m.__name__)
def test_docstrings(module):
    names = {name: getattr(module, name) for name in dir(module) if not name.startswith("__")}
    results = doctest.testmod(module, extraglobs={**names, "torch": torch, "edgewise": edgewise})
    assert results.failed == 0 and results.attempted > 0
