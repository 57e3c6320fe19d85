"""safetensors files: eight bytes of header length, JSON, data. Little-endian, as torch holds it here."""
import collections
import json
import struct

import numpy as np
import torch

DTYPES = {torch.float32: 'F32', torch.float16: 'F16', torch.bfloat16: 'BF16', torch.uint8: 'U8', torch.int8: 'I8',
          torch.int32: 'I32', torch.int64: 'I64'}

# A matrix in one byte per number: bits uint8, and the scale that goes into the file beside it as `scale_weight`.
F8 = collections.namedtuple('F8', 'bits scale')


def _f8_values():
    """What the 127 codes of E4M3 without a sign stand for, in their order (code 127 is no number)."""
    code = torch.arange(127)
    exponent, mantissa = code // 8, (code % 8).double()
    return torch.where(exponent == 0, mantissa * 2. ** -9, (1 + mantissa / 8) * 2. ** (exponent.double() - 7)).float()


def f8(t):
    """The nearest numbers of E4M3. The scale is a power of two, so that bf16 and f32 hold the products exactly."""
    values = _f8_values()
    scale = 2. ** int(np.ceil(np.log2(float(t.abs().max()) / float(values[-1]) + 1e-38)))
    code = torch.bucketize((t.detach().abs() / scale).contiguous(), (values[1:] + values[:-1]) / 2)
    return F8((code + 128 * (t < 0)).to(torch.uint8), scale)


def _unpacked(bits, scale):
    code = bits.long()
    return _f8_values()[code % 128] * torch.where(code >= 128, -scale, scale)


def _bytes(t):
    t = t.detach().contiguous()
    return (t.view(torch.int16) if t.dtype == torch.bfloat16 else t).numpy().tobytes()


def save(path, tensors, metadata):
    """tensors: name -> tensor. metadata: name -> string. Names are sorted, so that equal content gives equal bytes."""
    header, at, packed = {'__metadata__': metadata}, 0, set()
    for name, t in list(tensors.items()):
        if isinstance(t, F8):
            packed.add(name)
            tensors = {**tensors, name: t.bits, name[:-len('weight')] + 'scale_weight': torch.tensor([t.scale])}
    for name in sorted(tensors):
        t = tensors[name]
        size = t.numel() * t.element_size()
        dtype = 'F8_E4M3' if name in packed else DTYPES[t.dtype]
        header[name] = dict(dtype=dtype, shape=list(t.shape), data_offsets=[at, at + size])
        at += size
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text)
        for name in sorted(tensors):
            f.write(_bytes(tensors[name]))


def load(path):
    """(tensors, metadata) of a file of our own: nothing is checked but what json and torch check. F8 as f32, scaled."""
    with open(path, 'rb') as f:
        data = f.read()
    length, = struct.unpack('<Q', data[:8])
    header = json.loads(data[8:8 + length])
    metadata, types, out = header.pop('__metadata__', {}), {v: k for k, v in DTYPES.items()}, {}
    for name, entry in header.items():
        a, b = (8 + length + o for o in entry['data_offsets'])
        raw = torch.from_numpy(np.frombuffer(data[a:b], np.uint8).copy())
        out[name] = (raw.view(types.get(entry['dtype'], torch.uint8)) if raw.numel() else raw).reshape(entry['shape'])
    for name, entry in header.items():
        if entry['dtype'] == 'F8_E4M3':
            out[name] = _unpacked(out[name], out.pop(name[:-len('weight')] + 'scale_weight'))
    return out, metadata
