"""Small models of transformers with random weights, for the tests of edgewise.hf."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers as hf

SIZES = dict(vocab_size=50, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48)
LENGTH = 20


def bert(**options):
    return hf.BertModel(hf.BertConfig(**SIZES, **options))


def roberta(**options):
    return hf.RobertaModel(hf.RobertaConfig(**SIZES, **options))


def vit(**options):
    # 16 patches and a class token
    return hf.ViTModel(hf.ViTConfig(image_size=16, patch_size=4, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
                                    intermediate_size=48, **options))


def gpt2(**options):
    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=50, n_positions=64, n_embd=32, n_layer=3, n_head=4, bos_token_id=1,
                                            eos_token_id=None, pad_token_id=0, **options))


def llama(**options):
    return hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES, num_key_value_heads=2, bos_token_id=1, eos_token_id=None, pad_token_id=0,
                                              **options))


MODELS = {"bert": bert, "roberta": roberta, "vit": vit, "gpt2": gpt2, "llama": llama}
# Relatives, whose attention is another class with the same call.
RELATIVES = {
    "distilbert": lambda: hf.DistilBertModel(hf.DistilBertConfig(vocab_size=50, dim=32, n_layers=3, n_heads=4, hidden_dim=48)),
    "electra": lambda: hf.ElectraModel(hf.ElectraConfig(**SIZES, embedding_size=32)),
    "xlm-roberta": lambda: hf.XLMRobertaModel(hf.XLMRobertaConfig(**SIZES)),
    "camembert": lambda: hf.CamembertModel(hf.CamembertConfig(**SIZES)),
    "deit": lambda: hf.DeiTModel(hf.DeiTConfig(image_size=16, patch_size=4, hidden_size=32, num_hidden_layers=3,
                                               num_attention_heads=4, intermediate_size=48)),
    "mistral": lambda: hf.MistralModel(hf.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=None)),
    "qwen2": lambda: hf.Qwen2Model(hf.Qwen2Config(**SIZES, num_key_value_heads=2)),
    "qwen3": lambda: hf.Qwen3Model(hf.Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=8)),
}
TEXT = ("bert", "roberta", "gpt2", "llama")
CAUSAL = ("gpt2", "llama", "mistral", "qwen2", "qwen3")


def make(name, **options):
    torch.manual_seed(3)
    return {**MODELS, **RELATIVES}[name](**options).eval()


def batch_of(name, batch=3, padded=False):
    """Keyword arguments of a call, and [B, N] bool, true = token whose output counts."""
    generator = torch.Generator().manual_seed(5)
    if name in ("vit", "deit"):
        return {"pixel_values": torch.randn(batch, 3, 16, 16, generator=generator)}, torch.ones(batch, 17, dtype=torch.bool)
    tokens = torch.randint(2, 50, (batch, LENGTH), generator=generator)
    valid = torch.ones(batch, LENGTH, dtype=torch.bool)
    if not padded:
        return {"input_ids": tokens}, valid
    for item, missing in enumerate((0, 6, 13)):
        if name in CAUSAL:
            valid[item, :missing] = False  # on the left, as for generation
        else:
            valid[item, LENGTH - missing:] = False
    return {"input_ids": tokens, "attention_mask": valid.long()}, valid


def answer(model, given):
    out = model(**given)
    return out.logits if hasattr(out, "logits") else out.last_hidden_state
