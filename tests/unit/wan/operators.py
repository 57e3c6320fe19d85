#!/usr/bin/env python3
"""Makes operators.safetensors: what PyTorch says that each operator of ops.h computes (Debian's python3-torch).

Written with PyTorch's own functions wherever it has one (layer_norm, conv3d, interpolate, complex products), so that
neither side can hand its mistake to the other. All that goes in is exact in bf16. Attention is far from uniform, gains
are far from one.
"""
import math
import os
import sys

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '../../../appliance/engine/wan/starter'))
import tensors  # noqa: E402

GEN = torch.Generator().manual_seed(5)
OUT = {}


def draw(*shape, size=1.):
    return (torch.randn(*shape, generator=GEN) * size).bfloat16().float()


def add(case, **values):
    for name, t in values.items():
        OUT['%s.%s' % (case, name)] = t.detach().contiguous().clone()


def gelu(x):
    return F.gelu(x, approximate='tanh')


def products():
    x, w, b, gate, y = draw(7, 6, size=2.), draw(10, 6), draw(10), draw(10), draw(7, 10)
    r = F.linear(x, w, b)
    add('gemm', x=x, w=w, bias=b, gate=gate, y=y, store=r, gelu=gelu(r), silu=F.silu(r), gelu_gate=y * gelu(r), add=y + r,
        add_gated=y + gate * r, without_bias=F.linear(x, w))
    for kind, dtype in (('f16', torch.float16), ('bf16', torch.bfloat16)):
        add('gemm', **{'w_' + kind: w.to(dtype)})
    add('gemm_f32', silu=F.silu(r), store=r)


def attention():
    heads, hd, lq, lk, repeated = 2, 6, 5, 7, 25
    q, k, v, bias = draw(lq, heads * hd, size=2.), draw(lk, heads * hd, size=2.), draw(lk, heads * hd), \
        draw(heads, lq, lk, size=2.)

    def attend(k, v, bias):
        split = lambda t: t.view(len(t), heads, hd).transpose(0, 1)
        p = torch.softmax(torch.einsum('hqd,hkd->hqk', split(q), split(k)) * .4 + bias, -1)
        return torch.einsum('hqk,hkd->qhd', p, split(v)).reshape(lq, heads * hd), p
    plain, p = attend(k, v, 0.)
    assert p.max(-1)[0].mean() > .5, 'near uniform'
    # the last key stands for many equal ones: here they are really there
    many = lambda t: torch.cat([t, t[-1:].expand(repeated - 1, -1)])
    add('attention', q=q, k=k, v=v, bias=bias, plain=plain, biased=attend(k, v, bias)[0],
        repeated=attend(many(k), many(v), 0.)[0], last_logit=torch.tensor([math.log(repeated)]))


def convolutions():
    ci, co, h, w = 4, 5, 3, 4
    for name, (kt, kh, kw), upsample, missing in (('all', (3, 3, 3), False, 0), ('first', (3, 3, 3), False, 2),
                                                  ('up', (1, 3, 3), True, 0), ('time', (3, 1, 1), False, 1),
                                                  ('point', (1, 1, 1), False, 0)):
        x, weight, bias = draw(kt, h, w, ci), draw(co, ci, kt, kh, kw, size=.5), draw(co)
        x[:missing] = 0
        clip = x.permute(3, 0, 1, 2)[None]
        if upsample:
            clip = F.interpolate(clip, scale_factor=(1, 2, 2), mode='nearest')
        y = F.conv3d(clip, weight, bias, padding=(0, kh // 2, kw // 2))[0, :, 0].permute(1, 2, 0)
        before = draw(*y.shape)
        add('conv_' + name, x=x, w=weight.permute(0, 2, 3, 4, 1), bias=bias, store=y, before=before, added=before + y,
            shape=torch.tensor([h, w, ci, co, kt, kh, kw, int(upsample), missing]).int())


def rows():
    d = 10
    x, a, b = draw(4, d, size=3.) + 1, draw(d), draw(d)
    x[3] = 0
    rms = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    channels = F.normalize(x, dim=-1) * d ** .5 * a
    add('norm', x=x, a=a, b=b, modulated=F.layer_norm(x, (d,), eps=1e-6) * (1 + a) + b,
        affine=F.layer_norm(x, (d,), a, b, 1e-6), rms=rms * a, channels=channels, channels_silu=F.silu(channels))
    heads, hd, length = 2, 8, 5
    x, weight = draw(length, heads * hd, size=3.), draw(heads * hd)
    angle = torch.rand(length, hd // 2, generator=GEN) * 6
    normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    turned = torch.view_as_complex(normed.view(length, heads, hd // 2, 2)) * torch.polar(torch.ones_like(angle), angle)[:, None]
    add('rope', x=x, weight=weight, cos=angle.cos(), sin=angle.sin(), normed=normed,
        turned=torch.view_as_real(turned).reshape(length, heads * hd))
    x, a = draw(4, 33), torch.tensor([.5, -1.25, 3., -.1])
    add('combine', x=x, a=a, y=(a[:, None] * x).sum(0))
    x = torch.randn(64, generator=GEN)
    x[:3] = torch.tensor([1 + 2 ** -8, 1 + 3 * 2 ** -8, -1 - 2 ** -8])     # ties
    add('act', x=x, bf16=x.bfloat16().float())


def latents():
    c, f, h, w, out = 3, 2, 4, 6, 5
    x, weight = draw(c, f, h, w), draw(out, c, 1, 2, 2)
    tokens = F.conv3d(x[None], weight, stride=(1, 2, 2))[0].flatten(1).T
    add('patchify', x=x, weight=weight.flatten(1), tokens=tokens)
    # the way back is a transposed convolution whose channels are picked one by one: row r, column q, channel c
    x = draw(f * (h // 2) * (w // 2), 4 * c)
    pick = torch.zeros(4 * c, c, 1, 2, 2)
    for r in range(2):
        for q in range(2):
            for channel in range(c):
                pick[(r * 2 + q) * c + channel, channel, 0, r, q] = 1
    back = F.conv_transpose3d(x.T.reshape(1, 4 * c, f, h // 2, w // 2), pick, stride=(1, 2, 2))
    add('unpatchify', x=x, y=back[0])
    x = draw(3, 4, 3)
    add('to_rgb', x=x, rgb=((x.clamp(-1, 1) + 1) * 127.5 + .5).to(torch.uint8))


for make in (products, attention, convolutions, rows, latents):
    make()
tensors.save(os.path.join(HERE, 'operators.safetensors'), OUT, {})
for key, t in sorted(OUT.items()):
    print(key, list(t.shape), '%.3f' % t.float().std())
