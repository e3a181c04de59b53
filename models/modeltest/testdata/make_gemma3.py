"""Makes gemma3/: a small random Gemma 3 text model and what transformers says of it.

    python3 make_gemma3.py

Weights are random, from a seed. config.json is written by hand in the layout of the published
checkpoints (sliding_window_pattern, rope_local_base_freq, rope_scaling), logits are those of
transformers' Gemma3ForCausalLM in float32 with eager attention. The versions used stand in golden.json.
"""

import json
import os

import safetensors
import safetensors.torch
import torch
import transformers

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gemma3")
CONFIG = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "query_pre_attn_scalar": 24,
    "sliding_window": 16,
    "sliding_window_pattern": 3,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-06,
    "hidden_activation": "gelu_pytorch_tanh",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}
LENGTHS = [1, 2, 15, 16, 17, 41]
STEPS = 16


def main():
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, "config.json"), "w") as f:
        json.dump(CONFIG, f, indent=1)
    config = transformers.AutoConfig.from_pretrained(OUT)
    model = transformers.Gemma3ForCausalLM(config)
    rnd = torch.Generator().manual_seed(7)
    tensors = {}
    for name, p in model.state_dict().items():
        if name == "lm_head.weight":
            continue  # tied
        # Norms multiply by 1 + weight. Embeddings are small beside what layers add, or a tied model
        # would repeat its last token; the last norm makes up for it.
        size = 0.3 if p.dim() == 1 else 0.05 if "embed" in name else 0.25
        middle = 6 if name == "model.norm.weight" else 0
        tensors[name] = (torch.randn(p.shape, generator=rnd) * size + middle).to(torch.bfloat16)
    safetensors.torch.save_file(tensors, os.path.join(OUT, "model.safetensors"), metadata={"format": "pt"})

    model = transformers.AutoModelForCausalLM.from_pretrained(OUT, dtype=torch.float32, attn_implementation="eager").eval()
    stored, prompts = {}, []
    for i, length in enumerate(LENGTHS):
        ids = torch.randint(3, CONFIG["vocab_size"], (length,), generator=rnd).tolist()
        greedy, margins = [], []
        with torch.no_grad():
            out = model(torch.tensor([ids]), output_hidden_states=True)
            stored[f"p{i}.logits"] = out.logits[0].contiguous()
            if length == 17:
                stored[f"p{i}.hidden_states"] = torch.stack([h[0] for h in out.hidden_states]).contiguous()
            for _ in range(STEPS):
                top = model(torch.tensor([ids + greedy])).logits[0, -1].topk(2)
                greedy.append(top.indices[0].item())
                margins.append(round((top.values[0] - top.values[1]).item(), 6))
        prompts.append({
            "name": f"p{i}", "ids": ids, "greedy": greedy, "margins": margins,
            "logits": {"tensor": f"p{i}.logits", "positions": "all"},
        })
    safetensors.torch.save_file(stored, os.path.join(OUT, "golden.safetensors"))
    golden = {
        "what": "results of transformers in float32 with eager attention",
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, safetensors)},
        "layer_types": model.config.layer_types,
        "logits_std": round(torch.cat([v for k, v in stored.items() if k.endswith("logits")]).std().item(), 3),
        "prompts": prompts,
    }
    with open(os.path.join(OUT, "golden.json"), "w") as f:
        json.dump(golden, f)
        f.write("\n")
    print(golden["versions"], golden["layer_types"], golden["logits_std"])


main()
