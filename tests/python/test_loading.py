"""edgewise.load and save: a module answers what the command line's model answers."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import edgewise

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "dev"
MODEL_TOOL = Path(os.environ.get("EDGEWISE_MODEL_TOOL") or BUILD / "bin" / "edgewise_model_tool")
CLI = Path(os.environ.get("EDGEWISE_CLI") or BUILD / "bin" / "edgewise")
needs_tool = pytest.mark.skipif(not MODEL_TOOL.is_file(), reason="needs edgewise_model_tool")

TASKS = ["repeated_tokens", "listops", "retrieval", "characters"]
ATTENTIONS = {
    "dense": 'kind = "dense"',
    "full": 'kind = "full"\nunit = 16',
    "window": 'kind = "window"\n[window]\nwidth = 3',
    "window and sinks": 'kind = "window"\n[window]\nwidth = 3\nsinks = 2',
    "squares and sinks": 'kind = "window"\nunit = 16\n[window]\nwidth = 3\nsinks = 20',
    "random": 'kind = "random"\n[random]\nalpha = 5',
    "random squares": 'kind = "random"\nunit = 16\n[random]\nalpha = 2',
    "sbm": 'kind = "sbm"\n[sbm]\nclusters = 8\ninitial_density = 0.4',
    "sbm paper": 'kind = "sbm"\n[sbm]\npreset = "paper"',
    "window+sbm": 'kind = "window+sbm"\n[window]\nwidth = 2\n[sbm]\nself_loops = true',
    "squares": 'kind = "window+sbm"\nunit = 16\n[window]\nwidth = 0',
}


def make(folder, task, attention, length=40, model=""):
    recipe = folder / "recipe.toml"
    path = 'path = "nowhere"\n'  # not read: the tool makes tokens of its own
    lengths = f"length = {length}\n" if task in ("repeated_tokens", "characters") else ""
    recipe.write_text(f"""[data]
name = "{task}"
{"" if task == "repeated_tokens" else path}{lengths}
[model]
layers = 2
heads = 2
dim = 16
hidden = 24
embedding_std = 0.5
{model}
{"" if lengths else f"max_length = {length}"}

[attention]
{attention}

[train]
seed = 5
density_weight = 0.1
""")
    subprocess.run([MODEL_TOOL, folder / "run", recipe], check=True, capture_output=True, text=True)
    return folder / "run"


CAUSAL = {**{name: ATTENTIONS[name] for name in ("dense", "full", "window", "window and sinks", "random")},
          "sbm": ATTENTIONS["sbm"] + '\nsampler = "direct"'}


@needs_tool
@pytest.mark.parametrize("attention", CAUSAL)
def test_causal_classifiers_answer_as_the_command_line_and_see_no_future(attention, tmp_path):
    run = make(tmp_path, "repeated_tokens", CAUSAL[attention], model="causal = true")
    model, tokens = compare(run, "repeated_tokens", attention)
    later = tokens.clone()
    later[:, 20:] = 1
    everywhere = torch.ones_like(tokens, dtype=torch.bool)
    with torch.no_grad():
        torch.testing.assert_close(model(later, everywhere)[:, :20], model(tokens, everywhere)[:, :20])


@needs_tool
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("task", TASKS)
def test_answers_are_those_of_the_command_line(task, attention, tmp_path):
    compare(make(tmp_path, task, ATTENTIONS[attention]), task, attention)


def compare(run, task, attention):
    model = edgewise.load(run)
    answers = load_file(run / "answers.safetensors")
    towers = [n for n in range(2) if f"tokens{n}" in answers]
    tokens = [answers[f"tokens{n}"] for n in towers]
    masks = [answers[f"mask{n}"] for n in towers if f"mask{n}" in answers]
    with torch.no_grad(), edgewise.record() as seen:
        logits = model(*tokens, *masks)
    expected = answers["logits"]
    if task == "repeated_tokens":  # of padding nobody asks
        logits, expected = logits[masks[0]], expected[masks[0]]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    if attention != "dense":
        torch.testing.assert_close(torch.stack(seen.density.split(2)).mean(0), answers["densities"])  # over the towers
    assert model.recipe["train"]["seed"] == 5
    return model, tokens[0]


def test_recipes_that_python_does_not_know_are_refused():
    from edgewise.loading import _check_recipe

    def recipe(**sections):
        known = {"data": {"name": "listops"}, "model": {"dropout": 0.1}, "attention": {"kind": "window+sbm"}}
        return {name: {**known.get(name, {}), **sections.get(name, {})} for name in {*known, *sections}}

    _check_recipe(recipe(window={"width": 3, "sinks": 0}, sbm={"clusters": 4}), "file")
    for sections, said in ((dict(model={"waves": 3}), "no key model.waves"), (dict(window={"sinks": 2}), "window.sinks = 0"),
                           (dict(attention={"edges": "window"}), "attention.edges"), (dict(window={"holes": 2}), "no key window.holes"),
                           (dict(model={"norm_first": False}), "model.norm_first"), (dict(sbm={"new": 1}), "no key sbm.new"),
                           (dict(model={"hidden_dropout": 0.3}), "hidden_dropout"), (dict(data={"name": "next_tokens"}), "next_tokens")):
        with pytest.raises(NotImplementedError, match=said):
            _check_recipe(recipe(**sections), "file")


@needs_tool
def test_a_loaded_model_trains_and_is_saved(tmp_path):
    run = make(tmp_path, "repeated_tokens", ATTENTIONS["window+sbm"])
    model = edgewise.load(run).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randint(40, (2, 40))).square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())
    optimizer.step()
    edgewise.save(model, tmp_path / "mine.safetensors")
    again = edgewise.load(tmp_path / "mine.safetensors")
    for (name, a), b in zip(model.state_dict().items(), again.state_dict().values()):
        assert torch.equal(a, b), name
    names = set(load_file(tmp_path / "mine.safetensors"))
    assert names == set(load_file(run / "checkpoints" / "best.safetensors"))
    with pytest.raises(TypeError, match="edgewise.load"):
        edgewise.save(torch.nn.Linear(2, 2), tmp_path / "linear.safetensors")


@pytest.mark.skipif(not CLI.is_file(), reason="needs the command line")
def test_the_command_line_trains_python_loads_and_the_command_line_evaluates(tmp_path):
    run = tmp_path / "run"
    call = lambda *arguments: subprocess.run([CLI, *arguments], check=True, capture_output=True, text=True).stdout
    call("train", ROOT / "recipes" / "demo" / "edgewise.toml", "--run", run, "--quiet", "--set", "train.steps=20",
         "--set", "data.length=16", "--set", "data.test_size=8")
    before = json.loads(call("eval", run, "--json"))
    model = edgewise.load(run)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([0.0, 1.0]))  # answers yes to everything
    edgewise.save(model, run / "checkpoints" / "best.safetensors")
    after = json.loads(call("eval", run, "--json"))
    assert after["densities"] == before["densities"] and after["loss"] != before["loss"]
    majority = max(after["baselines"].values())
    assert 0 < after["accuracy"] < 1 and abs(after["accuracy"] - majority) < 0.2


@needs_tool
def test_a_language_model_reads_and_writes_text(tmp_path):
    model = edgewise.load(make(tmp_path, "characters", ATTENTIONS["sbm"]))
    tokens = model.encode("abba")
    assert tokens.shape == (1, 4) and model.decode(tokens[0]) == "abba" and model(tokens).shape[:2] == (1, 4)
    with pytest.raises(ValueError, match="trained on"):
        model.encode("A")
    with pytest.raises(ValueError, match="at most 40 tokens"):
        model(torch.zeros(1, 41, dtype=torch.int64))


@needs_tool
def test_refuses_with_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no"):
        edgewise.load(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="Has the run been trained"):
        edgewise.load(tmp_path / "empty")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="expected a checkpoint of edgewise"):
        edgewise.load(tmp_path / "other.safetensors")
    run = make(tmp_path, "repeated_tokens", ATTENTIONS["sbm"])
    file = run / "checkpoints" / "best.safetensors"
    with pytest.raises(NotImplementedError, match="one that Python has"):
        edgewise.load(make(tmp_path, "repeated_tokens", 'kind = "sac"'))
    content = file.read_bytes()
    file.write_bytes(content[:len(content) // 2])
    with pytest.raises(ValueError, match="damaged"):
        edgewise.load(file)
