#!/usr/bin/env python3
"""Makes the tiny model of this folder and expected.safetensors, what PyTorch says it computes.

    python3 tests/unit/wan/make.py          (Debian's python3-torch, python3-sentencepiece)

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
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, 't')
        with open(text, 'w') as f:
            for _ in range(2000):
                f.write(' '.join(WORDS[i] for i in torch.randint(len(WORDS), (5,), generator=gen)) + '\n')
        sentencepiece.SentencePieceTrainer.train(
            input=text, model_prefix=text, model_type='unigram', vocab_size=60, hard_vocab_limit=False, pad_id=0,
            eos_id=1, bos_id=2, unk_id=3, character_coverage=1., num_threads=1, normalization_rule_name='identity',
            minloglevel=2)
        with open(text + '.model', 'rb') as f:
            return f.read()


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
    gen, out = torch.Generator().manual_seed(11), Table()
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

    ids = [words.encode(p)[:TEXT_LEN - 1] + [1] for p in PROMPTS]
    padded = torch.tensor([i + [0] * (TEXT_LEN - len(i)) for i in ids])
    context = text(padded)
    for k, i in enumerate(ids):
        out.add('text%d' % k, ids=torch.tensor(i).int(), rows=context[k, :len(i)])
    long = torch.arange(3, 3 + 40)[None] % words.vocab_size()
    out.add('text_long', ids=long[0].int(), rows=text(long)[0])
    out.add('buckets', of=nets.buckets(200)[0].int(), back=nets.buckets(200)[199].int())

    cos, sin = nets.rope_table(3, 2, 4, 32)
    out.add('rope', cos=cos, sin=sin)
    x = torch.randn(1, 4, 3, 4, 8, generator=gen)
    for k, t in enumerate((937., 214.)):
        out.add('dit%d' % k, x=x[0], v=dit(x, torch.tensor([t]), context[k:k + 1])[0])
    out.add('dit_both1', v=dit(x, torch.tensor([937.]), context[1:2])[0])
    full = torch.randn(1, TEXT_LEN, TEXT['dim'], generator=gen)
    out.add('dit_full', context=full[0], v=dit(x, torch.tensor([500.]), full)[0])

    decode = lambda z: vae.decode(z * STD.view(1, -1, 1, 1, 1) + MEAN.view(1, -1, 1, 1, 1))
    z = torch.randn(1, 4, 3, 2, 3, generator=gen)
    out.add('vae', z=frames_last(z), rgb=frames_last(decode(z)))

    noise = torch.randn(1, 4, (FRAMES - 1) // 4 + 1, 4, 4, generator=gen)

    def velocity(x, t):
        v = dit(torch.cat([x, x]), torch.full((2,), t), context[[0, 2]])
        return v[1:] + GUIDANCE * (v[:1] - v[1:])
    for name, solver in (('unipc', sampler.unipc), ('euler', sampler.euler)):
        z = solver(noise, velocity, STEPS, SHIFT)
        out.add('run_' + name, noise=noise[0], z=z[0], rgb=frames_last(decode(z))[::4])
    tensors.save(os.path.join(HERE, 'expected.safetensors'), out.all, {'prompts': '\n'.join(PROMPTS)})
    for name, t in sorted(out.all.items()):
        print(name, list(t.shape), '%.3f' % t.float().std())


main()
