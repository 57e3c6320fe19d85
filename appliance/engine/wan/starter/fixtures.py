#!/usr/bin/env python3
"""Reference values for the engine, from the torch model in f32: python3 fixtures.py OUT.safetensors

Names are <case>/<tensor>; `in.` inputs, `w.` parameters, `out.` results. Operators carry their own random parameters,
scaled so that softmax and norms are far from uniform: a wrong pairing of RoPE or a lost bias must not hide. Networks
(net.*) and the whole run (run.*) use the shipped weights. Integers in the metadata say the sizes that shapes do not.
"""
import sys

import torch
import torch.nn.functional as F

import export
import model as nets
import sampler
import tensors

PROMPTS = ['a red circle moving left', 'a big purple star spinning on a white background',
           'Zebra flies \u00fcber den Mond', '']


class Sheet:
    def __init__(self):
        self.tensors, self.gen = {}, torch.Generator().manual_seed(3)

    def random(self, *shape, scale=1.):
        return torch.randn(*shape, generator=self.gen) * scale

    def add(self, case, **values):
        """i_x -> in.x, w_x -> w.x, o_x -> out.x"""
        for key, value in values.items():
            kind = dict(i='in', w='w', o='out')[key[0]]
            self.tensors['%s/%s.%s' % (case, kind, key[2:])] = value.detach().contiguous().clone()

    def shake(self, module):
        """Fresh parameters, biases and gains included, so that none can be left out unnoticed."""
        with torch.no_grad():
            for p in module.parameters():
                fan = p[0].numel() if p.ndim > 1 else 4
                p.copy_(self.random(*p.shape, scale=1.5 * fan ** -.5) + (1. if p.ndim == 1 and p.mean() == 1 else 0.))
        return module

    def weights(self, module):
        return {'w_' + k: v for k, v in module.state_dict().items()}


def plain_operators(s):
    x, w, b = s.random(5, 48), s.random(24, 48, scale=.3), s.random(24)
    y = F.linear(x, w, b)
    s.add('linear', i_x=x, w_weight=w, w_bias=b, o_y=y, o_gelu_tanh=F.gelu(y, approximate='tanh'), o_silu=F.silu(y))
    x, w = s.random(4, 128, scale=3.), s.random(128)
    s.add('rms_norm', i_x=x, w_weight=w, o_y=x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w)
    x, scale, shift, gate = s.random(2, 6, 256, scale=2.) + .5, s.random(2, 256), s.random(2, 256), s.random(2, 256)
    s.add('layer_norm_modulate', i_x=x, i_scale=scale, i_shift=shift, o_y=nets._modulated(x, 1 + scale, shift))
    a = s.random(2, 6, 256)
    s.add('gated_residual', i_x=x, i_a=a, i_gate=gate, o_y=x + a * gate[:, None])
    t = torch.tensor([0., 1., 499., 999.])
    s.add('time_features', i_t=t, o_y=nets.time_features(256, t))
    s.add('position_buckets', o_bucket=nets.buckets(40).int())
    c, n = nets.rope_table(3, 2, 2, 128)
    s.add('rope_table', o_cos=c, o_sin=n)


def attention_operators(s):
    grid, table = (3, 2, 2), nets.rope_table(3, 2, 2, 128)
    norm, x = s.shake(nets.WideRms(256)), s.random(1, 12, 256)
    s.add('wide_rms_rope', i_x=x, w_weight=norm.weight, o_y=norm(x, 2, table).reshape(1, 12, 256),
          o_without_rope=norm(x, 2, None).reshape(1, 12, 256))
    q, k, v = s.random(2, 12, 128, scale=2.), s.random(2, 9, 128, scale=2.), s.random(2, 9, 128)
    s.add('attention', i_q=q, i_k=k, i_v=v, o_y=(q @ k.transpose(1, 2) * 128 ** -.5).softmax(-1) @ v)
    k, v = torch.cat([k, k[:, -1:].expand(-1, 20, -1)], 1), torch.cat([v, v[:, -1:].expand(-1, 20, -1)], 1)
    s.add('attention_repeated_last_key', i_q=q, o_y=(q @ k.transpose(1, 2) * 128 ** -.5).softmax(-1) @ v)
    block = s.shake(nets.TextBlock(64, 96, 4, 32))
    x = s.random(1, 11, 64)
    s.add('text_block', i_x=x, **s.weights(block), o_y=block(x, torch.zeros(1, 1, 1, 11), nets.buckets(11)))
    x = s.random(1, 16, 2, 4, 6)
    conv = s.shake(torch.nn.Conv3d(16, 24, (1, 2, 2), stride=(1, 2, 2)))
    s.add('patchify', i_x=x, **s.weights(conv), o_y=conv(x).flatten(2).transpose(1, 2))
    y = s.random(1, 2 * 2 * 3, 64)
    v = y.view(1, 2, 2, 3, 2, 2, 16).permute(0, 6, 1, 2, 4, 3, 5).reshape(1, 16, 2, 4, 6)
    s.add('unpatchify', i_y=y, o_x=v)


def vae_operators(s):
    x = s.random(1, 8, 5, 4, 6)
    for name, kernel in (('conv3d', 3), ('conv3d_1', 1), ('conv3d_time', (3, 1, 1))):
        conv = s.shake(nets.CausalConv(8, 12, kernel))
        s.add(name, i_x=x, **s.weights(conv), o_y=conv(x))
    norm = s.shake(nets.ChannelNorm(8, 3))
    s.add('channel_norm', i_x=x, w_gamma=norm.gamma, o_y=norm(x), o_silu=norm.silu(x))
    for name, o in (('residual', 8), ('residual_shortcut', 4)):
        m = s.shake(nets.Residual(8, o))
        s.add(name, i_x=x, **s.weights(m), o_y=m(x))
    m = s.shake(nets.FrameAttention(8))
    s.add('frame_attention', i_x=x, **s.weights(m), o_y=m(x))
    m = s.shake(nets.Upsample(8, False))
    s.add('upsample2d', i_x=x, **s.weights(m), o_y=m(x))
    m = s.shake(nets.Upsample(8, True))
    s.add('upsample3d', i_x=x, **s.weights(m), o_y=m(x), o_first_frame_only=m(x[:, :, :1]))


def sampling_operators(s):
    """A velocity with a known shape, so that the solver is tested without a network: v = (x - c) * 0.9 + t / 1000."""
    x, c = s.random(1, 4, 2, 3), s.random(1, 4, 2, 3)
    velocity = lambda x, t: (x - c) * .9 + t / 1000
    for name, solver in (('unipc', sampler.unipc), ('euler', sampler.euler)):
        for steps, shift in ((20, 3.), (4, 5.), (2, 1.)):
            s.add('%s_%d_%d' % (name, steps, shift), i_x=x, i_c=c, o_x=solver(x, velocity, steps, shift),
                  o_sigmas=torch.tensor(sampler.grid(steps, shift), dtype=torch.float64).float())


def networks(s):
    model, vae, mean, std, tok = export.shipped()
    ids = tok.batch(PROMPTS)
    context = model.context(ids)
    s.add('net.text', i_ids=ids.int(), o_y=context)
    x, t, taps = s.random(2, 16, 3, 6, 4), torch.tensor([937., 214.]), []
    v = model.dit(x, t, context[:2], taps)
    s.add('net.dit', i_x=x, i_t=t, o_v=v, **{'o_block%d' % i: taps[i][:1] for i in (0, len(taps) - 1)})
    z = s.random(1, 16, 3, 4, 4) * std.view(1, -1, 1, 1, 1) + mean.view(1, -1, 1, 1, 1)
    s.add('net.vae', i_z=z, o_rgb=vae.decode(z), o_first_frame=vae.decode(z[:, :, :1]))
    noise, trace = s.random(1, 16, 5, 8, 8), []

    def velocity(x, t):
        trace.append(x)
        v = model.dit(torch.cat([x, x]), torch.full((2,), t), context[[0, 3]])
        return v[1:] + export.SAMPLING['guidance'] * (v[:1] - v[1:])
    z = sampler.unipc(noise, velocity, export.SAMPLING['steps'], export.SAMPLING['shift'])
    clip = vae.decode(z * std.view(1, -1, 1, 1, 1) + mean.view(1, -1, 1, 1, 1))
    s.add('run.starter', i_noise=noise, o_x1=trace[1], o_x2=trace[2], o_x10=trace[10], o_z=z,
          o_rgb_frames_0_8_16=clip[:, :, [0, 8, 16]])


@torch.no_grad()
def main(path):
    torch.set_num_threads(1)
    s = Sheet()
    for part in (plain_operators, attention_operators, vae_operators, sampling_operators, networks):
        part(s)
    tensors.save(path, s.tensors, {'prompts': '\n'.join(PROMPTS), 'heads': '2', 'head_dim': '128', 'rope_grid': '3,2,2',
                                   'text_block_heads': '4', 'repeated_keys': '20'})


if __name__ == '__main__':
    main(sys.argv[1])
