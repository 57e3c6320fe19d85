#!/usr/bin/env python3
"""Makes the tiny model of this folder and expected.safetensors, what PyTorch says it computes.

    python3 tests/unit/wan/make.py          (Debian's python3-torch, python3-sentencepiece)
    python3 tests/unit/wan/make.py starter  the same of the starter model, to starter.safetensors

The classes are those that the starter model is trained with (appliance/engine/wan/starter/model.py), in odd sizes and
with random parameters, biases and gains included, scaled so that softmax and norms are far from uniform: a wrong pair
of RoPE, a lost bias or two exchanged modulations change every number.
"""
import os
import sys
import tempfile

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '../../../appliance/engine/wan/starter'))
import model as nets  # noqa: E402
import sampler  # noqa: E402
import tensors  # noqa: E402

TEXT_LEN, STEPS, SHIFT, GUIDANCE, FRAMES = 16, 6, 3., 4., 9
TEXT = dict(dim=24, ffn=40, heads=4, layers=2, buckets=32)
DIT = dict(dim=64, ffn=96, heads=2, layers=2, channels=4, text_dim=24, freq_dim=32)
VAE = dict(dim=4, mult=(1, 1, 2, 2), res_blocks=1, z=4, temporal=(True, True, False))
MEAN, STD = torch.tensor([.3, -.2, .1, .5]), torch.tensor([.8, 1.3, .6, 1.1])
PROMPTS = ['a red circle moving left', 'one blue square', '']
WORDS = 'a one red blue circle square moving left right on white black background small big'.split()


def spiece(gen):
    """A vocabulary of these words and letters, without a normaliser (a few kB instead of 250)."""
    import sentencepiece
    back = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the model remembers the name of its text: it shall be the same everywhere
        with open('words.txt', 'w') as f:
            for _ in range(2000):
                f.write(' '.join(WORDS[i] for i in torch.randint(len(WORDS), (5,), generator=gen)) + '\n')
        sentencepiece.SentencePieceTrainer.train(
            input='words.txt', model_prefix='words', model_type='unigram', vocab_size=60, hard_vocab_limit=False,
            pad_id=0, eos_id=1, bos_id=2, unk_id=3, character_coverage=1., num_threads=1,
            normalization_rule_name='identity', minloglevel=2)
        with open('words.model', 'rb') as f:
            proto = f.read()
        os.chdir(back)
    return proto


def shake(module, gen):
    with torch.no_grad():
        for name, p in module.named_parameters():
            gain = p.ndim == 1 and p.mean() == 1 or 'gamma' in name
            fan = p[0].numel() if p.ndim > 1 and not gain else 9
            p.copy_(torch.randn(p.shape, generator=gen) * 1.3 * fan ** -.5 + (1.2 if gain else 0.))
            p.copy_(p.half().float())
    return module.eval()


class Table:
    """name -> tensor of expected.safetensors."""

    def __init__(self):
        self.all = {}

    def add(self, case, **values):
        for name, t in values.items():
            self.all['%s.%s' % (case, name)] = t.detach().contiguous().clone()


def frames_last(x):
    """[1, c, f, h, w] -> [f, h, w, c]"""
    return x[0].permute(1, 2, 3, 0)


def save(name, module_state, metadata):
    path = os.path.join(HERE, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    tensors.save(path, {k: v if v.dtype == torch.uint8 else v.half() for k, v in module_state.items()},
                 {'format': 'pt', 'model': 'tiny', **metadata})


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(11)
    proto = spiece(gen)
    import sentencepiece
    words = sentencepiece.SentencePieceProcessor(model_proto=proto)
    text = shake(nets.TextEncoder(words.vocab_size(), **TEXT), gen)
    dit = shake(nets.Dit(**DIT), gen)
    vae = shake(nets.Vae(**VAE), gen)
    comma = lambda values: ','.join('%.9g' % v for v in values)
    save('text_encoders/tiny_text.safetensors',
         dict(text.published(), spiece_model=torch.frombuffer(bytearray(proto), dtype=torch.uint8)),
         {'heads': str(TEXT['heads']), 'text_len': str(TEXT_LEN)})
    save('diffusion_models/tiny.safetensors', dit.state_dict(),
         {'heads': str(DIT['heads']), 'text_len': str(TEXT_LEN), 'width': '32', 'height': '32',
          'frames': str(FRAMES), 'fps': '8', 'steps': str(STEPS), 'shift': '%g' % SHIFT, 'cfg': '%g' % GUIDANCE,
          'solver': 'unipc', 'schedule': 'wan', 'negative_prompt': ''})
    save('vae/tiny_vae.safetensors',
         {k: v for k, v in vae.state_dict().items() if k.startswith(('decoder.', 'conv2.'))},
         {'mult': comma(VAE['mult']), 'res_blocks': str(VAE['res_blocks']),
          'temporal_upsample': ','.join('01'[t] for t in VAE['temporal']), 'latents_mean': comma(MEAN),
          'latents_std': comma(STD)})

    expected('expected.safetensors', text, dit, vae, MEAN, STD, words, TEXT_LEN, gen, grid=(3, 4, 8), latents=(3, 2, 3),
             run=(3, 4, 4), sampling=dict(steps=STEPS, shift=SHIFT, guidance=GUIDANCE), shown=4)


def expected(name, text, dit, vae, mean, std, words, text_len, gen, grid, latents, run, sampling, shown):
    """grid, latents, run: frames, rows and columns of the cases of the transformer, the decoder and the whole run."""
    out, z = Table(), vae.z
    ids = [words.encode(p)[:text_len - 1] + [1] for p in PROMPTS]
    padded = torch.tensor([i + [0] * (text_len - len(i)) for i in ids])
    context = text(padded)
    for k, i in enumerate(ids):
        out.add('text%d' % k, ids=torch.tensor(i).int(), rows=context[k, :len(i)])
    long = torch.arange(3, 3 + 40)[None] % words.vocab_size()
    out.add('text_long', ids=long[0].int(), rows=text(long)[0])
    out.add('buckets', of=nets.buckets(200)[0].int(), back=nets.buckets(200)[199].int())

    x = torch.randn(1, z, *grid, generator=gen)
    cos, sin = nets.rope_table(grid[0], grid[1] // 2, grid[2] // 2, dit.patch_embedding.out_channels // dit.heads)
    out.add('rope', cos=cos, sin=sin)
    for k, t in enumerate((937., 214.)):
        out.add('dit%d' % k, x=x[0], v=dit(x, torch.tensor([t]), context[k:k + 1])[0])
    out.add('dit_both1', v=dit(x, torch.tensor([937.]), context[1:2])[0])
    full = torch.randn(1, text_len, context.shape[-1], generator=gen)
    out.add('dit_full', context=full[0], v=dit(x, torch.tensor([500.]), full)[0])

    decode = lambda z: vae.decode(z * std.view(1, -1, 1, 1, 1) + mean.view(1, -1, 1, 1, 1))
    noise = torch.randn(1, z, *latents, generator=gen)
    out.add('vae', z=frames_last(noise), rgb=frames_last(decode(noise)))

    noise = torch.randn(1, z, *run, generator=gen)

    def velocity(x, t):
        v = dit(torch.cat([x, x]), torch.full((2,), t), context[[0, 2]])
        return v[1:] + sampling['guidance'] * (v[:1] - v[1:])
    for kind, solver in (('unipc', sampler.unipc), ('euler', sampler.euler)):
        end = solver(noise, velocity, sampling['steps'], sampling['shift'])
        out.add('run_' + kind, noise=noise[0], z=end[0], rgb=frames_last(decode(end))[::shown])
    tensors.save(os.path.join(HERE, name), out.all, {'prompts': '\n'.join(PROMPTS)})
    for key, t in sorted(out.all.items()):
        print(key, list(t.shape), '%.3f' % t.float().std())


@torch.no_grad()
def starter():
    """What the shipped weights compute. To be made anew whenever they change: the tests will say so."""
    import export
    torch.set_num_threads(1)
    model, vae, mean, std, tok = export.shipped(*sys.argv[2:3])
    expected('starter.safetensors', model.text, model.dit, vae, mean, std, tok.sp, nets.TEXT_LEN,
             torch.Generator().manual_seed(12), grid=(3, 4, 8), latents=(3, 2, 3), run=(5, 8, 8),
             sampling=export.SAMPLING, shown=8)


if sys.argv[1:2] == ['starter']:
    starter()
else:
    main()
