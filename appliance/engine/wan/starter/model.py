"""Wan 2.1's three networks in small, with the published tensor names (see facts in README.md).

Each has a plain form, used in float32 for fixtures and comparison, and under bf16 autocast on a CPU a form with the
fused kernels of kernels.py: same mathematics.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT_LEN = 32
CONFIG = dict(
    text=dict(dim=128, ffn=256, heads=4, layers=2, buckets=32),
    dit=dict(dim=256, ffn=512, heads=2, layers=5, channels=16, text_dim=128, freq_dim=256),
    vae=dict(dim=16, mult=(1, 1, 2, 2), res_blocks=1, z=16, temporal=(True, True, False)))


def fused():
    """True under bf16 autocast on a CPU, where the fused kernels apply."""
    return torch.is_autocast_cpu_enabled()


# ---- text encoder (umT5: a position bias per layer, gated GELU, RMS norms, no biases, no 1/sqrt(d))

class RmsNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def buckets(length, count=32, max_distance=128):
    """Relative position (key - query) to bucket, bidirectional, as T5."""
    r = torch.arange(length)[None] - torch.arange(length)[:, None]
    half, exact = count // 2, count // 4
    far = exact + (torch.log(r.abs().clamp(min=1).float() / exact) / math.log(max_distance / exact)
                   * (half - exact)).long()
    return (r > 0).long() * half + torch.where(r.abs() < exact, r.abs(), far.clamp(max=half - 1))


class TextBlock(nn.Module):
    def __init__(self, dim, ffn, heads, buckets):
        super().__init__()
        linear = lambda i, o, std: _linear(i, o, std, bias=False)
        self.heads = heads
        self.norm1, self.norm2 = RmsNorm(dim), RmsNorm(dim)
        self.q = linear(dim, dim, (dim * dim / heads) ** -.5)
        self.k, self.v, self.o = (linear(dim, dim, dim ** -.5) for _ in range(3))
        self.gate, self.fc1 = linear(dim, ffn, dim ** -.5), linear(dim, ffn, dim ** -.5)
        self.fc2 = linear(ffn, dim, ffn ** -.5)
        self.bias = nn.Embedding(buckets, heads)
        nn.init.normal_(self.bias.weight, std=.1)

    def forward(self, x, mask, bucket):
        B, L, D = x.shape
        h = self.norm1(x)
        q, k, v = (f(h).view(B, L, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = (q @ k.transpose(2, 3)).float() + self.bias(bucket).permute(2, 0, 1)[None] + mask
        x = x + self.o((a.softmax(-1).to(v.dtype) @ v).transpose(1, 2).reshape(B, L, D))
        h = self.norm2(x)
        return x + self.fc2(self.fc1(h) * F.gelu(self.gate(h), approximate='tanh'))


class TextEncoder(nn.Module):
    """ids [B, L], 0 = padding -> [B, L, dim], rows of padding zeroed after encoding."""

    def __init__(self, vocab, dim, ffn, heads, layers, buckets):
        super().__init__()
        self.shared = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([TextBlock(dim, ffn, heads, buckets) for _ in range(layers)])
        self.norm = RmsNorm(dim)

    def forward(self, ids):
        real = (ids > 0).float()
        mask = torch.where(real[:, None, None, :] > 0, 0., -1e30)
        x, bucket = self.shared(ids), buckets(ids.shape[1])
        for block in self.blocks:
            x = block(x, mask, bucket)
        return self.norm(x) * real[..., None]

    def published(self):
        """State under the names of the published file (Hugging Face T5)."""
        names = {'q': '0.SelfAttention.q', 'k': '0.SelfAttention.k', 'v': '0.SelfAttention.v', 'o': '0.SelfAttention.o',
                 'bias': '0.SelfAttention.relative_attention_bias', 'norm1': '0.layer_norm', 'norm2': '1.layer_norm',
                 'gate': '1.DenseReluDense.wi_0', 'fc1': '1.DenseReluDense.wi_1', 'fc2': '1.DenseReluDense.wo'}
        out = {'shared.weight': self.shared.weight, 'encoder.final_layer_norm.weight': self.norm.weight}
        for i, block in enumerate(self.blocks):
            for own, name in names.items():
                out['encoder.block.%d.layer.%s.weight' % (i, name)] = getattr(block, own).weight
        return {k: v.detach() for k, v in out.items()}


def _linear(i, o, std=None, bias=True):
    layer = nn.Linear(i, o, bias=bias)
    nn.init.xavier_uniform_(layer.weight) if std is None else nn.init.normal_(layer.weight, std=std)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


# ---- diffusion transformer

def time_features(dim, t):
    a = t.float()[:, None] * torch.pow(10000., -torch.arange(dim // 2).float() / (dim // 2))[None]
    return torch.cat([a.cos(), a.sin()], 1)


def rope_table(f, h, w, head):
    """cos and sin [f*h*w, head/2]; the lanes are split over time, row, column, each axis with its own exponent."""
    side = 2 * (head // 6)
    freq = lambda n, d: torch.outer(torch.arange(n).double(), 10000. ** -(torch.arange(0, d, 2).double() / d))
    a, b, c = freq(f, head - 2 * side), freq(h, side), freq(w, side)
    angle = torch.cat([a[:, None, None].expand(f, h, w, -1), b[None, :, None].expand(f, h, w, -1),
                       c[None, None].expand(f, h, w, -1)], -1).reshape(f * h * w, -1)
    return angle.cos().float(), angle.sin().float()


def rope(x, table):
    """x [B, L, heads, head], pairs (2i, 2i+1)."""
    c, s = (t[None, :, None] for t in table)
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(3)


class WideRms(nn.Module):
    """RMS norm over all channels, before the split into heads."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x, heads, table):
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        y = y.view(*x.shape[:2], heads, -1)
        return rope(y, table) if table else y


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (_linear(dim, dim) for _ in range(4))
        self.norm_q, self.norm_k = WideRms(dim), WideRms(dim)

    def added_to(self, x, gate, y, context, table):
        """x + gate * attention of y over context."""
        B, L, D = y.shape
        head = D // self.heads
        split = lambda t: t.view(B, -1, self.heads, head).transpose(1, 2)
        if fused():
            from kernels import GatedResidual, RmsRope
            cs = table or (None, None)
            q = RmsRope.apply(F.linear(y, self.q.weight), self.q.bias, self.norm_q.weight * head ** -.5, *cs, head)
            k = RmsRope.apply(F.linear(context, self.k.weight), self.k.bias, self.norm_k.weight, *cs, head)
            v = split(F.linear(context, self.v.weight))
            a = (split(q) @ split(k).transpose(2, 3)).softmax(-1) @ v
            # shares sum to one: the bias of v can pass through o on its own
            bias = self.o.bias + (self.o.weight * self.v.bias).sum(1)
            a = F.linear(a.transpose(1, 2).reshape(B, L, D), self.o.weight)
            return GatedResidual.apply(x, a, bias, gate)
        q = self.norm_q(self.q(y), self.heads, table).transpose(1, 2)
        k = self.norm_k(self.k(context), self.heads, table).transpose(1, 2)
        a = (q @ k.transpose(2, 3) * head ** -.5).softmax(-1) @ split(self.v(context))
        return x + self.o(a.transpose(1, 2).reshape(B, L, D)) * gate[:, None]


def _modulated(x, scale, shift):
    """LN(x) * scale + shift with scale, shift [B, D]."""
    if fused():
        from kernels import LayerNormModulate
        return LayerNormModulate.apply(x, scale, shift)
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * scale[:, None] + shift[:, None]


class Block(nn.Module):
    def __init__(self, dim, ffn, heads):
        super().__init__()
        self.self_attn, self.cross_attn = Attention(dim, heads), Attention(dim, heads)
        self.norm3 = nn.LayerNorm(dim, eps=1e-6)
        self.ffn = nn.Sequential(_linear(dim, ffn), nn.GELU(approximate='tanh'), _linear(ffn, dim))
        self.modulation = nn.Parameter(torch.randn(1, 6, dim) / dim ** .5)

    def forward(self, x, e, context, table):
        B, _, D = x.shape
        e = (self.modulation + e).unbind(1)
        y = _modulated(x, 1 + e[1], e[0])
        x = self.self_attn.added_to(x, e[2], y, y, table)
        y = _modulated(x, self.norm3.weight.expand(B, D), self.norm3.bias.expand(B, D))
        x = self.cross_attn.added_to(x, torch.ones(B, D), y, context, None)
        y = _modulated(x, 1 + e[4], e[3])
        if fused():
            from kernels import GatedResidual, Gelu
            h = Gelu.apply(F.linear(y, self.ffn[0].weight), self.ffn[0].bias)
            return GatedResidual.apply(x, F.linear(h, self.ffn[2].weight), self.ffn[2].bias, e[5])
        return x + self.ffn(y) * e[5][:, None]


class Head(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.head = _linear(dim, out, 0.)
        self.modulation = nn.Parameter(torch.randn(1, 2, dim) / dim ** .5)

    def forward(self, x, e):
        e = (self.modulation + e[:, None]).unbind(1)
        return self.head(_modulated(x, 1 + e[1], e[0]))


class Dit(nn.Module):
    """x [B, C, F, H, W], t [B] in 0..1000, context [B, TEXT_LEN, text_dim] -> v of x's shape."""

    def __init__(self, dim, ffn, heads, layers, channels, text_dim, freq_dim):
        super().__init__()
        self.heads, self.freq_dim, self.tables = heads, freq_dim, {}
        self.patch_embedding = nn.Conv3d(channels, dim, (1, 2, 2), stride=(1, 2, 2))
        nn.init.xavier_uniform_(self.patch_embedding.weight.flatten(1))
        nn.init.zeros_(self.patch_embedding.bias)
        self.text_embedding = nn.Sequential(_linear(text_dim, dim, .05), nn.GELU(approximate='tanh'),
                                            _linear(dim, dim, .05))
        self.time_embedding = nn.Sequential(_linear(freq_dim, dim, .02), nn.SiLU(), _linear(dim, dim, .02))
        self.time_projection = nn.Sequential(nn.SiLU(), _linear(dim, 6 * dim))
        self.blocks = nn.ModuleList([Block(dim, ffn, heads) for _ in range(layers)])
        self.head = Head(dim, 4 * channels)

    def forward(self, x, t, context, taps=None):
        """taps: a list that receives the tokens after every block."""
        B, C, f, H, W = x.shape
        h, w, dim = H // 2, W // 2, self.patch_embedding.out_channels
        u = x.view(B, C, f, h, 2, w, 2).permute(0, 2, 3, 5, 1, 4, 6).reshape(B, f * h * w, C * 4)
        u = F.linear(u, self.patch_embedding.weight.reshape(dim, -1), self.patch_embedding.bias).float()
        if (f, h, w) not in self.tables:
            self.tables[f, h, w] = rope_table(f, h, w, dim // self.heads)
        e = self.time_embedding(time_features(self.freq_dim, t)).float()
        e0 = self.time_projection(e).float().view(B, 6, dim)
        context = self.text_embedding(context)
        for block in self.blocks:
            u = block(u, e0, context, self.tables[f, h, w])
            if taps is not None:
                taps.append(u)
        v = self.head(u, e).float().view(B, f, h, w, 2, 2, C)
        return v.permute(0, 6, 1, 2, 4, 3, 5).reshape(B, C, f, H, W)


# ---- causal video VAE: Wan's decoder, and an encoder of our own that only training needs

class CausalConv(nn.Conv3d):
    """Pads (kernel - 1) zero frames in front and half the kernel in space."""

    def __init__(self, i, o, kernel):
        super().__init__(i, o, kernel)
        self.front = self.kernel_size[0] - 1
        self.border = (0, self.kernel_size[1] // 2, self.kernel_size[2] // 2)

    def forward(self, x):
        if self.front:
            x = F.pad(x, (0, 0, 0, 0, self.front, 0))
        return F.conv3d(x, self.weight, self.bias, padding=self.border)


class ChannelNorm(nn.Module):
    """x / |x| over channels * sqrt(C) * gamma."""

    def __init__(self, dim, spatial):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim, *[1] * spatial))

    def forward(self, x):
        return F.normalize(x, dim=1, eps=1e-12) * (self.gamma * self.gamma.shape[0] ** .5)

    def silu(self, x):
        if fused():
            from kernels import RmsSilu
            return RmsSilu.apply(x, (self.gamma * self.gamma.shape[0] ** .5).flatten())
        return F.silu(self(x))


class Residual(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        # 1, 4, 5 stand for SiLU, SiLU, Dropout of the published module, so that the names agree
        self.residual = nn.Sequential(ChannelNorm(i, 3), nn.Identity(), CausalConv(i, o, 3), ChannelNorm(o, 3),
                                      nn.Identity(), nn.Identity(), CausalConv(o, o, 3))
        self.shortcut = CausalConv(i, o, 1) if i != o else nn.Identity()

    def forward(self, x):
        r = self.residual
        return self.shortcut(x) + r[6](r[3].silu(r[2](r[0].silu(x))))


class FrameAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.to_qkv, self.proj = ChannelNorm(dim, 2), nn.Conv2d(dim, 3 * dim, 1), nn.Conv2d(dim, dim, 1)
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)

    def forward(self, x):
        b, c, t, h, w = x.shape
        y = self.norm(x.transpose(1, 2).reshape(b * t, c, h, w))
        q, k, v = self.to_qkv(y).reshape(b * t, 3 * c, h * w).transpose(1, 2).chunk(3, -1)
        a = ((q * c ** -.5) @ k.transpose(1, 2)).softmax(-1) @ v
        y = self.proj(a.transpose(1, 2).reshape(b * t, c, h, w))
        return x + y.view(b, t, c, h, w).transpose(1, 2)


class Upsample(nn.Module):
    """Twice the space, half the channels; with temporal also twice the frames after the first.

    The first frame passes by time_conv, and the others do not see it: their past starts with zeros.
    """

    def __init__(self, dim, temporal):
        super().__init__()
        self.resample = nn.Sequential(nn.Identity(), nn.Conv2d(dim, dim // 2, 3, padding=1))
        if temporal:
            self.time_conv = CausalConv(dim, 2 * dim, (3, 1, 1))

    def forward(self, x):
        b, c, t, h, w = x.shape
        if hasattr(self, 'time_conv') and t > 1:
            r = self.time_conv(x[:, :, 1:]).view(b, 2, c, t - 1, h, w)
            r = r.permute(0, 2, 3, 1, 4, 5).reshape(b, c, 2 * t - 2, h, w)
            x, t = torch.cat([x[:, :, :1].to(r.dtype), r], 2), 2 * t - 1
        y = x.transpose(1, 2).reshape(b * t, c, h, w)
        y = y[:, :, :, None, :, None].expand(-1, -1, -1, 2, -1, 2).reshape(b * t, c, 2 * h, 2 * w)
        return self.resample[1](y).view(b, t, -1, 2 * h, 2 * w).transpose(1, 2)


class Decoder(nn.Module):
    def __init__(self, dim, mult, res_blocks, z, temporal):
        super().__init__()
        dims = [dim * m for m in (mult[-1], *mult[::-1])]
        self.conv1 = CausalConv(z, dims[0], 3)
        self.middle = nn.Sequential(Residual(dims[0], dims[0]), FrameAttention(dims[0]), Residual(dims[0], dims[0]))
        layers = []
        for level, (i, o) in enumerate(zip(dims[:-1], dims[1:])):
            i = i // 2 if level else i
            for _ in range(res_blocks + 1):
                layers.append(Residual(i, o))
                i = o
            if level + 1 < len(mult):
                layers.append(Upsample(o, temporal[level]))
        self.upsamples = nn.Sequential(*layers)
        self.head = nn.Sequential(ChannelNorm(dims[-1], 3), nn.Identity(), CausalConv(dims[-1], 3, 3))

    def forward(self, x):
        x = self.upsamples(self.middle(self.conv1(x)))
        return self.head[2](self.head[0].silu(x))


class Vae(nn.Module):
    """decoder and conv2 are shipped. encode() is ours: a 4x8x8 patch, a linear map and a small correction."""

    PATCH = 3 * 4 * 8 * 8

    def __init__(self, dim, mult, res_blocks, z, temporal):
        super().__init__()
        self.z = z
        self.decoder = Decoder(dim, mult, res_blocks, z, temporal)
        self.conv2 = CausalConv(z, z, 1)
        self.linear = nn.Conv2d(self.PATCH, z, 1)
        self.correction = nn.Sequential(nn.Conv2d(self.PATCH, 64, 1), nn.GELU(), nn.Conv2d(64, 64, 3, padding=1),
                                        nn.GELU(), nn.Conv2d(64, z, 1))
        nn.init.zeros_(self.correction[-1].weight)
        nn.init.zeros_(self.correction[-1].bias)
        self.unit = nn.BatchNorm2d(z, affine=False, momentum=.02)
        self.register_buffer('spectrum', torch.ones(z))
        start_as_identity(self)

    @staticmethod
    def patches(clip):
        """[B, 3, T, H, W], T = 4n+1 -> [B*F, PATCH, H/8, W/8]; the first frame stands for four."""
        B, _, T, H, W = clip.shape
        v = torch.cat([clip[:, :, :1].expand(-1, -1, 3, -1, -1), clip], 2)
        f = v.shape[2] // 4
        return v.view(B, 3, f, 4, H // 8, 8, W // 8, 8).permute(0, 2, 1, 3, 5, 7, 4, 6).reshape(
            B * f, Vae.PATCH, H // 8, W // 8)

    def encode(self, clip):
        u = self.patches(clip)
        y = self.unit((self.linear(u) + self.correction(u)).float()) * self.spectrum[:, None, None]
        return y.view(clip.shape[0], -1, self.z, *y.shape[2:]).transpose(1, 2)

    def decode(self, z):
        return self.decoder(self.conv2(z))


def start_as_identity(vae):
    """The residual stream starts as the latents, upsampled: left random, it hides them or explodes."""
    def ident(conv, noise=.1):
        conv.weight.mul_(noise)
        conv.bias.zero_()
        last = [k // 2 for k in conv.kernel_size]
        if conv.weight.ndim == 5:
            last[0] = conv.kernel_size[0] - 1
        for i in range(min(conv.weight.shape[:2])):
            conv.weight[(i, i, *last)] = 1.
    with torch.no_grad():
        ident(vae.conv2)
        ident(vae.decoder.conv1)
        for m in vae.decoder.modules():
            if isinstance(m, Residual):
                m.residual[6].weight.mul_(.3)
                m.residual[6].bias.zero_()
                if isinstance(m.shortcut, CausalConv):
                    ident(m.shortcut)
            elif isinstance(m, Upsample):
                ident(m.resample[1])
                if hasattr(m, 'time_conv'):
                    half, w = m.time_conv.out_channels // 2, m.time_conv.weight
                    w.mul_(.1)
                    m.time_conv.bias.zero_()
                    for i in range(half):
                        w[i, i, -1] = w[half + i, i, -1] = 1.
