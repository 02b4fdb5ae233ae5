"""Compare build/gpt --load with transformers on the config.json of model families.

    make build/gpt && python tests/golden/families.py      rewrites the second column of tests/golden/families.txt

Each line of families.txt is a family, what is expected, and its published config.json with small sizes. Transformers makes the
model, whose weights are numbers that tests/test_golden.c computes, too, and saves it. build/gpt reads it with the config.json
of the line, and with what transformers makes of that. It must generate transformers' tokens, or end with an error that names a
key. Two that transformers' table of models lacks are read by build/gpt alone. The tests need no Python.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
GPT = os.path.join(HERE, "..", "..", "build", "gpt")
PROMPT, COUNT = list(range(1, 13)), 12


def number(name, count):  # as in test_golden.c: from -0.5 to 0.5, by the tensor's name and the element's number
    h = 2166136261
    for byte in name.encode():
        h = (h ^ byte) * 16777619 & 0xFFFFFFFF
    x = (np.arange(count, dtype=np.uint64) + h).astype(np.uint32)
    x = (x ^ x >> np.uint32(16)) * np.uint32(0x7FEB352D)
    x = (x ^ x >> np.uint32(15)) * np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return (x >> np.uint32(8)).astype(np.float32) / np.float32(1 << 24) - np.float32(0.5)


def fill(model):
    for name, p in model.named_parameters():  # a tied head is not among them
        v = number(name, p.numel()).reshape(tuple(p.shape))
        p.copy_(torch.from_numpy(v + 1 if p.dim() == 1 and name.endswith("weight") else v))


def greedy(model):  # tokens, and the smallest lead of a most likely one
    ids, lead = list(PROMPT), 1e9
    for _ in range(COUNT):
        best = model(torch.tensor([ids])).logits[0, -1].topk(2).values
        lead = min(lead, (best[0] - best[1]).item())
        ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
    return ids[len(PROMPT):], lead


def transformers_tokens(directory):  # None: transformers has no such model
    try:
        read = AutoConfig.from_pretrained(directory, trust_remote_code=False)
        model = AutoModelForCausalLM.from_config(read, attn_implementation="eager").float().eval()
    except Exception as e:
        print("    transformers:", str(e).splitlines()[0][:100])
        return None, 1
    fill(model)
    state = {k: v.contiguous() for k, v in model.state_dict().items()}
    if model.config.get_text_config().tie_word_embeddings:
        state.pop("lm_head.weight", None)
    save_file(state, os.path.join(directory, "model.safetensors"))
    model.config.save_pretrained(os.path.join(directory, "again"))
    os.link(os.path.join(directory, "model.safetensors"), os.path.join(directory, "again", "model.safetensors"))
    return greedy(model)


def ours(directory):  # "tokens ..." or "refuses KEY"
    r = subprocess.run([GPT, "--load", directory, "--generate", " ".join(map(str, PROMPT)), "--sample", str(COUNT), "--temperature",
                        "0", "--json"], capture_output=True, text=True)
    if r.returncode == 0:
        return "tokens " + " ".join(map(str, json.loads(r.stdout.splitlines()[0])["tokens"]))
    key = re.search(r'config\.json: "(\w+)" is', r.stderr)
    print("   ", r.stderr.strip().replace(directory, "")[:150])
    return "refuses " + (key.group(1) if key else "?")


@torch.no_grad()
def main():
    path, bad, out = os.path.join(HERE, "families.txt"), 0, []
    with open(path) as f:
        lines = f.read().splitlines()
    for line in lines:
        if line.startswith("#"):
            out.append(line)
            continue
        family, _, text = line.split("\t")
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "config.json"), "w") as f:
                f.write(text)
            wanted, lead = transformers_tokens(directory)
            got = ours(directory)
            again = ours(os.path.join(directory, "again")) if wanted else got
        wrong = "?" in got or "?" in again or got.split()[0] != again.split()[0] or lead < 1e-3
        if got.startswith("tokens"):
            wrong |= wanted is None or got != again or got.split()[1:] != list(map(str, wanted))
        print("WRONG" if wrong else "ok", family, got, "lead %g" % lead, again if got != again else "")
        bad += wrong
        out.append("\t".join((family, got, text)))
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n")
    print(len(lines), "families,", bad, "wrong")
    return bad


if __name__ == "__main__":
    sys.exit(main() > 0)
