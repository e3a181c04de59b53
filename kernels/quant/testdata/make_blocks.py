"""Writes blocks.json: blocks of GGUF types with the values that they stand for.

    pip install gguf==0.19.0 numpy && python make_blocks.py > blocks.json

Blocks are random bytes, so every bit of a layout counts; their fp16 numbers are made finite and small.
"""
import json

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

HALVES = {T.Q2_K: (80, 82), T.Q3_K: (108,), T.IQ4_NL: (0,), T.IQ4_XS: (0,)}  # where fp16 numbers lie

rng = np.random.default_rng(7)
out = {"made_by": "gguf 0.19.0, make_blocks.py: random bytes, values by gguf.quants.dequantize"}
for kind, halves in HALVES.items():
    values, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (max(3, 96 // values), size), dtype=np.uint8)
    for at in halves:
        raw[:, at : at + 2] = rng.normal(0, 0.02, (len(raw), 1)).astype("<f2").view(np.uint8)
    back = gguf.quants.dequantize(raw, kind)
    assert back.dtype == np.float32
    out[kind.name] = {"raw": raw.tobytes().hex(), "values": [float(v) for v in back.ravel()]}
print(json.dumps(out, separators=(",", ":")))
