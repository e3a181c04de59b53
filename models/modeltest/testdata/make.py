"""Makes tiny checkpoints with random weights and the results of Hugging Face transformers for them.

Run: python make.py (with transformers, torch and safetensors; their versions are written, too).
A folder has config.json and model.safetensors (bf16); golden.json has prompts, greedy ids of full passes
without a cache and the margin between the first and second logit at each; golden.safetensors has the
logits of all positions, computed in float32.
"""

import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file
from transformers import (
    LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM,
)

sizes = dict(
    vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)
models = {
    "llama_yarn": (LlamaForCausalLM, LlamaConfig(**sizes, head_dim=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32))),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**sizes, tie_word_embeddings=True, sliding_window=64, use_sliding_window=False)),
    "mistral_window": (MistralForCausalLM, MistralConfig(**sizes, head_dim=16, sliding_window=8)),
    "phi3_window": (Phi3ForCausalLM, Phi3Config(**sizes, sliding_window=8, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
}

torch.manual_seed(20)
for folder, (cls, config) in models.items():
    config._attn_implementation = "eager"
    model = cls(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            scale = 0.3 if p.ndim == 2 else 0.5
            value = torch.randn(p.shape) * scale + (1 if "norm" in name else 0)
            p.copy_(value.bfloat16().float())
    path = pathlib.Path(__file__).parent / folder
    path.mkdir(exist_ok=True)
    config.dtype = "bfloat16"
    raw = config.to_dict()
    raw["architectures"] = [cls.__name__]
    (path / "config.json").write_text(json.dumps(raw, indent=1) + "\n")
    stored = {n: t.bfloat16().contiguous() for n, t in model.state_dict().items() if not (config.tie_word_embeddings and n == "lm_head.weight")}
    save_file(stored, path / "model.safetensors", metadata={"format": "pt"})

    prompts, tensors = [], {}
    for i, n in enumerate([1, 8, 9, 40]):
        ids = torch.randint(3, 96, (n,)).tolist()
        greedy, margins = [], []
        with torch.no_grad():
            tensors[f"p{i}.logits"] = model(torch.tensor([ids]), use_cache=False).logits[0].float().contiguous()
            for _ in range(16):
                logits = model(torch.tensor([ids + greedy]), use_cache=False).logits[0, -1]
                top = logits.topk(2)
                greedy.append(int(top.indices[0]))
                margins.append(round(float(top.values[0] - top.values[1]), 6))
        prompts.append(dict(name=f"p{i}", ids=ids, greedy=greedy, margins=margins, logits=dict(tensor=f"p{i}.logits", positions="all")))
    versions = dict(transformers=transformers.__version__, torch=torch.__version__)
    text = ",\n".join(json.dumps(p) for p in prompts)
    (path / "golden.json").write_text('{"versions": %s, "prompts": [\n%s\n]}\n' % (json.dumps(versions), text))
    save_file(tensors, path / "golden.safetensors")
