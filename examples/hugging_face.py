"""A model of Hugging Face with learned edges, trained by transformers' own Trainer.

    pip install 'transformers==5.*' accelerate
    .venv/bin/python examples/hugging_face.py                           # a small BERT from random weights, a minute
    .venv/bin/python examples/hugging_face.py --model PATH --lr 5e-5    # a pretrained encoder that AutoModel reads

The task needs no data: which of two words stands more often in a text? Texts have different lengths, so batches are padded.
Every layer learns its edges. Prints accuracy and density by layer, saves the model and reads it back.
"""

import argparse
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

import edgewise

WORDS, LONGEST = 30, 40


class Texts(torch.utils.data.Dataset):
    """Texts of word ids, 0 = padding. Label 1: word 2 stands more often than word 3."""

    def __init__(self, size: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(4, WORDS, (size, LONGEST), generator=generator)
        asked = torch.rand(size, LONGEST, generator=generator) < 0.5
        self.tokens[asked] = torch.randint(2, 4, (int(asked.sum()),), generator=generator)
        lengths = torch.randint(LONGEST // 2, LONGEST + 1, (size, 1), generator=generator)
        self.mask = torch.arange(LONGEST) < lengths
        self.tokens = self.tokens * self.mask
        self.labels = ((self.tokens == 2).sum(1) > (self.tokens == 3).sum(1)).long()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, n: int) -> dict:
        return {"input_ids": self.tokens[n], "attention_mask": self.mask[n].long(), "labels": self.labels[n]}


def build(path: str | None) -> transformers.PreTrainedModel:
    if path is not None:
        return transformers.AutoModelForSequenceClassification.from_pretrained(path, num_labels=2)
    config = transformers.BertConfig(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                     intermediate_size=64, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return transformers.BertForSequenceClassification(config)


def edges(layer: int, config):
    return edgewise.nn.SbmEdges(config.num_attention_heads, config.hidden_size // config.num_attention_heads, initial_density=0.9)


def accuracy(model, texts: Texts) -> tuple[float, torch.Tensor]:
    """And densities [layers, heads]."""
    model.eval()
    with torch.no_grad(), edgewise.record() as seen:
        logits = model(input_ids=texts.tokens, attention_mask=texts.mask.long()).logits
    return (logits.argmax(1) == texts.labels).float().mean().item(), seen.density


def train(steps: int, lr: float, density_weight: float, path: str | None = None, folder: str | None = None):
    transformers.set_seed(0)
    model = edgewise.hf.attach(build(path), edges, density_weight=density_weight)      # the one line
    with tempfile.TemporaryDirectory() as scratch:
        arguments = transformers.TrainingArguments(
            output_dir=folder or scratch, max_steps=steps, per_device_train_batch_size=32, learning_rate=lr, logging_steps=50,
            save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=not torch.cuda.is_available())
        transformers.Trainer(model, arguments, train_dataset=Texts(20_000, seed=1)).train()
    return model.cpu()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="a folder with a pretrained encoder")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--density-weight", type=float, default=0.06)
    parser.add_argument("--save", help="a folder for the trained model")
    options = parser.parse_args()
    model = train(options.steps, options.lr, options.density_weight, options.model)
    texts = Texts(500, seed=2)
    right, density = accuracy(model, texts)
    print(f"accuracy {right:.3f} on fresh texts")
    for number, heads in enumerate(density):
        print(f"layer {number}: density by head", " ".join(f"{x:.2f}" for x in heads.tolist()))
    with tempfile.TemporaryDirectory() as scratch:
        edgewise.hf.save(model, options.save or scratch)
        again = edgewise.hf.load(options.save or scratch)
    print("read back:", f"accuracy {accuracy(again, texts)[0]:.3f}")


if __name__ == "__main__":
    main()
