#!/usr/bin/env python3
"""Writes the golden files of this folder with the packages whose results they are:

  pip install tokenizers==0.23.3 subword-nmt==0.3.8 sentencepiece==0.2.3 sacrebleu==2.6.0 && ./write_golden.py

The tests read the files and need none of these.
"""

import io
import json
import random
from pathlib import Path

import sacrebleu
import sentencepiece
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe
from tokenizers import AddedToken, ByteLevelBPETokenizer

HERE = Path(__file__).resolve().parent
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TEXT = """Attention over learned sparse graphs: every head looks at its input and decides which edges are worth computing.
The heads' edges aren't fixed; they've been learned, and they'll change. It's what we'd like: I'm sure you're sure.
Die Straße läuft über die Brücke, und der Hund läuft über die Straße.  Zwei  Leerzeichen   und drei.
In 2022 the model had 2,568,192 parameters; in 2023 it had 36,515,840. The learned edges of the learned heads.
naïve café, déjà vu, Ελλάδα, Москва, 東京, 😀😀 and the edges over the graphs of the heads
	indented with a tab, the edges	the heads
"""
LINES = TEXT.splitlines() + [
    "", " ", "  ", "a", " a", "a ", "  two  spaces", "tail   ", "it's IT'S 'tis ''s '", "don't they'll we've I'd you're 've", "x\u00a0y",
    "\u3000wide", "a\u2028b", "a\u0301\u0302 marks", "١٢٣ ½² Ⅷ", "12345 $3.50", "...!?—«»", "Hello world", "\u0000 nul \u0001", "a\tb\r",
    "😀 👩‍👩‍👧", "the<mask> <mask>the  <mask>", "</s><s>", "𝕏𝟙", "\ufeffbom", "\U0001e94b\u1c89",
]


def write_json(name, value):
    (HERE / name).write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace('},{', '},\n{') + "\n")


def byte_level():
    tokenizer = ByteLevelBPETokenizer()
    lines = [line + "\n" for line in TEXT.splitlines()]
    tokenizer.train_from_iterator(lines, vocab_size=340, min_frequency=2, special_tokens=SPECIAL, show_progress=False)
    tokenizer.save_model(str(HERE))
    marked = ByteLevelBPETokenizer(str(HERE / "vocab.json"), str(HERE / "merges.txt"))
    plain = [marked.encode(line).ids for line in LINES]
    marked.add_special_tokens([*SPECIAL[:4], AddedToken("<mask>", lstrip=True)])
    write_json("byte_level.json", [{"text": line, "ids": ids, "marked": marked.encode(line).ids} for line, ids in zip(LINES, plain)])


def subword():
    codes = io.StringIO()
    learn_bpe(io.StringIO(TEXT), codes, 80)
    (HERE / "codes.txt").write_text(codes.getvalue())
    bpe = BPE(codes)
    lines = [line for line in LINES if "\r" not in line]
    write_json("subword.json", [{"text": line, "pieces": bpe.segment(line)} for line in lines])


def sentence_pieces():
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()), model_prefix=str(HERE / "tiny"), vocab_size=110, model_type="bpe", pad_id=3,
        normalization_rule_name="identity", minloglevel=2, character_coverage=1.0)
    (HERE / "tiny.vocab").unlink()
    model = sentencepiece.SentencePieceProcessor(model_file=str(HERE / "tiny.model"))
    write_json("sentencepiece.json", [{"text": line, "ids": model.encode(line), "back": model.decode(model.encode(line))}
                                      for line in LINES if "\0" not in line])


def bleu():
    random.seed(11)
    words = ("Der Hund läuft über die Straße . , 3.5 % U.S. 1,000-dollar \"quoted\" It's 10-20 km/h z.B. 2.000,50 € &quot;A&amp;B&lt;C&gt; "
             "<skipped> e.g. No.5, v1.0. a b c ΣΊΣΥΦΟΣ ΑΣ İstanbul … – « » “x” ½ ١٢٣ 東京。 ! ? -5 5-x \u00a0 x\u0301y").split(" ")

    def sentence(length):
        return " ".join(random.choice(words) for _ in range(length))

    def changed(text):
        result = []
        for word in text.split(" "):
            kind = random.random()
            result += [] if kind < .1 else [random.choice(words)] if kind < .2 else [word.upper()] if kind < .25 else [word]
        return " ".join(result)

    cases = []
    for number in range(24):
        first = [sentence(random.randrange(0, 11)) for _ in range(random.choice([1, 2, 3]))]
        references = [first] + [[changed(text) for text in first] for _ in range(number % 3)]
        hypotheses = [changed(text) for text in first]
        options = {"tokens": ["13a", "none", "intl"][number % 3], "smoothing": ["exp", "floor", "add-k", "none"][number % 4],
                   "lower": number % 5 < 2, "effective": number % 7 < 2}
        metric = sacrebleu.BLEU(lowercase=options["lower"], tokenize=options["tokens"], smooth_method=options["smoothing"],
                                effective_order=options["effective"], force=True)
        score = metric.corpus_score(hypotheses, references)
        cases.append({**options, "hypotheses": hypotheses, "references": [list(each) for each in zip(*references)], "score": score.score,
                      "precisions": score.precisions, "brevity": score.bp, "lengths": [score.sys_len, score.ref_len]})
    write_json("bleu.json", cases)


if __name__ == "__main__":
    byte_level()
    subword()
    sentence_pieces()
    bleu()
