"""Writes frequencies.json: rotary frequencies as Hugging Face transformers computes them.

Run: python make.py > frequencies.json (with transformers and torch; their versions are written, too).
Each case is a config.json, the frequencies of each regime and the factor of cosines and sines.
"""

import copy
import json

import torch
import transformers
from transformers import LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

llama = dict(
    model_type="llama", vocab_size=64, hidden_size=128, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=8192,
)
phi3 = dict(
    model_type="phi3", vocab_size=64, hidden_size=128, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096, pad_token_id=0,
)
short = [1 + 0.03 * i for i in range(16)]
long = [1 + 1.7 * i for i in range(16)]
yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=2048)

cases = [
    ("default", llama, dict(rope_theta=500000.0, rope_scaling=None)),
    ("default in rope_parameters", llama, dict(rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    ("no keys", llama, dict()),
    ("empty scaling", llama, dict(rope_theta=20000.0, rope_scaling={})),
    ("linear under its first name", llama, dict(rope_scaling=dict(type="linear", factor=2.5))),
    ("linear", llama, dict(rope_parameters=dict(rope_type="linear", factor=8.0, rope_theta=1e5))),
    ("linear of part of a head", llama, dict(rope_parameters=dict(rope_type="linear", factor=8.0, rope_theta=1e5, partial_rotary_factor=0.5))),
    ("dynamic", llama, dict(rope_scaling=dict(type="dynamic", factor=2.0))),
    ("llama3", llama, dict(rope_theta=500000.0, rope_scaling=dict(
        rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=1024))),
    ("llama3, context at top level", llama, dict(rope_theta=500000.0, original_max_position_embeddings=512, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=1024))),
    ("yarn", llama, dict(rope_theta=1e6, rope_scaling=yarn)),
    ("yarn under its first key", llama, dict(rope_theta=1e6, rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=2048))),
    ("yarn in rope_parameters", llama, dict(rope_parameters=dict(yarn, rope_theta=1e6, factor=16.0))),
    ("yarn without context", llama, dict(rope_theta=1e6, rope_scaling=dict(rope_type="yarn", factor=4.0))),
    ("yarn with null factor", llama, dict(rope_theta=1e6, rope_scaling=dict(yarn, factor=None))),
    ("yarn, attention factor", llama, dict(rope_scaling=dict(yarn, attention_factor=0.7))),
    ("yarn, betas", llama, dict(rope_scaling=dict(yarn, beta_fast=16.0, beta_slow=2.0))),
    ("yarn, mscale", llama, dict(rope_scaling=dict(yarn, factor=40.0, mscale=1.0, mscale_all_dim=0.707))),
    ("yarn, mscale alone", llama, dict(rope_scaling=dict(yarn, factor=40.0, mscale=2.0))),
    ("yarn, mscale zero", llama, dict(rope_scaling=dict(yarn, mscale=1.0, mscale_all_dim=0))),
    ("yarn, not truncated", llama, dict(rope_theta=150000.0, rope_scaling=dict(yarn, factor=32.0, truncate=False))),
    ("yarn, short context", llama, dict(rope_scaling=dict(yarn, original_max_position_embeddings=16))),
    ("yarn of part of a head", llama, dict(partial_rotary_factor=0.25, rope_scaling=yarn)),
    ("scaling beside parameters", llama, dict(rope_theta=30000.0, rope_parameters=dict(rope_type="default"), rope_scaling=yarn)),
    ("longrope in llama", llama, dict(rope_scaling=dict(
        rope_type="longrope", short_factor=short, long_factor=long, original_max_position_embeddings=2048))),
    ("longrope, factor", llama, dict(rope_scaling=dict(
        rope_type="longrope", short_factor=short, long_factor=long, factor=32.0, original_max_position_embeddings=2048))),
    ("longrope, attention factor", llama, dict(rope_scaling=dict(
        rope_type="longrope", short_factor=short, long_factor=long, attention_factor=1.5, original_max_position_embeddings=2048))),
    ("proportional", llama, dict(rope_parameters=dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25))),
    ("proportional, factor", llama, dict(rope_parameters=dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.3, factor=2.0))),
    ("phi3", phi3, dict(rope_theta=250000.0, original_max_position_embeddings=4096, rope_scaling=None)),
    ("phi3, part of a head", phi3, dict(partial_rotary_factor=0.75, rope_scaling=None)),
    ("phi3 longrope", phi3, dict(original_max_position_embeddings=512, partial_rotary_factor=0.75, rope_scaling=dict(
        type="longrope", short_factor=short[:12], long_factor=long[:12]))),
    ("phi3 longrope in rope_parameters", phi3, dict(original_max_position_embeddings=512, rope_parameters=dict(
        rope_type="longrope", rope_theta=5000.0, partial_rotary_factor=0.75, short_factor=short[:12], long_factor=long[:12],
        original_max_position_embeddings=512))),
    ("phi3 su", phi3, dict(original_max_position_embeddings=512, rope_scaling=dict(
        type="su", short_factor=short, long_factor=long, original_max_position_embeddings=512))),
    ("phi3 yarn, which is longrope", phi3, dict(original_max_position_embeddings=512, rope_scaling=dict(
        type="yarn", short_factor=short, long_factor=long, original_max_position_embeddings=512))),
    ("phi3 longrope, nothing to stretch", phi3, dict(original_max_position_embeddings=4096, rope_scaling=dict(
        type="longrope", short_factor=short, long_factor=long))),
    ("phi3 longrope without context", dict(phi3, max_position_embeddings=131072), dict(rope_scaling=dict(
        type="longrope", short_factor=short, long_factor=long))),
]


def frequencies(raw):
    # The classes change what they are given.
    config = {"llama": LlamaConfig, "phi3": Phi3Config}[raw["model_type"]].from_dict(copy.deepcopy(raw))
    parameters = config.rope_parameters
    kind = parameters["rope_type"]
    if kind == "default":
        make = Phi3RotaryEmbedding.compute_default_rope_parameters
    else:
        make = ROPE_INIT_FUNCTIONS[kind]
    values, scale = make(config)
    out = dict(regimes=[], scale=float(scale), frequencies=[values.tolist()])
    if kind == "longrope":
        limit = parameters["original_max_position_embeddings"]
        values, _ = make(config, seq_len=limit + 1)
        out["regimes"] = [limit]
        out["frequencies"].append(values.tolist())
    return out


result = dict(versions=dict(transformers=transformers.__version__, torch=torch.__version__), cases=[])
for name, base, changes in cases:
    raw = dict(base, **changes)
    result["cases"].append(dict(name=name, config=raw, **frequencies(raw)))
# One case a line.
print('{"versions": %s, "cases": [' % json.dumps(result["versions"]))
print(",\n".join(json.dumps(c) for c in result["cases"]))
print("]}")
