"""Quantises a checkpoint with llm-compressor, for comparison with `openinfer quantize`.

usage: rival.py IN OUT METHOD GROUP [TEXT TOKENS CONTEXT]

METHOD is rtn (round to nearest) or gptq (activation order "weight", the library's other settings as they are). The
text is cut as openinfer cuts it: windows of CONTEXT tokens, TOKENS at most.
"""
import sys

import torch
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

source, out, method, group = sys.argv[1:5]
weights = dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=int(group))
# float32: many CPUs take 30 times as long for a product of bfloat16
model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(source)
scheme = {"group_0": dict(targets=["Linear"], weights=weights)}
if method == "rtn":
    oneshot(model=model, recipe=QuantizationModifier(config_groups=scheme, ignore=["lm_head"]))
else:
    text, tokens, context = sys.argv[5], int(sys.argv[6]), int(sys.argv[7])
    ids = tokenizer(open(text, encoding="utf-8").read(), add_special_tokens=False)["input_ids"]
    rows = [ids[i : i + context] for i in range(0, tokens, context) if i + context <= len(ids)]
    # A loader: the library would have a dataset hashed and copied first.
    data = DataLoader([{"input_ids": torch.tensor([r]), "attention_mask": torch.ones(1, len(r), dtype=torch.long)} for r in rows], batch_size=None)
    weights["actorder"] = "weight"
    oneshot(
        model=model,
        dataset=data,
        recipe=GPTQModifier(config_groups=scheme, ignore=["lm_head"]),
        max_seq_length=context,
        num_calibration_samples=len(rows),
    )
model.save_pretrained(out, save_compressed=True)
tokenizer.save_pretrained(out)
