"""Stage 2: the text encoder and the diffusion transformer, together, on a table of latents. Called by train.py."""
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import world
from model import CONFIG, TEXT_LEN, Dit, TextEncoder
from optim import Optimizer
from run import generator

SEED = 2
STEPS = 3800
DECAY_FROM = 2600        # constant rate until here, then linear to nothing at STEPS
WARM_UP = 100
BATCH = 32
SHIFT = 2.               # of the noise levels drawn
DROP = .1                # share of empty prompts, for guidance
FOREGROUND = 4.          # weight in the loss of latent cells that the object touches
AVERAGE = .998
PROBE = .1               # weight of the probes' losses
SAMPLING = dict(steps=20, shift=3., guidance=2.)    # guidance: of 1.5, 2, 3 and 4 the best on prompts of the training

ATTRIBUTES = dict(colour=list(world.COLOURS), shape=world.SHAPES, motion=world.MOTIONS,
                  background=list(world.BACKGROUNDS), size=list(world.SIZES), speed=list(world.SPEEDS))


class Table:
    """Every training clip as normalised latents, with what it shows."""

    def __init__(self, z, mean, std, masks, specs):
        self.z, self.mean, self.std, self.specs = z, mean, std, specs
        self.cells = foreground_cells(masks)
        self.labels = torch.tensor([labels_of(*s) for s in specs])

    def draw(self, rng, count):
        """Latents, weights of cells, labels and sentences of count clips."""
        which = [rng.randrange(len(self.specs)) for _ in range(count)]
        geometry = [self.specs[i][0] for i in which]
        weights = 1 + (FOREGROUND - 1) * self.cells[geometry].float()
        texts = []
        for i in which:
            g, p = self.specs[i]
            shape, motion, size, speed, _ = world.GEOMETRIES[g]
            colour, background = world.PAINTS[p]
            dropped = rng.random() < DROP
            texts.append('' if dropped else world.caption(rng, colour, shape, motion, size, speed, background))
        return self.z[which].float(), weights[:, None], self.labels[which], texts


def labels_of(geometry, paint):
    shape, motion, size, speed, _ = world.GEOMETRIES[geometry]
    colour, background = world.PAINTS[paint]
    said = dict(colour=colour, shape=shape, motion=motion, background=background, size=size, speed=speed)
    return [values.index(said[a]) for a, values in ATTRIBUTES.items()]


def foreground_cells(masks):
    """True where the object covers part of the 4 frames x 8 x 8 px of a latent; [geometries, F, H/8, W/8]."""
    m = np.concatenate([masks[:, :1]] * 3 + [masks], 1)
    n, t, h, w = m.shape
    return torch.from_numpy(m.reshape(n, t // 4, 4, h // 8, 8, w // 8, 8).max((2, 4, 6)) > 5)


@torch.no_grad()
def latents(vae, clips, specs, run):
    """(z f16, mean [16], std [16]). One deviation for all channels: the loud ones stay louder than the others."""
    parts = []
    for at in range(0, len(specs), 32):
        if not run.may_go_on():
            return None
        v = torch.stack([clips.clip(*s) for s in specs[at:at + 32]])
        with torch.autocast('cpu', dtype=torch.bfloat16):
            parts.append(vae.encode(v).half())
    z = torch.cat(parts)
    mean = z.float().mean((0, 2, 3, 4))
    for part in z.split(512):
        part.copy_(part.float() - mean.view(1, -1, 1, 1, 1))
    std = z.float().pow(2).mean().sqrt()
    for part in z.split(512):
        part.copy_(part.float() / std)
    return dict(z=z, mean=mean, std=std.expand(len(mean)).clone())


class Probes(nn.Module):
    """Small linear readers, for training only. They ask early layers for what the later ones need: what the sentence
    says, from the text encoder and from the tokens of block 2, and where a token lies, from block 1. Nothing in the
    transformer gives absolute places; without the question they are found late."""

    def __init__(self, text_dim, dim, grid):
        super().__init__()
        self.sizes = [len(v) for v in ATTRIBUTES.values()]
        self.text, self.token = nn.Linear(text_dim, sum(self.sizes)), nn.Linear(dim, sum(self.sizes))
        self.place = nn.Linear(dim, sum(grid))
        self.grid = grid
        axes = torch.meshgrid(*[torch.arange(n) for n in grid], indexing='ij')
        self.where = [a.flatten() for a in axes]

    def attributes(self, logits, labels, kept):
        parts = logits.float().split(self.sizes, -1)
        return sum(F.cross_entropy(p[kept].flatten(0, -2), labels[kept, i].view(-1, *[1] * (p.ndim - 2))
                                   .expand(p[kept].shape[:-1]).flatten()) for i, p in enumerate(parts))

    def places(self, x):
        parts = self.place(x).float().split(self.grid, -1)
        return sum(F.cross_entropy(p.flatten(0, 1), w.repeat(x.shape[0])) for p, w in zip(parts, self.where))


class Model(nn.Module):
    def __init__(self, vocab, grid=(5, 4, 4)):
        super().__init__()
        self.text = TextEncoder(vocab, **CONFIG['text'])
        self.dit = Dit(**CONFIG['dit'])
        self.probes = Probes(CONFIG['text']['dim'], CONFIG['dit']['dim'], grid)

    def context(self, ids):
        length = int((ids > 0).sum(1).max())       # the encoder sees the real tokens; the rest is zeros
        return F.pad(self.text(ids[:, :length]), (0, 0, 0, TEXT_LEN - length))

    def optimizer(self):
        hidden = [p for n, p in self.dit.named_parameters() if n.startswith('blocks.') and p.ndim == 2]
        other = [p for n, p in self.dit.named_parameters() if not (n.startswith('blocks.') and p.ndim == 2)]
        return Optimizer(hidden, [(1e-3, other), (2e-3, self.text.parameters()), (2e-3, self.probes.parameters())],
                         lr=.02)

    def losses(self, x0, weights, labels, ids, gen):
        """(weighted v loss, its parts by quarter of the noise range, probes' losses)."""
        n = x0.shape[0]
        u = (torch.randperm(n, generator=gen) + torch.rand(n, generator=gen)) / n
        sigma = SHIFT * u / (1 + (SHIFT - 1) * u)
        noise = torch.randn(x0.shape, generator=gen)
        s = sigma.view(-1, 1, 1, 1, 1)
        kept, taps = (ids > 0).sum(1) > 1, []
        with torch.autocast('cpu', dtype=torch.bfloat16):
            context = self.context(ids).bfloat16()
            v = self.dit((1 - s) * x0 + s * noise, sigma * 1000, context, taps)
            spoken = context.float().sum(1) / (ids > 0).sum(1, keepdim=True)
            probes = (self.probes.attributes(self.probes.text(spoken), labels, kept),
                      self.probes.places(taps[1].bfloat16()),
                      self.probes.attributes(self.probes.token(taps[2].bfloat16()), labels, kept))
        each = (weights * (v - (noise - x0)) ** 2).mean((1, 2, 3, 4)) / weights.mean()
        quarters = [each[(sigma * 4).long().clamp(max=3) == q].mean().item() for q in range(4)]
        return each.mean(), quarters, probes


def rate(step, decay_from, steps, warm_up):
    constant = min(1., (step + 1) / warm_up)
    if step < decay_from or decay_from >= steps:
        return constant
    return constant * max(0., (steps - step) / (steps - decay_from))


def averaged(model, average):
    """A copy of the model with the averaged weights."""
    copy = Model(model.text.shared.num_embeddings)
    copy.load_state_dict(dict(zip(dict(model.named_parameters()), average)), strict=False)
    return copy.eval()


def train(run, table, tokenizer, steps=STEPS, decay_from=DECAY_FROM, every=50, warm_up=WARM_UP, look=None,
          look_every=500):
    """look(model, step) is called with the averaged model. Returns the model, or None when stopped before the end."""
    torch.manual_seed(SEED)
    model = Model(tokenizer.size)
    optimizer, params = model.optimizer(), list(model.parameters())
    average, step, skipped = [p.detach().clone() for p in params], 0, 0
    state = run.restart()
    if state:
        model.load_state_dict(state['model'])
        optimizer.load(state['optimizer'])
        average, step = state['average'] or [p.detach().clone() for p in params], state['step']
    save = lambda: run.save(dict(model=model.state_dict(), optimizer=optimizer.state(), average=average, step=step))
    sums, count = np.zeros(8), 0
    while step < steps:
        if not run.may_go_on():
            save()
            return None
        rng, gen = random.Random(SEED * 1000003 + step), generator(SEED, step)
        x0, weights, labels, texts = table.draw(rng, BATCH)
        loss, quarters, probes = model.losses(x0, weights, labels, tokenizer.batch(texts), gen)
        optimizer.zero_grad()
        (loss + PROBE * sum(probes)).backward()
        norm = torch.nn.utils.clip_grad_norm_(params, 1.)
        step += 1
        if not torch.isfinite(norm):
            skipped += 1
            run.say('step %d skipped: not finite' % step)
            continue
        optimizer.step(rate(step, decay_from, steps, warm_up))
        with torch.no_grad():
            keep = min(AVERAGE, step / (step + 20))
            torch._foreach_mul_(average, keep)
            torch._foreach_add_(average, params, alpha=1 - keep)
        sums, count = sums + [loss.item(), *quarters, *(p.item() for p in probes)], count + 1
        if step % every == 0:
            mean = sums / count
            run.say('step %d loss %.4f by_noise %s said %.3f place %.3f heard %.3f busy_s %.0f' % (
                step, mean[0], ' '.join('%.3f' % q for q in mean[1:5]), *mean[5:], run.busy_s()))
            sums, count = np.zeros(8), 0
        if step % 200 == 0:
            save()
        if look and step % look_every == 0:
            look(averaged(model, average), step)
    save()
    return averaged(model, average)


@torch.no_grad()
def generate(model, vae, mean, std, tokenizer, prompts, seeds, steps=SAMPLING['steps'], shift=SAMPLING['shift'],
             guidance=SAMPLING['guidance'], grid=(5, 8, 8)):
    """Clips [B, 3, T, H, W] in -1..1, one seed per prompt."""
    from sampler import unipc
    noise = torch.stack([torch.randn(16, *grid, generator=torch.Generator().manual_seed(s)) for s in seeds])
    n = len(prompts)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        context = model.context(tokenizer.batch(list(prompts) + [''] * n)).bfloat16()

        def velocity(x, t):
            v = model.dit(torch.cat([x, x]), torch.full((2 * n,), t), context).float()
            return v[n:] + guidance * (v[:n] - v[n:])
        z = unipc(noise, velocity, steps, shift)
        z = z * std.view(1, -1, 1, 1, 1) + mean.view(1, -1, 1, 1, 1)
        return torch.cat([vae.decode(p.bfloat16()).float() for p in z.split(4)])
