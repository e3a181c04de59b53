"""Quantised weights for make.py: compressed-tensors by its own library, GPTQ and AWQ from their definitions.

Weights are rounded to nearest. What transformers then runs with are the dequantised values in float32.
"""

import math

import torch


def draw(c, family):
    return c.one(CompressedTensors, CompressedTensors, GPTQ, AWQ)(c, family)


class Scheme:
    """Sizes are made to fit a group; which matrices are quantised is drawn."""

    def __init__(self, c, family):
        self.family = family
        self.bits = 4
        self.group = c.one(16, 32, 32, 64, 128, 48, 24, 96, 8, 40)
        self.float_ends = [e for e in ("self_attn.k_proj", "mlp.down_proj", "o_proj", "linear_attn.in_proj_z", "qkv_proj") if c.chance(0.15)]
        self.float_layer = c.rnd.randrange(7) if c.chance(0.2) else None

    def fit(self, c, k):
        """Makes inputs of every matrix whole groups, and outputs whole words where the format packs along them."""
        if self.group == 0:
            unit = self.unit
        else:
            unit = math.lcm(self.group, self.unit)
        heads = k["num_attention_heads"]

        def up(n, unit):
            return -(-n // unit) * unit
        # heads x head_dim are inputs of o_proj, kv heads x head_dim outputs of k_proj.
        while heads * k.get("head_dim", 0) % unit or k["num_key_value_heads"] * k.get("head_dim", 0) % self.unit:
            if "head_dim" not in k:
                break
            k["head_dim"] += 2 if k["head_dim"] % 2 == 0 else 1
        k["hidden_size"] = up(k["hidden_size"], math.lcm(unit, heads))
        k["intermediate_size"] = up(k["intermediate_size"], unit)
        for key in ("linear_key_head_dim", "linear_value_head_dim"):
            if key in k:
                while k["linear_num_value_heads"] * k[key] % unit or k["linear_num_key_heads"] * k[key] % self.unit:
                    k[key] += 4
        if self.unit > 1 and "linear_num_value_heads" in k:
            self.float_ends += ["in_proj_a", "in_proj_b"]
        if "global_head_dim" in k:
            while heads * k["global_head_dim"] % unit or k.get("num_global_key_value_heads", 1) * k["global_head_dim"] % self.unit:
                k["global_head_dim"] += 2
        if max(k["hidden_size"], heads * k.get("head_dim", 1), heads * k.get("global_head_dim", 1)) > 2600:
            raise ValueError("too large once it fits the groups")
        if "head_dim" not in k and k["hidden_size"] // heads % 2:
            raise ValueError("an odd head once it fits the groups")
        for p in (k.get("rope_scaling"), k.get("rope_parameters")):
            if isinstance(p, dict) and "short_factor" in p:
                head = k.get("head_dim") or k["hidden_size"] // heads
                part = k.get("partial_rotary_factor") or p.get("partial_rotary_factor") or 1
                n = int(head * part) // 2
                for key in ("short_factor", "long_factor"):
                    p[key] = (p[key] * n)[:n]
        p = k.get("rope_parameters") or {}
        if "mrope_section" in p:
            n = int(k["head_dim"] * p.get("partial_rotary_factor", 0.25)) // 2
            p["mrope_section"] = [n - 2 * (n // 3), n // 3, n // 3]

    def modules(self, model):
        """Names of the matrices to quantise."""
        for name, m in model.named_modules():
            if not isinstance(m, torch.nn.Linear) or name == "lm_head":
                continue
            if any(name.endswith(e) for e in self.float_ends) or f"layers.{self.float_layer}." in name:
                continue
            yield name


def codes(w, group, bits, symmetric, clip=True):
    """Rounds w [n, k] to nearest: integer codes [n, k], scales [n, groups], zero points [n, groups]."""
    n, k = w.shape
    x = w.reshape(n, k // group, group)
    top = 2**bits - 1
    if symmetric:
        scale = x.abs().amax(-1) / (2 ** (bits - 1) - 0.5)
        zero = torch.full_like(scale, 2 ** (bits - 1))
    else:
        low, high = x.amin(-1).clamp(max=0), x.amax(-1).clamp(min=0)
        scale = (high - low) / top
        zero = (-low / scale).round().clamp(0, top)
    scale = scale.half().float()
    q = (x / scale[..., None] + zero[..., None]).round().clamp(0, top)
    return q.reshape(n, k).int(), scale, zero.int()


def pack(x, bits, order=None):
    """Packs columns of codes into words of 32 bits, lowest first."""
    per = 32 // bits
    x = x.reshape(x.shape[0], -1, per).long()
    if order:
        x = x[..., order]
    word = sum(x[..., i] << (bits * i) for i in range(per))
    return torch.where(word >= 2**31, word - 2**32, word).int()


class GPTQ(Scheme):
    unit = 8

    def __init__(self, c, family):
        super().__init__(c, family)
        self.bits = c.one(4, 4, 8)
        self.format = c.one("gptq", "gptq_v2")
        self.symmetric, self.order = c.chance(0.5), c.chance(0.4)
        if c.chance(0.2):
            self.group = 0
        self.label = f"{self.format} group {self.group} bits {self.bits} sym {self.symmetric} desc_act {self.order}"

    def apply(self, c, model, stored, values, dtype):
        for name in list(self.modules(model)):
            w = values[name + ".weight"]
            n, k = w.shape
            group = self.group or k
            index = torch.arange(k) // group
            if self.order:
                index = index[torch.randperm(k, generator=c.generator)]
            order = torch.argsort(index, stable=True)
            q, scale, zero = codes(w[:, order], group, self.bits, self.symmetric)
            q = q[:, torch.argsort(order)]
            values[name + ".weight"] = scale[:, index] * (q - zero[:, index])
            del stored[name + ".weight"]
            stored[name + ".qweight"] = pack(q, self.bits).t().contiguous()
            less = 1 if self.format == "gptq" else 0
            stored[name + ".qzeros"] = pack((zero.t() - less) % 2**self.bits, self.bits).contiguous()
            stored[name + ".scales"] = scale.t().half().contiguous()
            if self.order or c.chance(0.7):
                stored[name + ".g_idx"] = index.int()
        return dict(quant_method="gptq", bits=self.bits, group_size=self.group or -1, sym=self.symmetric, desc_act=self.order, checkpoint_format=self.format)


class AWQ(Scheme):
    unit = 8

    def __init__(self, c, family):
        super().__init__(c, family)
        if c.chance(0.2):
            self.group = 0
        self.label = f"awq group {self.group}"

    def apply(self, c, model, stored, values, dtype):
        for name in list(self.modules(model)):
            w = values[name + ".weight"]
            group = self.group or w.shape[1]
            q, scale, zero = codes(w, group, 4, False)
            values[name + ".weight"] = scale.repeat_interleave(group, 1) * (q - zero.repeat_interleave(group, 1))
            del stored[name + ".weight"]
            order = [0, 2, 4, 6, 1, 3, 5, 7]
            stored[name + ".qweight"] = pack(q.t(), 4, order).contiguous()
            stored[name + ".qzeros"] = pack(zero.t(), 4, order).contiguous()
            stored[name + ".scales"] = scale.t().half().contiguous()
        skip = list(self.float_ends)
        if self.float_layer is not None:
            skip.append(f"layers.{self.float_layer}")
        return dict(quant_method="awq", bits=4, group_size=self.group or -1, version=c.one("gemm", "GEMM"), zero_point=True, modules_to_not_convert=c.one(skip, skip or None))


class CompressedTensors(Scheme):
    unit = 1

    def __init__(self, c, family):
        super().__init__(c, family)
        self.bits = c.one(4, 4, 4, 8)
        self.symmetric = c.chance(0.5)
        self.strategy = c.one("group", "group", "group", "channel", "tensor")
        self.format = c.one("pack-quantized", "pack-quantized", "int-quantized", "naive-quantized") if self.bits == 8 else "pack-quantized"
        if self.strategy != "group":
            self.group = 0
        if self.strategy == "tensor":
            self.format = "int-quantized" if self.bits == 8 else "pack-quantized"
            self.symmetric = True
        self.mixed = self.strategy == "group" and self.format == "pack-quantized" and c.chance(0.3)
        self.label = f"compressed-tensors {self.format} {self.strategy} {self.group} bits {self.bits} symmetric {self.symmetric} mixed {self.mixed}"

    def apply(self, c, model, stored, values, dtype):
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
        from compressed_tensors.quantization.utils import calculate_qparams

        def scheme(**changes):
            args = dict(num_bits=self.bits, symmetric=self.symmetric, strategy=self.strategy, group_size=self.group or None)
            args.update(changes)
            return QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**{a: b for a, b in args.items() if b is not None}))

        first = scheme()
        second = scheme(num_bits=8, strategy="channel", group_size=-1) if self.mixed else None
        compressor = BaseCompressor.get_value_from_registry(self.format)
        quantised = set(self.modules(model))
        ignore = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n not in quantised]
        for name in quantised:
            s = second if second and name.endswith("mlp.down_proj") else first
            a = s.weights
            w = values[name + ".weight"]
            n, k = w.shape
            group = a.group_size if a.strategy == "group" else k
            x = w.reshape(n, -1, group)
            low, high = (x.amin(-1), x.amax(-1)) if a.strategy != "tensor" else (w.amin().reshape(1), w.amax().reshape(1))
            scale, zero = calculate_qparams(low, high, a)
            scale = scale.to(dtype)
            state = {"weight": w, "weight_scale": scale.float()}
            if not a.symmetric:
                state["weight_zero_point"] = zero.to(torch.int8)
            out = compressor.compress(state, s)
            plain = compressor.decompress(dict(out), s)
            values[name + ".weight"] = plain["weight"].float()
            del stored[name + ".weight"]
            for key, t in out.items():
                stored[f"{name}.{key}"] = (scale if key == "weight_scale" else t).contiguous()
        entry = lambda s, targets: dict(  # noqa: E731
            targets=targets, input_activations=None, output_activations=None, weights=s.weights.model_dump(exclude_none=True, mode="json"))
        def stored_name(n):
            return c.prefix + n[len("model."):] if n.startswith("model.") else c.head + n
        groups = {"group_0": entry(first, ["Linear"])}
        if second:
            groups["group_1"] = entry(second, ["re:.*mlp.down_proj$"])
        ignore = [stored_name(n) for n in ignore]
        if c.chance(0.3):
            ignore = ["lm_head"] + ["re:.*" + e.replace(".", "\\.") for e in self.float_ends] + ([f"re:.*layers\\.{self.float_layer}\\."] if self.float_layer is not None else [])
        return dict(quant_method="compressed-tensors", format=self.format, config_groups=groups, ignore=ignore, quantization_status="compressed")
