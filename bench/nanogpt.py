"""Train a GPT-2 of 10 M parameters by this kit and by nanoGPT's model on PyTorch, on the same text: same first weights,
batches, learning rates and held-out batches, as nanoGPT's config/train_shakespeare_char.py has them. Dropout alone draws
other numbers.

    git clone https://github.com/karpathy/nanoGPT
    python bench/nanogpt.py nanoGPT TEXT --gpt build/gpt_cuda > bench/results/nanogpt.jsonl && make plots

TEXT: any text, a byte a token; its last tenth is held out. nanoGPT's is tinyshakespeare. Prints a JSON object a line:
each side's held-out loss at every 250th step, its loss and its speed at every 50th, and a sample. Needs torch and NumPy. --gpt
build/gpt trains on the processor; --steps 20 --layers 2 --width 64 --dropout 0 rehearses.
"""
import argparse
import contextlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests", "golden"))
from bits import philox

NAMES = {"attn.qkv": "attn.c_attn", "attn.proj": "attn.c_proj", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj",
         "ln1": "ln_1", "ln2": "ln_2"}  # the kit's layers, and nanoGPT's


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("nanogpt")
    p.add_argument("text")
    p.add_argument("--gpt", default="build/gpt")
    for name, value in (("steps", 5000), ("layers", 6), ("width", 384), ("batch", 64), ("tokens", 256),
                        ("interval", 250), ("evaluations", 20), ("seed", 1337)):
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--dropout", type=float, default=0.2)
    p.add_argument("--dtype", default="bf16", choices=("f32", "bf16"))
    p.add_argument("--only", choices=("par", "nanogpt"))
    return p.parse_args()


def kit(o, *more):  # the rows that it prints
    given = {"data": o.text, "max_iters": o.steps, "n_layer": o.layers, "n_head": o.width // 64 or 1, "n_embd": o.width,
             "block_size": o.tokens, "batch_size": o.batch, "gradient_accumulation_steps": 1, "dropout": o.dropout,
             "learning_rate": 1e-3, "min_lr": 1e-4, "warmup_iters": 100, "lr_decay_iters": 5000, "beta1": 0.9,
             "beta2": 0.99, "weight_decay": 0.1, "grad_clip": 1, "eval_interval": o.interval, "eval_iters": o.evaluations,
             "prompt": "ROMEO:", "sample": 400, "dtype": o.dtype, "seed": o.seed}
    command = [o.gpt, "--no-bias", "--json"] + [f"--{name}={value}" for name, value in given.items()] + list(more)
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def first_weights(o):
    with tempfile.TemporaryDirectory() as work:
        kit(o, "--max_iters=0", "--eval_iters=0", "--sample=0", f"--save={work}/first")
        file = next(f for f in os.listdir(f"{work}/first") if f.startswith("model-"))
        with open(f"{work}/first/{file}", "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            raw = f.read()
    for name, t in header.items():
        if name != "__metadata__":
            yield name, np.frombuffer(raw[slice(*t["data_offsets"])], np.float32).reshape(t["shape"]).copy()


def nanogpt_name(name):
    if not name.startswith("layers."):
        return {"wte.weight": "transformer.wte.weight", "wpe.weight": "transformer.wpe.weight",
                "lnf.weight": "transformer.ln_f.weight"}[name]
    _, layer, rest = name.split(".", 2)
    return f"transformer.h.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def batch(o, data, held_out, step, first, device):  # docs/bits.md: where the sequences of a step begin
    c = philox(o.seed ^ 0x5EED, step << 1 | held_out, np.arange(first, first + o.batch))
    at = (c[1].astype(np.uint64) << np.uint64(32) | c[0].astype(np.uint64)) % np.uint64(len(data) - o.tokens)
    rows = np.stack([data[int(i) : int(i) + o.tokens + 1] for i in at]).astype(np.int64)
    rows = torch.from_numpy(rows).to(device)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def rate(step, first=1e-3, last=1e-4, warm_up=100, steps=5000):
    if step < warm_up:
        return first * (step + 1) / (warm_up + 1)
    part = min(1, (step - warm_up) / (steps - warm_up))
    return last + 0.5 * (1 + np.cos(np.pi * part)) * (first - last)


def torch_side(o):  # the same rows
    sys.path.insert(0, o.nanogpt)
    from model import GPT, GPTConfig

    device = "cuda" if torch.cuda.is_available() and "cuda" in o.gpt else "cpu"
    torch.manual_seed(o.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    with contextlib.redirect_stdout(sys.stderr):  # nanoGPT says what it makes; stdout has rows alone
        model = GPT(GPTConfig(block_size=o.tokens, vocab_size=256, n_layer=o.layers, n_head=o.width // 64 or 1,
                              n_embd=o.width, dropout=o.dropout, bias=False)).to(device)
        optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), device)
    there = dict(model.named_parameters())
    for name, value in first_weights(o):
        there.pop(nanogpt_name(name)).data.copy_(torch.from_numpy(value))
    assert not there, there.keys()
    text = np.frombuffer(open(o.text, "rb").read(), np.uint8)
    kept = len(text) // 10 * 9
    fast = torch.compile(model) if device == "cuda" else model
    cast = torch.autocast(device, torch.bfloat16, enabled=o.dtype == "bf16")

    def evaluate():
        model.eval()
        with torch.no_grad(), cast:
            losses = [fast(*batch(o, text[kept:], 1, 0, e * o.batch, device))[1].item() for e in range(o.evaluations)]
        model.train()
        return float(np.mean(losses))

    began = time.perf_counter()
    for step in range(o.steps):
        if step and step % o.interval == 0:
            yield {"step": step, "val_loss": evaluate()}
            began = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        with cast:
            loss = fast(*batch(o, text[:kept], 0, step, 0, device))[1]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 49:
            said = loss.item()
            yield {"step": step, "loss": said, "tokens_per_s": 50 * o.batch * o.tokens / (time.perf_counter() - began)}
            began = time.perf_counter()
    yield {"final": True, "step": o.steps, "val_loss": evaluate()}


def main():
    o = arguments()
    where = torch.cuda.get_device_name() if "cuda" in o.gpt else "a processor"
    row = lambda r: print(json.dumps(r, separators=(",", ":")), flush=True)
    row({"gpu": where, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"),
         **{k: v for k, v in vars(o).items() if k not in ("nanogpt", "gpt", "text", "only")}})
    sides = {"par": lambda: kit(o), "nanogpt": lambda: torch_side(o)}
    for side in [o.only] if o.only else sides:
        for r in sides[side]():
            if "val_loss" in r or "text" in r or r["step"] % 50 == 49:
                keep = {k: r[k] for k in ("step", "loss", "val_loss", "tokens_per_s", "text", "final") if k in r}
                row({"bench": "nanogpt", "side": side, **keep})


if __name__ == "__main__":
    main()
