"""Draws small random checkpoints of every architecture and what transformers makes of them.

    python3 make.py SEED COUNT FOLDER [quant|keys]

With quant every checkpoint is quantised; with keys case N has key N / 8 of EXTRA in architecture N % 8, and
no quantisation.

Each case is a folder: config.json and tensors, as they are published or as save_pretrained writes them,
and golden.json and golden.safetensors with what `test/quality` compares: logits in float32 and greedy ids.
Shapes are odd on purpose. transformers reads the very config.json that lies there, so a key that it
knows and we do not shows as a difference; where we refuse a key, case.json lists it under "may_refuse".
Needs torch, transformers, safetensors and, for quantised weights, compressed-tensors.
"""

import json
import logging
import math
import pathlib
import random
import sys
import warnings

import torch
import transformers
from safetensors.torch import save_file

import quantise

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
logging.disable(logging.WARNING)
torch.set_num_threads(1)

STEPS = 24
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Case:
    """One checkpoint: keys of its text model, keys around them, and how its tensors are named."""

    def __init__(self, seed):
        self.seed = seed
        self.rnd = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.may_refuse = []
        self.outer = None  # config.json around text_config
        self.prefix = "model."  # of the text model's tensors as they are stored
        self.head = ""  # before lm_head
        self.lengths = set()  # of prompts that the shape makes interesting
        self.recompute = False  # the whole sequence anew for each token
        self.float32 = ()  # ends of names of tensors that are stored in float32 now and then
        self.notes = []

    def one(self, *choices):
        return self.rnd.choice(choices)

    def chance(self, p):
        return self.rnd.random() < p


def sizes(c, even_heads=False):
    kv = c.one(1, 1, 2, 3)
    heads = kv * c.one(1, 2, 3, 4, 5, 7, 8)
    head = c.one(16, 32, 48, 64, 80, 96, 112, 128, 144, 20, 24, 36, 200, 256, 512)
    while heads * head > 1600:
        heads, kv, head = (kv, kv, head) if heads > kv else (heads, kv, max(16, head // 2))
    # The library wants heads to divide the hidden size, whatever head_dim is.
    hidden = heads * c.rnd.randint(max(1, 32 // heads), max(2, 200 // heads))
    hidden += hidden % 2 * heads
    return dict(
        vocab_size=c.rnd.randrange(301, 1000, 2), hidden_size=hidden, intermediate_size=16 * c.rnd.randrange(1, 20, 2),
        num_hidden_layers=c.rnd.randint(1, 7), num_attention_heads=heads, num_key_value_heads=kv, head_dim=head,
        max_position_embeddings=c.rnd.randint(330, 2000), rms_norm_eps=c.one(1e-6, 1e-5, 1e-3, 1e-12),
        tie_word_embeddings=c.chance(0.5), bos_token_id=1, eos_token_id=c.one(2, [2, 5]),
    )


def rope(c, k, kinds, partial=None):
    """Adds the rotary embedding's keys in one of the layouts."""
    theta = c.one(10000.0, 1e6, 500000, 25000.5, 100.0)
    top = dict(rope_theta=theta)
    if partial is not None:
        top["partial_rotary_factor"] = partial
    kind, p = c.one(*kinds), {}
    limit = c.one(16, 33, 64, 100, 256)
    pairs = int(k["head_dim"] * (partial or 1)) // 2
    original = None
    if kind in ("linear", "dynamic", "llama3", "yarn"):
        p["factor"] = c.one(2.0, 8.0, 1.5, 4, 1.0)
    if kind == "llama3":
        p.update(low_freq_factor=c.one(1.0, 1, 0.5), high_freq_factor=c.one(4.0, 4, 8))
        original = limit
    if kind == "yarn":
        original = c.one(limit, None)
        if c.chance(0.3):
            p["attention_factor"] = c.one(1.0, 0.8, 1.3)
        if c.chance(0.3):
            p.update(mscale=c.one(1.0, 0.707), mscale_all_dim=c.one(1.0, 0.5, 0))
        if c.chance(0.3):
            p.update(beta_fast=c.one(32, 16.0), beta_slow=c.one(1, 2.0))
        if c.chance(0.3):
            p["truncate"] = c.chance(0.5)
    if kind == "longrope":
        original = limit
        p["short_factor"] = [round(c.rnd.uniform(1, 2), 3) for _ in range(pairs)]
        p["long_factor"] = [round(c.rnd.uniform(1, 20), 3) for _ in range(pairs)]
        if c.chance(0.2):
            p["attention_factor"] = 1.25
        if c.chance(0.2):
            p["factor"] = c.one(4.0, 16.0, 1.0)
        c.lengths |= {limit - 1, limit, limit + 1, max(1, limit - 10)}
        c.recompute = True
    if original is not None:
        if c.chance(0.3):
            k["original_max_position_embeddings"] = original
            if c.chance(0.3):
                p["original_max_position_embeddings"] = original * 2
        else:
            p["original_max_position_embeddings"] = original
    c.notes.append(f"rope {kind}")
    if c.chance(0.5):
        k.update(top)
        if kind != "default":
            k["rope_scaling"] = {c.one("type", "rope_type"): kind, **p}
        elif c.chance(0.5):
            k["rope_scaling"] = None
    else:
        k["rope_parameters"] = {"rope_type": kind, **top, **p}


SCALINGS = ("default", "default", "linear", "dynamic", "llama3", "yarn", "yarn", "longrope")


def window(c):
    w = c.one(1, 2, 5, 16, 17, 31, 33, 64, 100, 200)
    c.lengths |= {max(1, w - 1), w, w + 1, w + 40}
    c.recompute |= w == 1  # the library's cache keeps all tokens then
    return w


def llama(c):
    k = sizes(c)
    k.update(model_type="llama", architectures=["LlamaForCausalLM"])
    rope(c, k, SCALINGS)
    k["attention_bias"], k["mlp_bias"] = c.chance(0.3), c.chance(0.3)
    return k


def mistral(c):
    k = sizes(c)
    k.update(model_type="mistral", architectures=["MistralForCausalLM"])
    rope(c, k, SCALINGS)
    if c.chance(0.8):
        k["sliding_window"] = c.one(window(c), window(c), None)
    return k


def qwen(c, name, cls):
    k = sizes(c)
    k.update(model_type=name, architectures=[cls])
    if name == "qwen2":
        if c.chance(0.5):
            k["head_dim"] = k["hidden_size"] // k["num_attention_heads"]
            if k["head_dim"] % 2:
                k["head_dim"] *= 2
                k["hidden_size"] *= 2
            rope(c, k, SCALINGS)
            del k["head_dim"]
            return k
    else:
        k["attention_bias"] = c.chance(0.3)
    rope(c, k, SCALINGS)
    if c.chance(0.4):
        k.update(use_sliding_window=c.chance(0.5), max_window_layers=c.rnd.randint(0, 9), sliding_window=window(c))
        if c.chance(0.3):
            k.pop(c.one("max_window_layers", "sliding_window"))
    elif c.chance(0.3):
        w = c.chance(0.5)
        k["layer_types"] = [c.one("full_attention", "sliding_attention") if w else "full_attention" for _ in range(k["num_hidden_layers"])]
        if w:
            k.update(use_sliding_window=True, sliding_window=window(c))
    return k


def phi3(c):
    k = sizes(c)
    k.update(model_type="phi3", architectures=["Phi3ForCausalLM"], pad_token_id=0)
    k["head_dim"] = c.one(16, 32, 48, 64, 80, 96)
    k["hidden_size"] = k["head_dim"] * k["num_attention_heads"]
    while k["hidden_size"] > 1000:
        k["num_attention_heads"] = k["num_key_value_heads"] = 3
        k["hidden_size"] = k["head_dim"] * 3
    rope(c, k, ("default", "longrope", "longrope"), c.one(None, 1.0, 0.75, 0.5, 0.25))
    if c.chance(0.7):
        del k["head_dim"]
    if c.chance(0.5):
        k["sliding_window"] = c.one(window(c), None)
    if "original_max_position_embeddings" not in k and "longrope" in c.notes[-1]:
        scaled = k.get("rope_scaling") or k["rope_parameters"]
        k["original_max_position_embeddings"] = scaled["original_max_position_embeddings"]
        if c.chance(0.5):
            del scaled["original_max_position_embeddings"]
    return k


def types(c, layers, a, b, last=None):
    style = c.one("random", "all but one", "first", "one kind")
    t = [c.one(a, b) for _ in range(layers)]
    if style == "all but one":
        t = [a] * layers
        t[c.rnd.randrange(layers)] = b
    elif style == "first":
        t = [b] + [a] * (layers - 1)
    elif style == "one kind":
        t = [b] * layers
    if last:
        t[-1] = last
    return t


def gemma3(c):
    k = sizes(c)
    k.update(model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], query_pre_attn_scalar=c.one(256, 64, 24, k["head_dim"]))
    k["sliding_window"] = window(c)
    k["tie_word_embeddings"] = c.chance(0.8)
    if c.chance(0.3):
        del k["tie_word_embeddings"]
    if c.chance(0.5):
        k["layer_types"] = types(c, k["num_hidden_layers"], "sliding_attention", "full_attention")
    elif c.chance(0.7):
        k["sliding_window_pattern"] = c.one(1, 2, 3, 6)
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if c.chance(0.3):
            k[key] = c.one(None, 5.0, 30.0)
    k["attention_bias"] = c.chance(0.3)
    if c.chance(0.5):
        k.update(rope_theta=c.one(1e6, 5e5), rope_local_base_freq=c.one(10000.0, 5000))
        if c.chance(0.6):
            k["rope_scaling"] = c.one(None, dict(rope_type="linear", factor=8.0), dict(rope_type="linear", factor=2))
    elif c.chance(0.8):
        k["rope_parameters"] = {
            "full_attention": c.one(
                dict(rope_type="linear", rope_theta=1e6, factor=8.0), dict(rope_type="default", rope_theta=3e5), dict(rope_type="default"),
                dict(rope_type="yarn", rope_theta=1e5, factor=4.0, original_max_position_embeddings=64),
                dict(rope_type="llama3", rope_theta=1e5, factor=4.0, original_max_position_embeddings=64, low_freq_factor=1.0, high_freq_factor=4.0)),
            "sliding_attention": c.one(dict(rope_type="default", rope_theta=10000.0), dict(rope_type="linear", factor=2.0, rope_theta=7000.0)),
        }
    if c.chance(0.4):
        k.update(architectures=None)
        c.outer = dict(model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"], vision_config=dict(model_type="siglip_vision_model"),
                       tie_word_embeddings=k.get("tie_word_embeddings", True))
        c.prefix, c.head = c.one(("language_model.model.", "language_model."), ("model.language_model.", ""))
    return k


def gemma4(c):
    k = sizes(c)
    k.update(model_type="gemma4_unified_text", architectures=["Gemma4UnifiedForCausalLM"], sliding_window=window(c))
    k["global_head_dim"] = c.one(32, 64, 96, 128, 80, 512, 48)
    while k["num_attention_heads"] * k["global_head_dim"] > 2000:
        k["global_head_dim"] //= 2
    k["attention_k_eq_v"] = c.chance(0.6)
    if c.chance(0.7):
        k["num_global_key_value_heads"] = c.one(*[n for n in range(1, k["num_attention_heads"] + 1) if k["num_attention_heads"] % n == 0])
    k["tie_word_embeddings"] = c.chance(0.8)
    if c.chance(0.8):
        k["layer_types"] = types(c, k["num_hidden_layers"], "sliding_attention", "full_attention", c.one("full_attention", None))
    if c.chance(0.7):
        k["final_logit_softcapping"] = c.one(30.0, 5.0, None)
    k["attention_bias"] = c.chance(0.2)
    if c.chance(0.8):
        k["rope_parameters"] = {
            "full_attention": c.one(
                dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25),
                dict(rope_type="proportional", rope_theta=1e5, partial_rotary_factor=0.7),
                dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.5, factor=4.0),
                dict(rope_type="proportional", rope_theta=1e6),
                dict(rope_type="default", rope_theta=3e5),
                dict(rope_type="linear", rope_theta=1e6, factor=8.0)),
            "sliding_attention": c.one(dict(rope_type="default", rope_theta=10000.0), dict(rope_type="linear", factor=2.0, rope_theta=7000.0)),
        }
    if c.chance(0.3):
        # The same layers without per-layer inputs, as the 31B is published.
        k.update(model_type="gemma4_text", architectures=["Gemma4ForCausalLM"], hidden_size_per_layer_input=0, num_kv_shared_layers=0,
                 enable_moe_block=False, use_double_wide_mlp=False)
        if c.chance(0.5):
            k.update(architectures=None)
            c.outer = dict(model_type="gemma4", architectures=["Gemma4ForConditionalGeneration"], tie_word_embeddings=k["tie_word_embeddings"])
            c.prefix = "model.language_model."
    elif c.chance(0.6):
        k.update(architectures=None)
        c.outer = dict(model_type="gemma4_unified", architectures=["Gemma4UnifiedForConditionalGeneration"],
                       tie_word_embeddings=k["tie_word_embeddings"])
        c.prefix = "model.language_model."
    return k


def qwen3_5(c):
    k = sizes(c)
    key_heads = c.one(1, 2, 3)
    k.update(
        model_type="qwen3_5_text", architectures=["Qwen3_5ForCausalLM"], attention_bias=c.chance(0.2), linear_conv_kernel_dim=c.one(2, 3, 4, 4, 5),
        linear_num_key_heads=key_heads, linear_num_value_heads=key_heads * c.one(1, 2, 3, 4),
        linear_key_head_dim=c.one(8, 16, 20, 32, 48, 64, 128), linear_value_head_dim=c.one(8, 16, 24, 32, 48, 64, 128))
    k["head_dim"] = c.one(16, 32, 48, 64, 80, 96, 128, 256)
    while k["num_attention_heads"] * k["head_dim"] > 1600:
        k["head_dim"] //= 2
    parts = [f for f in (0.25, 0.5, 1.0) if int(k["head_dim"] * f) % 2 == 0]
    part = c.one(*parts)
    pairs = int(k["head_dim"] * part) // 2
    p = dict(rope_type="default", rope_theta=c.one(10000.0, 1e7), mrope_interleaved=True, mrope_section=[pairs - 2 * (pairs // 3), pairs // 3, pairs // 3])
    if c.chance(0.3):
        p.update(rope_type="yarn", factor=c.one(4.0, 2), original_max_position_embeddings=c.one(32, 64, 200))
    if part != 0.25 or c.chance(0.5):
        p["partial_rotary_factor"] = part
    k["rope_parameters"] = p
    if c.chance(0.7):
        k["layer_types"] = types(c, k["num_hidden_layers"], "linear_attention", "full_attention")
        if "full_attention" not in k["layer_types"]:
            k["layer_types"][c.rnd.randrange(len(k["layer_types"]))] = "full_attention"
    else:
        k["full_attention_interval"] = c.one(1, 2, 3)
        k["num_hidden_layers"] = max(k["num_hidden_layers"], k["full_attention_interval"])
    c.lengths |= {1, 2, 3, 4, 5, 63, 64, 65, 128}
    c.float32 = ("A_log", "linear_attn.norm.weight")
    if c.chance(0.7):
        k.update(architectures=None)
        c.outer = dict(model_type="qwen3_5", architectures=["Qwen3_5ForConditionalGeneration"], vision_config=dict(model_type="qwen3_5", depth=1),
                       tie_word_embeddings=k["tie_word_embeddings"])
        c.prefix = "model.language_model."
    return k


FAMILIES = {
    "llama": llama, "mistral": mistral, "qwen2": lambda c: qwen(c, "qwen2", "Qwen2ForCausalLM"),
    "qwen3": lambda c: qwen(c, "qwen3", "Qwen3ForCausalLM"), "phi3": phi3, "gemma3": gemma3, "gemma4": gemma4, "qwen3_5": qwen3_5,
}

# Keys that transformers' configs know, with values that are not their defaults. Where the second is
# true we may refuse the key instead of heeding it.
EXTRA = [
    ("hidden_act", "gelu", True), ("hidden_act", "swish", True), ("hidden_act", "relu", True), ("hidden_activation", "silu", True),
    ("hidden_activation", "gelu", True), ("is_causal", False, True), ("attention_bias", True, False), ("mlp_bias", True, True),
    ("pretraining_tp", 2, False), ("use_cache", False, False), ("attention_dropout", 0.5, False), ("initializer_range", 0.5, False),
    ("sliding_window", 7, False), ("use_sliding_window", True, True), ("partial_rotary_factor", 0.5, True), ("num_key_value_heads", None, False),
    ("head_dim", None, False), ("attn_logit_softcapping", 2.0, False), ("final_logit_softcapping", 3.0, False), ("query_pre_attn_scalar", 10, False),
    ("use_bidirectional_attention", True, True), ("use_bidirectional_attention", "all", True), ("rope_theta", 77.0, False),
    ("rope_local_base_freq", 77.0, False), ("original_max_position_embeddings", 40, False), ("rope_scaling", {}, False),
    ("layer_types", "sliding_attention", True), ("sliding_window", None, True), ("attention_chunk_size", 5, False), ("tie_word_embeddings", "missing", False),
    ("rms_norm_eps", "missing", False), ("num_key_value_heads", "missing", False), ("linear_conv_kernel_dim", "missing", False),
    ("logit_scale", 2.0, False), ("embedding_multiplier", 2.0, False), ("residual_multiplier", 0.5, False), ("attention_multiplier", 0.1, False),
    ("attn_output_gate", False, True), ("output_gate_type", "sigmoid", True), ("num_kv_shared_layers", 1, True), ("use_double_wide_mlp", True, True),
    ("enable_moe_block", True, True), ("hidden_size_per_layer_input", 8, True), ("resid_pdrop", 0.3, False), ("embd_pdrop", 0.3, False),
    ("is_decoder", True, False), ("add_cross_attention", True, False), ("chunk_size_feed_forward", 4, False), ("sliding_window_pattern", 2, False),
    ("full_attention_interval", 2, False), ("max_window_layers", 1, False), ("no_rope_layers", [0], False), ("interleaved_mrope", True, False),
]


def extra(c, k, entry):
    key, value, refusable = entry
    if value == "missing":
        k.pop(key, None)
    elif key == "layer_types":
        k[key] = [value] * k["num_hidden_layers"]
    else:
        k[key] = value
    if refusable or key == "attention_bias" and k["model_type"] == "phi3":
        c.may_refuse.append(key)
    if key in ("sliding_window", "attention_chunk_size", "layer_types"):
        c.recompute = True  # the library's cache heeds them in models whose masks do not
    c.notes.append(f"extra {key}={value}")


def weight(c, family, k, name, shape):
    """A random value for a tensor, such that logits have a standard deviation of a few."""
    g = c.generator
    n = torch.randn(shape, generator=g)
    if name.endswith("A_log"):
        return torch.log(torch.rand(shape, generator=g) * 15 + 0.5)
    if name.endswith(("dt_bias", "conv1d.weight")):
        return n * 0.7
    if name.endswith("layer_scalar"):
        return torch.rand(shape, generator=g) + 0.5
    if "norm" in name:
        plus_one = family == "gemma3" or family == "qwen3_5" and not name.endswith("linear_attn.norm.weight")
        n = n * 0.3 + (0 if plus_one else 1)
        return n * shape[0] ** -0.25 if family == "gemma4" and name.endswith(("q_norm.weight", "k_norm.weight")) else n
    if name.endswith("bias"):
        return n * 0.3
    scale = 3 if "embed" in name or "lm_head" in name else 1.2
    return n * scale / math.sqrt(shape[-1])


def build(c, folder):
    mode = sys.argv[4] if len(sys.argv) > 4 else ""
    family = c.one(*FAMILIES)
    if mode == "keys":
        family = list(FAMILIES)[c.seed % len(FAMILIES)]
    k = FAMILIES[family](c)
    c.notes.append(family)
    if mode == "keys":
        extra(c, k, EXTRA[c.seed // len(FAMILIES) % len(EXTRA)])
    elif c.chance(0.35):
        extra(c, k, c.one(*EXTRA))
    quant = quantise.draw(c, family) if mode == "quant" or mode != "keys" and c.chance(0.35) else None
    if quant:
        quant.fit(c, k)
    dtype = c.one(*DTYPES)
    k[c.one("dtype", "torch_dtype")] = dtype
    k = {a: b for a, b in k.items() if not (a == "architectures" and b is None)}
    raw = dict(c.outer, text_config=k) if c.outer else k

    def write(raw):
        (folder / "config.json").write_text(json.dumps(raw, indent=1) + "\n")
        return transformers.AutoConfig.from_pretrained(folder)

    config = write(raw)
    text = config.get_text_config()
    if family.startswith("qwen") and "sliding_attention" in text.layer_types:
        c.may_refuse += ["use_sliding_window", "layer_types"]
    if c.chance(0.4) and not c.outer:
        c.notes.append("save_pretrained's layout")
        config.save_pretrained(folder)
        raw = json.loads((folder / "config.json").read_text())
        config = write(raw)
    text = config.get_text_config()
    if c.outer:
        text.tie_word_embeddings = config.tie_word_embeddings
    text._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(text, dtype=torch.float32, attn_implementation="eager").eval()
    tied = text.tie_word_embeddings
    values, stored = {}, {}
    for name, t in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        v = weight(c, family, k, name, tuple(t.shape))
        to = torch.float32 if name.endswith(c.float32) and c.chance(0.5) and c.float32 else DTYPES[dtype]
        stored[name] = v.to(to).contiguous()
        values[name] = stored[name].float()
    if quant:
        config_entry = quant.apply(c, model, stored, values, DTYPES[dtype])
        raw["quantization_config"] = config_entry
        (folder / "config.json").write_text(json.dumps(raw, indent=1) + "\n")
        c.notes.append(quant.label)
    missing, unexpected = model.load_state_dict(values, strict=False)
    if unexpected or [m for m in missing if not (tied and m == "lm_head.weight")]:
        raise RuntimeError(f"tensors: {missing} {unexpected}")
    model.tie_weights()

    def named(name):
        return c.prefix + name[len("model."):] if name.startswith("model.") else c.head + name

    save(c, folder, {named(n): t for n, t in stored.items()})
    return family, model, text, k


def save(c, folder, tensors):
    shards = c.one(1, 1, 2, 3)
    if shards == 1:
        return save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    names = sorted(tensors)
    c.rnd.shuffle(names)
    where = {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = names[i::shards]
        where.update({n: file for n in part})
        save_file({n: tensors[n] for n in part}, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps(dict(metadata=dict(total_size=0), weight_map=where)))


@torch.no_grad()
def golden(c, folder, model, text):
    longest = min(300, text.max_position_embeddings - STEPS - 1)
    lengths = {n for n in c.lengths if n <= longest}
    lengths = set(c.rnd.sample(sorted(lengths), min(3, len(lengths)))) | {c.rnd.randint(1, 40), min(longest, c.one(255, 256, 257, c.rnd.randint(1, 300)))}
    prompts, tensors = [], {}
    for i, n in enumerate(sorted(lengths)):
        ids = [c.rnd.randrange(text.vocab_size) for _ in range(n)]
        out = model(torch.tensor([ids]), use_cache=not c.recompute)
        logits, cache = out.logits[0].float(), out.past_key_values
        kept = list(range(n)) if n <= 64 else sorted({0, n // 2, n - 2, n - 1} | set(c.rnd.sample(range(n), 12)))
        tensors[f"p{i}.logits"] = logits[kept].contiguous()
        greedy, margins = [], []
        for _ in range(STEPS):
            top = logits[-1].topk(2)
            greedy.append(int(top.indices[0]))
            margins.append(round(float(top.values[0] - top.values[1]), 6))
            if c.recompute:
                logits = model(torch.tensor([ids + greedy]), use_cache=False).logits[0].float()
            else:
                out = model(torch.tensor([greedy[-1:]]), past_key_values=cache, use_cache=True)
                logits = out.logits[0].float()
        prompts.append(dict(name=f"p{i}", ids=ids, greedy=greedy, margins=margins, logits=dict(tensor=f"p{i}.logits", positions=kept)))
    noise = max(self_difference(model, p, tensors[p["logits"]["tensor"]]) for p in prompts[:3])
    model = model.double()
    noise = max([noise] + [float((whole(model, p) - tensors[p["logits"]["tensor"]]).abs().max()) for p in prompts])
    if not all(t.isfinite().all() for t in tensors.values()):
        raise RuntimeError("logits are not finite")
    (folder / "golden.json").write_text(json.dumps(dict(prompts=prompts)))
    save_file(tensors, folder / "golden.safetensors")
    return noise


def whole(model, p):
    return model(torch.tensor([p["ids"]]), use_cache=False).logits[0][p["logits"]["positions"]]


def self_difference(model, p, logits):
    """How far float32, token by token, is from itself in one pass: a recurrent model's two paths differ."""
    if not hasattr(model.config, "linear_num_key_heads"):
        return 0.0
    cache, largest = None, 0.0
    for i, token in enumerate(p["ids"][:64]):
        out = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        if i in p["logits"]["positions"]:
            largest = max(largest, float((out.logits[0, -1] - logits[p["logits"]["positions"].index(i)]).abs().max()))
    return largest


def main():
    seed, count, out = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    made = 0
    for s in range(seed, seed + count):
        c = Case(s)
        folder = out / f"{s:06}"
        folder.mkdir(parents=True, exist_ok=True)
        case = folder / "case.json"
        try:
            family, model, text, k = build(c, folder)
            noise = golden(c, folder, model, text)
        except Exception as e:  # what the library cannot do says nothing of us
            for f in folder.iterdir():
                f.unlink()
            folder.rmdir()
            print(f"{s}: no case: {c.notes}: {type(e).__name__}: {str(e)[:200]}", flush=True)
            continue
        made += 1
        case.write_text(json.dumps(dict(seed=s, architecture=family, notes=c.notes, may_refuse=c.may_refuse, noise=noise)))
    print(f"{made} of {count} cases in {out}")
    if made < count / 2:
        sys.exit("most of them could not be made")


if __name__ == "__main__":
    main()
