"""Open a checkpoint of par_zero.h with Hugging Face's own safetensors, and compare it with an export of the same model.

    build/gpt --data build/corpus.txt --max_iters 5 --ranks 2 --zero 3 --save CHECKPOINT --export EXPORT
    python tests/golden/open_checkpoint.py CHECKPOINT EXPORT      writes tests/golden/opened.txt

The tests need no Python; what this said last is in opened.txt.
"""
import glob
import json
import os
import sys

import safetensors
import torch
from safetensors import safe_open
from safetensors.torch import load_file

checkpoint, export = sys.argv[1:3]
with open(os.path.join(checkpoint, "manifest.json")) as f:
    manifest = json.load(f)
with open(os.path.join(checkpoint, "model.safetensors.index.json")) as f:
    index = json.load(f)
tensors = {}
for file in manifest["files"]:
    path = os.path.join(checkpoint, file["name"])
    assert os.path.getsize(path) == file["bytes"], path
    with safe_open(path, framework="pt") as f:
        for name in f.keys():
            assert name not in tensors, name
            tensors[name] = f.get_tensor(name)
            assert torch.isfinite(tensors[name].float()).all(), name
assert list(tensors) and set(tensors) == {t["name"] for t in manifest["tensors"]}
weights = set(index["weight_map"])
assert all(set(load_file(os.path.join(checkpoint, file))) <= weights for file in set(index["weight_map"].values()))
assert sum(tensors[n].numel() * tensors[n].element_size() for n in weights) == index["metadata"]["total_size"]
states = [n for n in tensors if n not in weights]
for n in states:
    assert tensors[n].shape == tensors[n.rsplit(".", 1)[0]].shape, n
exported = {}
for path in glob.glob(os.path.join(export, "*.safetensors")):
    exported.update(load_file(path))
pairs = {"wte.weight": "transformer.wte.weight", "lnf.weight": "transformer.ln_f.weight",
         "layers.0.attn.qkv.bias": "transformer.h.0.attn.c_attn.bias"}
for ours, theirs in pairs.items():
    assert torch.equal(tensors[ours], exported[theirs]), ours
turned = tensors["layers.0.mlp.up.weight"].T
assert torch.equal(turned, exported["transformer.h.0.mlp.c_fc.weight"])
text = (f"safetensors {safetensors.__version__}, torch {torch.__version__.split('+')[0]}: {len(manifest['files'])} files, "
        f"{len(weights)} weights, {len(states)} states opened; shapes, sizes and index agree; "
        f"{len(pairs) + 1} tensors equal to the bit to the export's\n")
print(text, end="")
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "opened.txt"), "w") as f:
    f.write(text)
