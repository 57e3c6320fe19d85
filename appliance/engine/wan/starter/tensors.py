"""safetensors files: eight bytes of header length, JSON, data. Little-endian, as torch holds it here."""
import json
import struct

import numpy as np
import torch

DTYPES = {torch.float32: 'F32', torch.float16: 'F16', torch.bfloat16: 'BF16', torch.uint8: 'U8', torch.int8: 'I8',
          torch.int32: 'I32', torch.int64: 'I64'}


def _bytes(t):
    t = t.detach().contiguous()
    return (t.view(torch.int16) if t.dtype == torch.bfloat16 else t).numpy().tobytes()


def save(path, tensors, metadata):
    """tensors: name -> tensor. metadata: name -> string. Names are sorted, so that equal content gives equal bytes."""
    header, at = {'__metadata__': metadata}, 0
    for name in sorted(tensors):
        t = tensors[name]
        size = t.numel() * t.element_size()
        header[name] = dict(dtype=DTYPES[t.dtype], shape=list(t.shape), data_offsets=[at, at + size])
        at += size
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text)
        for name in sorted(tensors):
            f.write(_bytes(tensors[name]))


def load(path):
    """(tensors, metadata) of a file of our own: nothing is checked but what json and torch check."""
    with open(path, 'rb') as f:
        data = f.read()
    length, = struct.unpack('<Q', data[:8])
    header = json.loads(data[8:8 + length])
    metadata, types, out = header.pop('__metadata__', {}), {v: k for k, v in DTYPES.items()}, {}
    for name, entry in header.items():
        a, b = (8 + length + o for o in entry['data_offsets'])
        raw = torch.from_numpy(np.frombuffer(data[a:b], np.uint8).copy())
        out[name] = (raw.view(types[entry['dtype']]) if raw.numel() else raw).reshape(entry['shape'])
    return out, metadata
