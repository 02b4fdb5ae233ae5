"""Train models of Hugging Face's with other vocabularies, and compare with transformers.

    make build/gpt && python tests/golden/vocabularies.py      writes tests/golden/vocabularies.txt

Random GPT-2s and Llamas of 300, 32000, 50257 and 151936 tokens are saved by transformers, trained by build/gpt from
--load on one rank and on two (--tp 2), from tokens in four formats, and exported. Each step's loss and the held-out loss are
compared with those that torch reaches on the same sequences, which are drawn as data.h draws them; then transformers opens
the export. The tests need no Python; what this said last is in vocabularies.txt.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
GPT = os.path.join(HERE, "..", "..", "build", "gpt")
BATCH, TOKENS, STEPS, COUNT, SEED, RATE = 4, 32, 6, 20000, 1337, 1e-3
TOLERANCE = 1e-5


def gpt2(vocabulary):
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=32, n_positions=TOKENS, vocab_size=vocabulary,
                                      resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0,
                                      attn_implementation="eager"))


def llama(vocabulary, tied):
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=32,
                                        intermediate_size=96, max_position_embeddings=TOKENS, vocab_size=vocabulary,
                                        tie_word_embeddings=tied, attn_implementation="eager"))


def write_npy(path, tokens):
    np.save(path, tokens.astype(np.uint16))
    return path + ".npy"


def write_bin(path, tokens):
    tokens.astype(np.uint16).tofile(path + ".bin")
    return path + ".bin"


def write_megatron(path, tokens, dtype, code):
    tokens.astype(dtype).tofile(path + ".bin")
    lengths = np.array([COUNT // 3, COUNT - COUNT // 3])
    offsets = np.array([0, lengths[0]]) * np.dtype(dtype).itemsize
    with open(path + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, 2, 3) + lengths.astype(np.int32).tobytes() +
                offsets.astype(np.int64).tobytes() + np.arange(3).astype(np.int64).tobytes())
    return path


CASES = [
    ("gpt2", 300, gpt2, write_npy),
    ("llama", 32000, lambda v: llama(v, False), write_bin),
    ("gpt2", 50257, gpt2, lambda p, t: write_megatron(p, t, np.uint16, 8)),
    ("llama, tied", 151936, lambda v: llama(v, True), lambda p, t: write_megatron(p, t, np.int32, 4)),
]


def philox(seed, stream, index):  # par_random
    mask = 0xFFFFFFFF
    c = [index & mask, index >> 32, stream & mask, stream >> 32]
    k = [seed & mask, seed >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & mask, (p >> 32) ^ c[3] ^ k[1], p & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c[1] << 32 | c[0]


def batch(tokens, held_out, step):
    first = COUNT // 10 * 9
    part = tokens[first:] if held_out else tokens[:first]
    rows = []
    for i in range(BATCH):
        at = philox(SEED ^ 0x5EED, step << 1 | held_out, i) % (len(part) - TOKENS)
        rows.append(part[at:at + TOKENS + 1])
    return torch.tensor(np.stack(rows), dtype=torch.int64)


def loss_of(model, rows):
    logits = model(input_ids=rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1))


def train(model, tokens):
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.99), eps=1e-8)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, batch(tokens, 0, step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        losses.append(loss_of(model, batch(tokens, 1, 0)).item())
    return losses


def run(directory, data, export, *more):
    command = [GPT, "--load", directory, "--data", data, "--export", export, "--max_iters", STEPS, "--batch_size", BATCH,
               "--gradient_accumulation_steps", 1, "--block_size", TOKENS, "--learning_rate", RATE, "--decay_lr=False",
               "--warmup_iters", 0, "--eval_interval", 0, "--eval_iters", 1, "--sample", 0, "--json", *more]
    out = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[-1]["ranks"] == (2 if more else 1)
    return [line["loss"] for line in lines if "lr" in line] + [lines[-1]["val_loss"]]


def apart(ours, theirs):
    assert len(ours) == len(theirs)
    return max(abs(a - b) / b for a, b in zip(ours, theirs))


def main():
    text = f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}; {STEPS} steps, largest " \
           "relative difference of a loss:\n"
    worst = 0
    torch.manual_seed(1)
    for name, vocabulary, make, write in CASES:
        with tempfile.TemporaryDirectory() as work:
            model = make(vocabulary)
            for p in model.parameters():  # livelier than a real start
                with torch.no_grad():
                    p.add_(torch.randn_like(p) * 0.05)
            model.save_pretrained(os.path.join(work, "model"))
            tokens = np.random.default_rng(vocabulary).integers(0, vocabulary, COUNT)
            tokens[7] = vocabulary - 1
            data = write(os.path.join(work, "tokens"), tokens)
            theirs = train(model, tokens)
            found = []
            for more in ((), ("--ranks", 2, "--tp", 2)):
                export = os.path.join(work, "export%d" % len(more))
                found.append(apart(run(os.path.join(work, "model"), data, export, *more), theirs))
                back = AutoModelForCausalLM.from_pretrained(export, dtype=torch.float32, attn_implementation="eager")
                assert type(back) is type(model) and back.config.vocab_size == vocabulary
                with torch.no_grad():
                    found.append(apart([loss_of(back, batch(tokens, 1, 0)).item()], theirs[-1:]))
            worst = max(worst, *found)
            text += "%-11s of %6d tokens, loss %.4f -> %.4f: %.1e, its export %.1e; on 2 ranks %.1e, %.1e\n" % (
                name, vocabulary, theirs[0], theirs[STEPS - 1], *found)
    print(text, end="")
    if worst > TOLERANCE:
        return "more than %g" % TOLERANCE
    with open(os.path.join(HERE, "vocabularies.txt"), "w") as f:
        f.write(text)


if __name__ == "__main__":
    sys.exit(main())
