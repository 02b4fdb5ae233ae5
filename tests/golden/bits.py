"""Train a small GPT-2 and a small Llama as docs/bits.md defines it, with NumPy, and compare with build/gpt.

    python tests/golden/bits.py [gpt2|llama]

An implementation of that page: it shares no code with the kit. Only the names and shapes of tensors are those of a
checkpoint of no steps. Prints how many weights and moments are the same, before and after the steps; fails where
they are not all.
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

f32, f64 = np.float32, np.float64
C, LAYERS, HEADS, WIDTH, TOKENS, BATCH, STEPS, SEED = 4, 2, 2, 72, 140, 2, 4, 1337
LLAMA, KV_HEADS = False, HEADS  # what main changes for a Llama, whose queries share heads of keys by pairs
RATE, WARM_UP, DECAY_STEPS, CLIP, DECAY, BETA1, BETA2, DROPOUT = 1e-2, 2, 4, 1.0, 0.1, 0.9, 0.99, 0.1


# ---- arithmetic


def fma(a, b, c):  # of f32, rounded once: the sum in f64 is rounded to odd first
    p = a.astype(f64) * b.astype(f64)  # exact
    c = c.astype(f64)
    s = p + c
    t = s - p
    error = (p - (s - t)) + (c - t)
    bits = s.view(np.int64)
    away = np.where((error > 0) == (s > 0), 1, -1)
    return (bits + np.where((error != 0) & (bits & 1 == 0), away, 0)).view(f64).astype(f32)


def chain(a, b, total=None):  # rows of a and columns of b: from left to right by fused multiply-adds
    total = np.zeros((a.shape[0], b.shape[1]), f32) if total is None else total
    for k in range(a.shape[1]):
        total = fma(a[:, k, None], b[None, k, :], total)
    return total


def tree(parts):  # of any number: the left part is the largest power of two below it
    if len(parts) == 1:
        return parts[0]
    half = 1 << ((len(parts) - 1).bit_length() - 1)
    return tree(parts[:half]) + tree(parts[half:])


def product(a, b):
    return tree([chain(a[:, k : k + 256], b[k : k + 256]) for k in range(0, a.shape[1], 256)])


def cuts(n, parts=C):
    return [-(-i * n // parts) for i in range(parts + 1)]


def row_sums(x):
    n = x.shape[1]
    lanes = np.zeros((x.shape[0], 64), f32)
    at = 0
    while at + 64 <= n:
        lanes += x[:, at : at + 64]
        at += 64
    while at < n:
        some = x[:, at : at + 16]
        lanes[:, : some.shape[1]] += some
        at += 16
    d = 32 if n >= 64 else 8
    while d:
        lanes[:, :d] += lanes[:, d : 2 * d]
        d //= 2
    return lanes[:, 0]


def add_rows(x):  # row after row
    total = np.zeros(x.shape[1], f32)
    for row in x:
        total = total + row
    return total


# ---- functions


def exp_between(x):
    shifted = x * f32(1.44269504) + f32(12582912)
    n = shifted - f32(12582912)
    r = (x - n * f32(0.693359375)) + n * f32(2.12194440e-4)
    p = np.full_like(r, f32(1.9875691500e-4))
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = p * r + f32(c)
    p = p * r * r + r + f32(1)
    return p * ((shifted.view(np.uint32) + np.uint32(127)) << np.uint32(23)).view(f32)


def exp_f32(x):
    return exp_between(np.minimum(np.maximum(x, f32(-87)), f32(88)))


def softmax_weight(score, maximum):
    with np.errstate(invalid="ignore"):
        return exp_between(np.fmax(score - maximum, f32(-88)))


def bits_of(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def of_bits(x):
    return struct.unpack("<d", struct.pack("<Q", x & (1 << 64) - 1))[0]


LOG2 = float.fromhex("0x1.62e42fefa3800p-1"), float.fromhex("0x1.ef35793c76730p-45")


def log(x):
    e = ((bits_of(x) - 0x3FE6A09E667F3BCD + (64 << 52)) & (1 << 64) - 1) >> 52
    m, power = of_bits(bits_of(x) - ((e - 64) << 52)), float(e - 64)
    s = (m - 1) / (m + 1)
    z, p = s * s, 2 / 21
    for k in range(19, 1, -2):
        p = p * z + 2 / k
    return power * LOG2[0] + (2 * s + (s * z * p + power * LOG2[1]))


def exp_f64(x):
    x = min(max(x, -708.0), 709.0)
    shifted = x * float.fromhex("0x1.71547652b82fep+0") + 1.5 * 2**52
    n = shifted - 1.5 * 2**52
    r = (x - n * LOG2[0]) - n * LOG2[1]
    p = 1 / math.factorial(13)
    for k in range(12, 1, -1):
        p = p * r + 1 / math.factorial(k)
    return (1 + (r + r * r * p)) * of_bits((bits_of(shifted) + 1023) << 52)


def sin(x):
    return cos(x, 3)


def cos(x, more=0):  # more: quarters of a turn
    shifted = x * float.fromhex("0x1.45f306dc9c883p-1") + 1.5 * 2**52
    k, quarter = shifted - 1.5 * 2**52, bits_of(shifted) + more
    r = x
    for part in ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2e037073p-69"):
        r = r - k * float.fromhex(part)
    z, c, s = r * r, -1 / math.factorial(18), 1 / math.factorial(17)
    for i in range(16, 1, -2):
        c = c * z + (-1) ** (i // 2) / math.factorial(i)
        s = s * z + (-1) ** (i // 2 - 1) / math.factorial(i - 1) if i > 2 else s
    value = r + r * z * s if quarter & 1 else 1 + z * c
    return -value if (quarter + 1) & 2 else value


def philox(seed, stream, index):  # index: an array
    index = np.asarray(index, np.uint64)
    low, word = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = [index & low, index >> word, np.uint64(stream & 0xFFFFFFFF), np.uint64(stream >> 32)]
    c = [np.broadcast_to(i, index.shape) for i in c]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(q >> word) ^ c[1] ^ np.uint64(k[0]), q & low, (p >> word) ^ c[3] ^ np.uint64(k[1]), p & low]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def kept(step, stream, first, shape):  # factors of dropout of elements from `first` on
    index = np.arange(first, first + math.prod(shape), dtype=np.uint64)
    words = np.stack(philox(SEED, (step + 1 << 16) + stream, index // np.uint64(4)))
    words = np.take_along_axis(words, (index % np.uint64(4)).astype(int)[None], 0)
    p = f32(DROPOUT)
    return np.where(words < int(float(p) * 2**32), f32(0), f32(1) / (f32(1) - p)).reshape(shape)


def normal(stream, shape, deviation):
    c = philox(SEED, stream, np.arange(math.prod(shape)))
    each = []
    for a, b in zip(c[0], c[1]):
        size = math.sqrt(-2 * log((float(a) + 0.5) * 2.0**-32))
        each.append(size * cos(6.283185307179586 * (float(b) * 2.0**-32)))
    return (np.array(each).astype(f32) * f32(deviation)).reshape(shape)


def initial(name, shape):
    streams = {"attn.qkv": 5, "attn.proj": 7, "mlp.up": 11, "mlp.down": 13}
    if len(shape) == 1:
        return np.full(shape, 1 if name.endswith("weight") else 0, f32)
    if not name.startswith("layers."):
        stream = {"wte.weight": 1, "wpe.weight": 2, "head.weight": 12 * LAYERS + 5}[name]
        return normal(stream, shape, f32(0.02))
    layer, kind = int(name.split(".")[1]), ".".join(name.split(".")[2:4])
    last = kind in ("attn.proj", "mlp.down")
    return normal(12 * layer + streams[kind], shape, f32(0.02) / np.sqrt(f32(2 * LAYERS)) if last else f32(0.02))


# ---- layers: of a microbatch's rows, one sequence after the other


def norm(x, w, name):
    n = f32(x.shape[1])
    mean = f32(0) if LLAMA else row_sums(x)[:, None] / n
    d = x - mean
    rstd = f32(1) / np.sqrt(row_sums(d * d)[:, None] / n + f32(1e-5))
    y = d * rstd * w[name + ".weight"]
    return y if LLAMA else y + w[name + ".bias"], (mean, rstd)


def norm_backward(dy, x, w, stats, grads, name):
    n = f32(x.shape[1])
    mean, rstd = stats
    h, g = (x - mean) * rstd, dy * w[name + ".weight"]
    for part, terms in ((".weight", dy * (x - mean) * rstd), (".bias", dy))[: 1 if LLAMA else 2]:
        at = cuts(len(x))
        grads[name + part] = f32(0) + tree([add_rows(terms[i:j]) for i, j in zip(at, at[1:])])
    of_mean = f32(0) if LLAMA else row_sums(g)[:, None] / n
    return rstd * (g - of_mean - h * (row_sums(g * h)[:, None] / n))


def by_leaves(a, b, sizes=None):  # a product whose sum tp may split, each of its parts of `sizes`
    leaves, at = [None] * C, 0
    for n in sizes or [a.shape[1]]:
        for leaf, (i, j) in enumerate(zip(cuts(n), cuts(n)[1:])):
            part = product(a[:, at + i : at + j], b[at + i : at + j])
            leaves[leaf] = part if leaves[leaf] is None else part + leaves[leaf]
        at += n
    return tree(leaves)


def linear(x, w, name, of=product):
    y = of(x, w[name + ".weight"].T)
    return y if LLAMA else y + w[name + ".bias"]


def linear_backward(dy, x, grads, name):
    grads[name + ".weight"] = product(dy.T, x) + f32(0)
    if not LLAMA:
        grads[name + ".bias"] = add_rows(dy)


def gate(x):
    u = f32(0.797884561) * (x + f32(0.044715) * x * x * x)
    return f32(1) - f32(1) / (exp_f32(f32(2) * u) + f32(1))


def gelu_backward(dy, x):
    s, du = gate(x), f32(0.797884561) * (f32(1) + f32(0.134145) * x * x)
    return dy * (s + x * f32(2) * s * (f32(1) - s) * du)


def activation(x):
    if not LLAMA:
        return x * gate(x)
    gates, up = np.split(x, 2, axis=1)
    return gates / (f32(1) + exp_f32(-gates)) * up


def activation_backward(dy, x):
    if not LLAMA:
        return gelu_backward(dy, x)
    gates, up = np.split(x, 2, axis=1)
    s = f32(1) / (f32(1) + exp_f32(-gates))
    y = gates * s
    return np.concatenate([dy * up * (s + y * (f32(1) - s)), dy * y], axis=1)


def rotate(x, sign):  # RoPE of queries and keys, in place; sign -1: backward
    d = WIDTH // HEADS
    angles = [[exp_f64(-2 * i / d * log(10000.0)) * t for i in range(d // 2)] for t in range(TOKENS)]
    c = np.tile(np.array([[cos(a) for a in row] for row in angles]).astype(f32), (BATCH, 1))
    s = f32(sign) * np.tile(np.array([[sin(a) for a in row] for row in angles]).astype(f32), (BATCH, 1))
    for at in range(0, (HEADS + KV_HEADS) * d if LLAMA else 0, d):
        u, v = x[:, at : at + d // 2].copy(), x[:, at + d // 2 : at + d].copy()
        x[:, at : at + d // 2] = u * c - v * s
        x[:, at + d // 2 : at + d] = v * c + u * s


def attention_scores(q, k, scale):
    s = chain(q * scale, k.T.copy())
    s[np.triu(np.ones(s.shape, bool), 1)] = -np.inf
    return s


def attention(q, k, v, mask):
    scale = f32(1) / np.sqrt(f32(q.shape[1]))
    scores = attention_scores(q, k, scale)
    maximum, total = np.full(len(q), -np.inf, f32), np.zeros(len(q), f32)
    out = np.zeros(q.shape, f32)
    for at in range(0, len(k), 128):
        s = scores[:, at : at + 128]
        new = np.maximum(maximum, s.max(axis=1))
        rescale = softmax_weight(maximum, new)
        p = softmax_weight(s, new[:, None])
        pairs = np.zeros(len(q), f32)
        for i in range(0, p.shape[1], 2):
            pairs = pairs + (p[:, i] + (p[:, i + 1] if i + 1 < p.shape[1] else f32(0)))
        total, maximum = total * rescale + pairs, new
        out = out * rescale[:, None] + chain(p * mask[:, at : at + 128], v[at : at + 128])
    lse = maximum + np.array([log(float(t)) for t in total]).astype(f32)
    return out * (f32(1) / total)[:, None], lse


def attention_backward(dy, y, lse, q, k, v, mask, dk, dv):  # adds to dk and dv
    scale = f32(1) / np.sqrt(f32(q.shape[1]))
    terms = np.zeros((len(q), 16), f32)
    for at in range(0, q.shape[1], 16):
        part = y[:, at : at + 16] * dy[:, at : at + 16]
        terms[:, : part.shape[1]] += part
    dot = row_sums(terms)[:, None]
    p = softmax_weight(attention_scores(q, k, scale), lse[:, None])
    ds = p * (chain(dy, v.T.copy()) * mask - dot) * scale
    p, ds = np.tril(p * mask), np.tril(ds)
    dq = np.zeros(q.shape, f32)
    for at in range(0, len(k), 128):
        block = slice(at, at + 128)
        dq = dq + chain(ds[:, block], k[block])
        dk += chain(ds[block].T.copy(), q[block])
        dv += chain(p[block].T.copy(), dy[block])
    return dq


def heads_of(step, first, stream):  # rows, columns of q, k and v, factors of dropout of each sequence and head
    d = WIDTH // HEADS
    for s in range(BATCH):
        for h in range(HEADS):
            kv = HEADS + h * KV_HEADS // HEADS
            columns = [slice(i * d, (i + 1) * d) for i in (h, kv, kv + KV_HEADS)]
            mask = kept(step, stream, ((first + s) * HEADS + h) * TOKENS**2, (TOKENS, TOKENS))
            yield slice(s * TOKENS, (s + 1) * TOKENS), columns, mask


def loss_backward(logits, targets, scale):
    rows, v = logits.shape
    at = cuts(v)
    blocks = [logits[:, i:j] for i, j in zip(at, at[1:])]
    maxima = [b.max(axis=1) for b in blocks]
    sums = [row_sums(exp_f32(b - m[:, None])) for b, m in zip(blocks, maxima)]
    lse = np.zeros((rows, 1), f32)
    for r in range(rows):
        top, total = float(max(m[r] for m in maxima)), 0.0
        for m, s in zip(maxima, sums):
            total += float(s[r]) * exp_f64(float(m[r]) - top)
        lse[r] = f32(top + log(total))
    g = scale * exp_f32(logits - lse)
    g[np.arange(rows), targets] -= scale
    return g


# ---- the model, and its training


def forward_backward(w, x, y, step, first):  # of a microbatch: gradients by use
    grads, saved = {}, []
    masks = {i: kept(step, i, first * TOKENS * WIDTH, (len(x), WIDTH)) for i in range(4 * LAYERS + 4)}
    t = w["wte.weight"][x]
    if not LLAMA:
        t = t + w["wpe.weight"][np.tile(np.arange(TOKENS), BATCH)]
    t = t * masks[0]
    for i in range(LAYERS):
        p = f"layers.{i}."
        n1, stats1 = norm(t, w, p + "ln1")
        qkv = linear(n1, w, p + "attn.qkv")
        rotate(qkv, 1)
        att, lse = np.zeros_like(t), []
        for rows, (q, k, v), mask in heads_of(step, first, 4 * i + 4):
            att[rows, q], one = attention(qkv[rows, q], qkv[rows, k], qkv[rows, v], mask)
            lse.append(one)
        mid = linear(att, w, p + "attn.proj", by_leaves) * masks[4 * i + 5] + t
        n2, stats2 = norm(mid, w, p + "ln2")
        up = linear(n2, w, p + "mlp.up")
        act = activation(up)
        saved.append((t, n1, stats1, qkv, att, lse, mid, n2, stats2, up, act))
        t = linear(act, w, p + "mlp.down", by_leaves) * masks[4 * i + 6] + mid
    last, stats = norm(t, w, "lnf")
    head = w["head.weight" if LLAMA else "wte.weight"]
    g = loss_backward(product(last, head.T), y, f32(1 / (C * BATCH * TOKENS)))
    grads["head.weight"] = product(g.T, last) + f32(0)
    d = norm_backward(by_leaves(g, head), t, w, stats, grads, "lnf")
    for i in reversed(range(LAYERS)):
        d = layer_backward(w, f"layers.{i}.", d, saved[i], (masks[4 * i + 5], masks[4 * i + 6]), grads,
                           lambda: heads_of(step, first, 4 * i + 4))
    d = d * masks[0]
    names = ("wte.weight",) if LLAMA else ("wte.weight", "wpe.weight")
    for name in names:
        grads[name] = np.zeros_like(w[name])
    for r in range(len(x)):
        for name, row in zip(names, (x[r], r % TOKENS)):
            grads[name][row] += d[r]
    return grads


def layer_backward(w, p, d, saved, masks, grads, heads):
    t, n1, stats1, qkv, att, lse, mid, n2, stats2, up, act = saved
    dropped = d * masks[1]
    linear_backward(dropped, act, grads, p + "mlp.down")
    dup = activation_backward(product(dropped, w[p + "mlp.down.weight"]), up)
    linear_backward(dup, n2, grads, p + "mlp.up")
    halves = [up.shape[1] // 2] * 2 if LLAMA else None
    dn = by_leaves(dup, w[p + "mlp.up.weight"], halves)
    d = norm_backward(dn, mid, w, stats2, grads, p + "ln2") + d
    dropped = d * masks[0]
    linear_backward(dropped, att, grads, p + "attn.proj")
    datt, dqkv = product(dropped, w[p + "attn.proj.weight"]), np.zeros_like(qkv)
    for (rows, (q, k, v), mask), one in zip(heads(), lse):
        dqkv[rows, q] = attention_backward(datt[rows, q], att[rows, q], one, qkv[rows, q], qkv[rows, k], qkv[rows, v],
                                           mask, dqkv[rows, k], dqkv[rows, v])
    rotate(dqkv, -1)
    linear_backward(dqkv, n1, grads, p + "attn.qkv")
    keys = KV_HEADS * (WIDTH // HEADS)
    dn = by_leaves(dqkv, w[p + "attn.qkv.weight"], [WIDTH, keys, keys])
    return norm_backward(dn, t, w, stats1, grads, p + "ln1") + d


def square_root(x):
    x = np.maximum(x, f32(1e-30))
    r = (np.uint32(0x5F375A86) - (x.view(np.uint32) >> np.uint32(1))).view(f32)
    for _ in range(2):
        r = r * (f32(1.5) - f32(0.5) * x * r * r)
    s = x * r
    return s + f32(0.5) * r * (x - s * s)


def rate_of(step):  # from 0
    if step < WARM_UP:
        return f32((step + 1) / (WARM_UP + 1))
    low = float(f32((RATE / 10) / RATE))
    if step >= DECAY_STEPS:
        return f32(low)
    left = 0.5 * (1 + cos(3.141592653589793 * ((step - WARM_UP) / (DECAY_STEPS - WARM_UP))))
    return f32(low + (1 - low) * left)


def update(w, moments, grads, step):
    squares = sum(int(math.ldexp(float(x), 149)) ** 2 for g in grads.values() for x in g.ravel())
    norm = math.sqrt(math.ldexp(float(squares), -298))
    scale = f32(CLIP / norm if norm > CLIP else 1)
    rate = f32(RATE) * rate_of(step)
    b1, b2 = f32(BETA1), f32(BETA2)
    corrections = []
    for b in (b1, b2):
        power, square, n = 1.0, float(b), step + 1
        while n:
            power, square, n = power * square if n & 1 else power, square * square, n >> 1
        corrections.append(f32(1 / (1 - power)))
    for name, g in grads.items():
        m, v = moments[name]
        x = g * scale
        m[:] = b1 * m + (f32(1) - b1) * x
        v[:] = b2 * v + (f32(1) - b2) * x * x
        direction = m * corrections[0] / (square_root(v * corrections[1]) + f32(1e-8))
        decay = f32(DECAY) if w[name].ndim > 1 else f32(0)
        w[name] = w[name] * (f32(1) - rate * decay) - rate * direction


def sequences(data, step):  # inputs and targets of each of the step's sequences
    for i in range(C * BATCH):
        c = philox(SEED ^ 0x5EED, step << 1, [i])
        at = (int(c[1][0]) << 32 | int(c[0][0])) % (len(data) - TOKENS)
        yield data[at : at + TOKENS], data[at + 1 : at + TOKENS + 1]


def train_step(w, moments, data, step):
    s = list(sequences(data, step))
    each = []
    for j in range(C):
        part = s[j * BATCH : (j + 1) * BATCH]
        x, y = np.concatenate([x for x, _ in part]), np.concatenate([y for _, y in part])
        each.append(forward_backward(w, x, y, step, j * BATCH))
    grads = {name: tree([g[name] for g in each]) for name in each[0]}
    if not LLAMA:
        grads["wte.weight"] = grads["wte.weight"] + grads.pop("head.weight")
    update(w, moments, grads, step)


def read(directory, kind):
    tensors = {}
    for file in sorted(os.listdir(directory)):
        if file.startswith(kind) and file.endswith(".safetensors"):
            with open(os.path.join(directory, file), "rb") as f:
                header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
                raw = f.read()
            for name, t in header.items():
                if name != "__metadata__":
                    tensors[name] = np.frombuffer(raw[slice(*t["data_offsets"])], f32).reshape(t["shape"])
    return tensors


def count(mine, its, where):  # how many are the same, of how many
    equal = int((mine.view(np.uint32) == its.view(np.uint32)).sum())
    if equal < mine.size:
        print(where, equal, "of", mine.size, "are the same", file=sys.stderr)
    return np.array([equal, mine.size])


def compare(model):
    with tempfile.TemporaryDirectory() as work:
        text = os.path.join(work, "text")
        with open(text, "w") as f:
            f.writelines(f"{i * i} is the square of {i}, {i ** 3} its cube\n" for i in range(200))
        options = {"data": text, "val_data": text, "canonical": C, "gradient_accumulation_steps": C, "batch_size": BATCH,
                   "block_size": TOKENS, "n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH, "learning_rate": RATE,
                   "warmup_iters": WARM_UP, "lr_decay_iters": DECAY_STEPS, "eval_iters": 0, "sample": 0, "seed": SEED,
                   "dropout": DROPOUT, "grad_clip": CLIP, "weight_decay": DECAY, "beta1": BETA1, "beta2": BETA2,
                   "arch": model, "n_kv_head": KV_HEADS if LLAMA else 0}
        gpt = ["build/gpt"] + [f"--{name}={value}" for name, value in options.items()]
        for steps in (0, STEPS):
            subprocess.run(gpt + [f"--max_iters={steps}", f"--save={work}/{steps}"], check=True, stdout=subprocess.DEVNULL)
        data = np.frombuffer(open(text, "rb").read(), np.uint8).astype(int)
        begin = read(f"{work}/0", "model")
        there, states = read(f"{work}/{STEPS}", "model"), read(f"{work}/{STEPS}", "optimizer")
    w = {name: initial(name, t.shape) for name, t in begin.items()}
    first = sum(count(w[name], t, "at first " + name) for name, t in begin.items())
    moments = {name: [np.zeros_like(t), np.zeros_like(t)] for name, t in w.items()}
    for step in range(STEPS):
        train_step(w, moments, data, step)
        print("step", step + 1, file=sys.stderr)
    last = np.zeros(2, int)
    for name, t in w.items():
        for mine, its in ((t, there[name]), (moments[name][0], states[name + ".exp_avg"]),
                          (moments[name][1], states[name + ".exp_avg_sq"])):
            last += count(mine, its, name)
    print(f"{model}, {STEPS} steps by docs/bits.md: {first[0]} of {first[1]} first weights, then {last[0]} of {last[1]} "
          "weights and moments are the same to the bit")
    return first[0] != first[1] or last[0] != last[1]


def main():
    global LLAMA, HEADS, KV_HEADS
    wrong = 0
    for model in sys.argv[1:] or ("gpt2", "llama"):
        LLAMA = model == "llama"
        HEADS, KV_HEADS = (4, 2) if LLAMA else (2, 2)
        wrong += int(compare(model))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
