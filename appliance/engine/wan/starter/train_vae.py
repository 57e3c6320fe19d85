"""Stage 1: the video VAE. Called by train.py."""
import math
import random

import numpy as np
import torch
import torch.nn.functional as F

import world
from model import CONFIG, Vae
from optim import Optimizer
from run import generator

SEED = 1
STEPS = 2600
ENCODER_STEPS = 1600     # then the encoder is fixed and only the decoder learns
STATISTICS_STEPS = 300   # then the latents' unit variance is fixed
LATENT_NOISE = .12       # what the decoder must bear, in units of the latents' deviation


class Clips:
    """Training clips by (geometry, paint), drawn from the coverage masks."""

    def __init__(self):
        self.masks, self.specs = world.masks(), world.training_specs()

    def clip(self, geometry, paint):
        return torch.from_numpy(world.clip(self.masks[geometry] / np.float32(255), *world.PAINTS[paint]))

    def crops(self, rng):
        """14 of 5 frames or 8 of 9, 32 x 32 px, most of them at an edge of the object."""
        frames = rng.choice([5, 9])
        out = []
        for _ in range(14 if frames == 5 else 8):
            g, p = rng.choice(self.specs)
            t = rng.randrange(0, world.FRAMES - frames + 1, 4)
            y, x = rng.randrange(33), rng.randrange(33)
            inside = np.argwhere(self.masks[g, t] > 64)
            if len(inside) and rng.random() < .85:
                cy, cx = inside[rng.randrange(len(inside))]
                y, x = (min(32, max(0, int(c) - rng.randrange(32))) for c in (cy, cx))
            m = self.masks[g, t:t + frames, y:y + 32, x:x + 32] / np.float32(255)
            out.append(torch.from_numpy(world.clip(m, *world.PAINTS[p])))
        return torch.stack(out)

    def whole(self, rng, count=1):
        return torch.stack([self.clip(*rng.choice(self.specs)) for _ in range(count)])


def start_from_principal_components(vae, clips, rng):
    """The linear path becomes the first components of the patches; the louder a component, the louder its latent."""
    u = torch.cat([Vae.patches(clips.whole(rng, 1))[:, :, :, :].permute(0, 2, 3, 1).reshape(-1, Vae.PATCH)
                   for _ in range(400)])
    u = torch.cat([u[u.std(1) > .05], u[u.std(1) <= .05][::8]])
    mean = u.mean(0)
    torch.manual_seed(SEED)
    _, s, v = torch.pca_lowrank(u - mean, vae.z, niter=4)
    explained = float(s.pow(2).sum() / (u - mean).pow(2).sum())
    with torch.no_grad():
        w = v.t() / (s / len(u) ** .5)[:, None]
        vae.linear.weight.copy_(w[:, :, None, None])
        vae.linear.bias.copy_(-w @ mean)
        loud = s.sqrt()
        vae.spectrum.copy_(loud / loud.pow(2).mean().sqrt())
    return explained


def edges(v):
    """1 where a neighbour in space differs, widened by a pixel; [B, 1, T, H, W]."""
    B, _, T, H, W = v.shape
    x = v.transpose(1, 2).reshape(B * T, 3, H, W)
    e = torch.zeros(B * T, 1, H, W)
    e[..., 1:] = (x[..., 1:] - x[..., :-1]).abs().amax(1, keepdim=True)
    e[..., 1:, :] = torch.maximum(e[..., 1:, :], (x[..., 1:, :] - x[..., :-1, :]).abs().amax(1, keepdim=True))
    return F.max_pool2d((e > .1).float(), 3, 1, 1).view(B, T, 1, H, W).transpose(1, 2)


def build(clips):
    torch.manual_seed(SEED)
    vae = Vae(**CONFIG['vae'])
    explained = start_from_principal_components(vae, clips, random.Random(SEED))
    hidden = [p for n, p in vae.named_parameters() if 'residual' in n and p.ndim == 5]
    rest = [p for p in vae.parameters() if all(p is not h for h in hidden)]
    return vae, Optimizer(hidden, [(2e-3, rest)], lr=.012), explained


def train(run, clips, steps=STEPS, every=100):
    """Returns the averaged VAE, or None when stopped before the end."""
    vae, optimizer, explained = build(clips)
    average, step, sums = {k: v.clone() for k, v in vae.state_dict().items()}, 0, [0., 0]
    state = run.restart()
    if state:
        vae.load_state_dict(state['vae'])
        optimizer.load(state['optimizer'])
        average, step = state['average'], state['step']
    else:
        run.say('components hold %.3f of the variance' % explained)
    save = lambda: run.save(dict(vae=vae.state_dict(), optimizer=optimizer.state(), average=average, step=step))
    while step < steps:
        if not run.may_go_on():
            save()
            return None
        rng, gen = random.Random(SEED * 1000003 + step), generator(SEED, step)
        done = step / steps
        whole = step % 3 == 0 if done < .6 else step % 3 != 0
        v = clips.whole(rng) if whole else clips.crops(rng)
        vae.unit.train(step < STATISTICS_STEPS)
        with torch.autocast('cpu', dtype=torch.bfloat16):
            with torch.set_grad_enabled(step < ENCODER_STEPS):
                z = vae.encode(v)
            r = vae.decode((z + torch.randn(z.shape, generator=gen) * LATENT_NOISE).bfloat16())
        d = r.float() - v
        loss = ((1 + 3 * edges(v)) * (d.abs() + d * d)).mean()
        optimizer.zero_grad()
        loss.backward()
        if step >= ENCODER_STEPS:
            for p in (*vae.linear.parameters(), *vae.correction.parameters()):
                p.grad = None
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.)
        optimizer.step(min(1, (step + 1) / 50) * (.01 + .99 * (1 - done)))
        step += 1
        with torch.no_grad():
            keep = min(.995, step / (step + 20))
            for k, p in vae.state_dict().items():
                average[k].mul_(keep).add_(p, alpha=1 - keep) if p.is_floating_point() else average[k].copy_(p)
        sums = [sums[0] + float((d * d).mean()), sums[1] + 1]
        if step % every == 0:
            run.say('step %d loss %.4f psnr %.2f busy_s %.0f' % (
                step, float(loss), 10 * math.log10(4 * sums[1] / sums[0]), run.busy_s()))
            sums = [0., 0]
            save()
    save()
    return loaded(average)


def loaded(state):
    vae = Vae(**CONFIG['vae'])
    vae.load_state_dict(state)
    return vae.eval()


@torch.no_grad()
def reconstruct(vae, clip, noise=0., gen=None):
    """clip [B, 3, T, H, W]; what the judge sees of the VAE alone."""
    with torch.autocast('cpu', dtype=torch.bfloat16):
        z = vae.encode(clip)
        if noise:
            z = z + torch.randn(z.shape, generator=gen) * noise
        return vae.decode(z.bfloat16()).float()
