"""Builds kernels.inc and wraps each pair of functions as a torch autograd function (CPU, bf16 activations)."""
import ctypes
import hashlib
import os
import subprocess
import tempfile

import torch

BF16 = torch.bfloat16
_HERE = os.path.dirname(os.path.abspath(__file__))


def _load():
    source = os.path.join(_HERE, 'kernels.inc')
    with open(source, 'rb') as f:
        digest = hashlib.sha256(f.read()).hexdigest()[:16]
    out = os.path.join(tempfile.gettempdir(), 'starter-kernels-%d-%s.so' % (os.getuid(), digest))
    if not os.path.exists(out):
        part = '%s.%d' % (out, os.getpid())
        subprocess.run(['gcc', '-x', 'c', '-O3', '-march=native', '-mprefer-vector-width=512', '-ffast-math', '-shared',
                        '-fPIC', source, '-o', part, '-lm'], check=True)
        os.replace(part, out)
    return ctypes.CDLL(out)


_lib = _load()


def _call(name, tensors, sizes):
    pointers = [ctypes.c_void_p(t.data_ptr() if t is not None else None) for t in tensors]
    getattr(_lib, name)(*pointers, *[ctypes.c_long(n) for n in sizes])


class Gelu(torch.autograd.Function):
    """gelu(x + bias), x [..., D]."""

    @staticmethod
    def forward(ctx, x, bias):
        x = x.contiguous()
        y = torch.empty_like(x)
        _call('gelu_forward', (x, bias, y), (x.numel() // len(bias), len(bias)))
        ctx.save_for_backward(x, bias)
        return y

    @staticmethod
    def backward(ctx, g):
        x, bias = ctx.saved_tensors
        g, d, db = g.to(BF16).contiguous(), torch.empty_like(x), torch.empty_like(bias)
        _call('gelu_backward', (x, bias, g, d, db), (x.numel() // len(bias), len(bias)))
        return d, db


class LayerNormModulate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, shift):
        x, scale, shift = x.contiguous(), scale.contiguous(), shift.contiguous()
        y, mean, rstd = torch.empty(x.shape, dtype=BF16), torch.empty(x.shape[:2]), torch.empty(x.shape[:2])
        _call('lnmod_forward', (x, scale, shift, y, mean, rstd), x.shape)
        ctx.save_for_backward(x, scale, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, g):
        x, scale, mean, rstd = ctx.saved_tensors
        g, dx = g.to(BF16).contiguous(), torch.empty_like(x)
        dscale, dshift = torch.empty_like(scale), torch.empty_like(scale)
        _call('lnmod_backward', (x, scale, g, mean, rstd, dx, dscale, dshift), x.shape)
        return dx, dscale, dshift


class GatedResidual(torch.autograd.Function):
    """x + (a + bias) * gate."""

    @staticmethod
    def forward(ctx, x, a, bias, gate):
        x, a, bias, gate = x.contiguous(), a.contiguous(), bias.float().contiguous(), gate.contiguous()
        y = torch.empty_like(x)
        _call('gate_forward', (x, a, bias, gate, y), x.shape)
        ctx.save_for_backward(a, bias, gate)
        return y

    @staticmethod
    def backward(ctx, g):
        a, bias, gate = ctx.saved_tensors
        g, da, db, dgate = g.contiguous(), torch.empty_like(a), torch.empty_like(bias), torch.empty_like(gate)
        _call('gate_backward', (g, a, bias, gate, da, db, dgate), a.shape)
        return g, da, db, dgate


class RmsRope(torch.autograd.Function):
    """RoPE of the RMS norm of x + bias."""

    @staticmethod
    def forward(ctx, x, bias, weight, cosine, sine, head):
        x = x.contiguous()
        y, rstd = torch.empty_like(x), torch.empty(x.shape[:2])
        _call('rmsrope_forward', (x, bias, weight, cosine, sine, y, rstd), (*x.shape, head))
        ctx.save_for_backward(x, bias, weight, rstd)
        ctx.rest = cosine, sine, head
        return y

    @staticmethod
    def backward(ctx, g):
        x, bias, weight, rstd = ctx.saved_tensors
        cosine, sine, head = ctx.rest
        g, dx = g.to(BF16).contiguous(), torch.empty_like(x)
        db, dw = torch.empty_like(bias), torch.empty_like(weight)
        _call('rmsrope_backward', (x, bias, weight, cosine, sine, g, rstd, dx, db, dw), (*x.shape, head))
        return dx, db, dw, None, None, None


class RmsSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain):
        x, gain = x.to(BF16).contiguous(), gain.contiguous()
        y = torch.empty_like(x)
        _call('rmssilu_forward', (x, gain, y), (x.shape[0], x.shape[1], x[0, 0].numel()))
        ctx.save_for_backward(x, gain)
        return y

    @staticmethod
    def backward(ctx, g):
        x, gain = ctx.saved_tensors
        g, dx, dgain = g.to(BF16).contiguous(), torch.empty_like(x), torch.empty_like(gain)
        _call('rmssilu_backward', (x, gain, g, dx, dgain), (x.shape[0], x.shape[1], x[0, 0].numel()))
        return dx, dgain
