"""Make tests/golden/low_precision.safetensors, which tests/test_golden.c compares with, with PyTorch alone.

    python tests/golden/low_precision.py

Casts are torch's (its casts do not saturate, so that numbers are clamped first), products torch._scaled_mm's on the CPU,
and scales follow the formulas of the recipes' publications and of Transformer Engine, written here in f32 of torch. The
order of 8-bit scales is made by views and permutations, as torchao's to_blocked makes it.
"""
import torch

from golden_file import write

MAX = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}
LARGEST = torch.finfo(torch.float32).max
tensors = {}


def save(name, tensor):
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.uint8: "U8"}
    tensors[name] = (names[tensor.dtype], list(tensor.shape), tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())


def cast(x, code):  # f32 to the bytes of codes
    return x.clamp(-MAX[code], MAX[code]).to(code).view(torch.uint8)


def blocks(x, rows, cols):  # of each block the largest absolute value, and a function that spreads one number to each element
    r, k = x.shape
    rows, cols = rows or r, cols or k
    br, bk = -(-r // rows), -(-k // cols)
    padded = torch.zeros(br * rows, bk * cols)
    padded[:r, :k] = x.abs()
    amax = padded.view(br, rows, bk, cols).amax(dim=(1, 3))
    return amax, lambda s: s.repeat_interleave(rows, 0).repeat_interleave(cols, 1)[:r, :k]


def float_scales(x, rows, cols, code, power_of_two):
    amax, spread = blocks(x, rows, cols)
    ratio = torch.full_like(amax, MAX[code]).div(amax)  # a number / a tensor would round twice
    encode = torch.where(amax > 0, ratio, torch.ones_like(amax)).clamp(max=LARGEST)
    if power_of_two:
        encode = torch.exp2(torch.floor(torch.log2(encode.double()))).float()
    return cast(x * spread(encode), code), 1 / encode


def tiles(scales, columns):  # bytes as cuBLASLt wants them, of so many columns: those of K padded to 256
    r, c = scales.shape
    padded = torch.zeros(-(-r // 128) * 128, columns, dtype=torch.uint8)
    padded[:r, :c] = scales
    t = padded.view(padded.shape[0] // 128, 128, padded.shape[1] // 4, 4).permute(0, 2, 1, 3)
    return t.reshape(-1, 4, 32, 4).transpose(1, 2).reshape(-1)


def mxfp8(x):
    amax, spread = blocks(x, 1, 32)
    ratio = amax * (1.0 / 448)
    exponent = torch.where(ratio > 0, torch.ceil(torch.log2(ratio.double())), torch.full_like(ratio, -127).double())
    exponent = exponent.clamp(-127, 127)
    return cast(x * spread(torch.exp2(-exponent).float()), torch.float8_e4m3fn), (exponent + 127).to(torch.uint8)


def e2m1(x):  # the nearest number, of two the one with an even code
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    distance = (x.abs().clamp(max=6).unsqueeze(-1) - values).abs()
    near = distance.min(-1, keepdim=True).values == distance
    even = torch.arange(8) % 2 == 0
    code = torch.where(near.sum(-1) > 1, (near & even).int().argmax(-1), near.int().argmax(-1)).to(torch.uint8)
    code = code + torch.signbit(x).to(torch.uint8) * 8
    return code[:, 0::2] + code[:, 1::2] * 16


def nvfp4(x, rows):
    tensor = torch.tensor(448.0 * 6) / x.abs().max()
    amax, spread = blocks(x, rows, 16)
    decode = (amax / 6 * tensor).clamp(max=448).to(torch.float8_e4m3fn)
    encode = (1 / (decode.float() * (1 / tensor))).clamp(max=LARGEST)
    scales = decode.view(torch.uint8).repeat_interleave(rows, 0)[: x.shape[0]]
    return e2m1(x * spread(encode)), scales


def main():
    torch.manual_seed(1)
    f = torch.cat([torch.randn(1000) * torch.exp2(torch.randint(-20, 20, (1000,)).float()),
                   torch.randint(-(2**31), 2**31 - 1, (1000,), dtype=torch.int32).view(torch.float32),
                   torch.tensor([0.0, -0.0, 448, 464, 480, -1e9, 57344, 61440, 65536, 1e-9, 2**-9, 2**-10, 2**-16, 2**-17,
                                 3 * 2**-10, float("inf"), -float("inf"), float("nan")])])
    save("f32", f)
    save("e4m3", cast(f, torch.float8_e4m3fn))
    save("e5m2", cast(f, torch.float8_e5m2))

    x = torch.randn(24, 136) * torch.exp2(torch.randint(-9, 9, (24, 136)).float())
    x[3] = 0
    x[5, :128] = 0
    x[7] *= 1e-30
    x[9] *= 1e6
    g = torch.randn(16, 136) * torch.exp2(torch.randint(-6, 6, (16, 136)).float()) * 1e-4
    w = torch.randn(136, 136) * 0.05 * torch.exp2(torch.randint(-3, 3, (136, 1)).float())
    x, g, w = (t.bfloat16().float() for t in (x, g, w))
    for name, t in (("x", x), ("g", g), ("w", w)):
        save(name, t.bfloat16())

    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
    made = {}
    for name, t, rows, cols, code, power in (("current.x", x, 0, 0, e4m3, 0), ("current.g", g, 0, 0, e5m2, 0),
                                             ("rowwise.x", x, 1, 0, e4m3, 0), ("rowwise.g", g, 1, 0, e4m3, 0),
                                             ("blocks.x", x, 1, 128, e4m3, 1), ("blocks.w", w, 128, 128, e4m3, 1)):
        codes, scales = float_scales(t, rows, cols, code, power)
        made[name] = codes.view(code), scales
        save(name + ".codes", codes)
        save(name + ".scales", scales)
    codes, scales = mxfp8(x)
    save("mxfp8.x.codes", codes)
    save("mxfp8.x.scales", scales)
    save("mxfp8.x.tiles", tiles(scales, 8))
    for name, t, rows in (("x", x, 1), ("w", w, 16)):
        codes, scales = nvfp4(t, rows)
        save(f"nvfp4.{name}.codes", codes)
        save(f"nvfp4.{name}.scales", scales)
        save(f"nvfp4.{name}.tiles", tiles(scales, 16))
    for recipe in ("current", "rowwise"):
        (a, sa), (b, sb) = made[recipe + ".x"], made[recipe + ".g"]
        k = torch.zeros(8, 24, dtype=torch.uint8)  # 136 is no multiple of 16
        a = torch.cat([a.view(torch.uint8), k.T], 1).view(a.dtype)
        b = torch.cat([b.view(torch.uint8), k.T[:16]], 1).view(b.dtype)
        if recipe == "current":
            sa, sb = sa.reshape(()), sb.reshape(())
        save(recipe + ".y", torch._scaled_mm(a, b.T, sa, sb.T if sb.dim() else sb, out_dtype=torch.float32))

    write("low_precision.safetensors", tensors)


if __name__ == "__main__":
    main()
