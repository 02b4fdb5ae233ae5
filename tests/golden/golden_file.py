"""Write a file of tests/golden in the format of safetensors."""
import json
import os
import struct


def write(file, tensors):  # name: dtype ("F32", "BF16" or "U8"), shape, bytes
    header, data = {}, b""
    for name, (dtype, shape, raw) in sorted(tensors.items(), key=lambda i: {"F32": 0, "BF16": 1, "U8": 2}[i[1][0]]):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), file)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)
    print(path, 8 + len(text) + len(data), "bytes")
