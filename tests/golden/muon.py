"""Make tests/golden/muon.safetensors, which tests/test_golden.c compares with, with NumPy and ml_dtypes.

    python tests/golden/muon.py

Of each gradient G: the direction of Muon's first step, by five Newton-Schulz steps in f64 ("exact"), and with each operation
rounded to bf16 and products summed in f32, as a framework computes Jordan's formulas (2024) in bf16 ("bf16").
"""
import ml_dtypes
import numpy as np

from golden_file import write

A, B, C = 3.4445, -4.7750, 2.0315


def exact(g):
    x = g.astype(np.float64)
    x = x if g.shape[0] <= g.shape[1] else x.T
    x = x / np.linalg.norm(x)
    for _ in range(5):
        s = x @ x.T
        x = A * x + (B * s + C * s @ s) @ x
    return x if g.shape[0] <= g.shape[1] else x.T


def rounded(x):  # to bf16, kept in f32
    return np.asarray(x, np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)


def product(a, b):
    return rounded(a @ b)


def in_bf16(g):
    x = rounded(g)
    x = x if g.shape[0] <= g.shape[1] else x.T
    x = rounded(x / rounded(np.linalg.norm(x)))
    for _ in range(5):
        s = product(x, x.T)
        t = rounded(rounded(B * s) + rounded(C * product(s, s)))
        x = rounded(rounded(A * x) + product(t, x))
    return x if g.shape[0] <= g.shape[1] else x.T


def main():
    random = np.random.default_rng(1)
    tensors = {}
    for name, rows, cols in (("wide", 16, 40), ("tall", 40, 16), ("square", 24, 24)):
        # singular values from 1 to 0.01
        u, _ = np.linalg.qr(random.standard_normal((rows, rows)))
        v, _ = np.linalg.qr(random.standard_normal((cols, cols)))
        k = min(rows, cols)
        g = (u[:, :k] * np.logspace(0, -2, k) @ v[:k]).astype(np.float32)
        scale = max(1, rows / cols) ** 0.5
        tensors[name + ".g"] = g
        tensors[name + ".exact"] = (exact(g) * scale).astype(np.float32)
        tensors[name + ".bf16"] = (in_bf16(g) * np.float32(scale)).astype(np.float32)

    write("muon.safetensors", {name: ("F32", list(t.shape), t.tobytes()) for name, t in tensors.items()})
    for name in ("wide", "tall", "square"):
        e = tensors[name + ".exact"]
        print(name, "bf16 from exact:", np.linalg.norm(tensors[name + ".bf16"] - e) / np.linalg.norm(e))


if __name__ == "__main__":
    main()
