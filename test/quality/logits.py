"""Loads checkpoints with transformers and compressed-tensors and writes the logits of prompts.

usage: logits.py FOLDER PROMPTS.json OUT.safetensors [FOLDER PROMPTS OUT ...]

PROMPTS is a list of lists of token ids; tensor i of OUT is [tokens, vocabulary], float32. The library makes the weights
of the codes (dequantize), all in float32.
"""
import json
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, CompressedTensorsConfig

args = sys.argv[1:]
for folder, prompts, out in zip(args[0::3], args[1::3], args[2::3]):
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=CompressedTensorsConfig(dequantize=True)
    ).eval()
    with torch.no_grad():
        save_file(
            {str(i): model(torch.tensor([ids])).logits[0].float().contiguous() for i, ids in enumerate(json.load(open(prompts)))}, out
        )
