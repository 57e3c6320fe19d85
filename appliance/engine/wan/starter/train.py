#!/usr/bin/env python3
"""Trains the starter model on one CPU core: the VAE, then the latents, then text encoder and transformer.

usage: train.py --scratch DIR [--resume]    from where DIR stands; --resume: from restart/ where DIR has nothing
       train.py --scratch DIR --judge       the gate on the shipped weights: writes report.json, fails below it
       train.py --check                     30 steps of each stage in a folder of its own: the losses must fall

Every step draws from (seed, step) alone, so that a stopped run goes on as if it had not been. A file PAUSE in DIR
holds it before the next step; SIGTERM makes it write its restart point and end. The weights go to weights/, the
judge's words to report.json, the log to DIR/train.log.
"""
import argparse
import json
import os
import random
import re
import sys
import tempfile

# before torch: big blocks stay with the process, or every step would fault its pages in again
MALLOC = dict(OMP_NUM_THREADS='1', MALLOC_MMAP_THRESHOLD_='33554432', MALLOC_TRIM_THRESHOLD_='8589934592',
              MALLOC_TOP_PAD_='268435456')
if __name__ == '__main__' and any(os.environ.get(k) != v for k, v in MALLOC.items()):
    os.execve(sys.executable, [sys.executable] + sys.argv, {**os.environ, **MALLOC})

import torch

import export
import judge
import tokenizer as vocabulary
import train_dit
import train_vae
import world
from run import Run, generator
from restart import pack, unpack

HERE = os.path.dirname(os.path.abspath(__file__))


def judge_vae(vae, noise=0.):
    """The judge on what the VAE alone makes of the gate's clips."""
    gen = generator(9, 0)
    pairs = ((w, train_vae.reconstruct(vae, torch.from_numpy(c)[None], noise, gen)[0].numpy())
             for w, c in judge.true_clips(judge.gate_cases()))
    return judge.tally(pairs)


def judge_model(model, vae, table, tok, cases, seed, batch=32):
    """The judge on generated clips; prompts in their plain form, one seed per case."""
    fields = ('colour', 'shape', 'motion', 'background')

    def pairs():
        for at in range(0, len(cases), batch):
            part = cases[at:at + batch]
            out = train_dit.generate(model, vae, table['mean'], table['std'], tok,
                                     [world.canonical(*(w[f] for f in fields)) for w in part],
                                     [seed + at + i for i in range(len(part))])
            yield from zip(part, out.numpy())
    return judge.tally(pairs())


def get_vae(scratch, clips):
    run = Run(scratch, 'vae')
    state = run.restart()
    done = state and state['step'] >= train_vae.STEPS
    vae = train_vae.loaded(state['average']) if done else train_vae.train(run, clips)
    if vae is not None and not os.path.exists(run.path('vae.json')):
        words = {'%.2f' % noise: judge_vae(vae, noise) for noise in (0.,)}
        with open(run.path('vae.json'), 'w') as f:
            json.dump(words, f)
        run.say('judged, by noise on the latents: ' + json.dumps(words))
    return vae


def get_latents(scratch, vae, clips):
    run = Run(scratch, 'latents')
    state = run.restart()
    if state is None:
        state = train_dit.latents(vae, clips, world.training_specs(**world.TAUGHT), run)
        if state:
            run.save(state)
            run.say('%d clips' % len(state['z']))
    return state


def get_tokenizer(scratch):
    path = os.path.join(scratch, 'spiece.model')
    if not os.path.exists(path):
        vocabulary.train(path)
    return vocabulary.Tokenizer(path)


def train(scratch, steps, decay_from):
    clips = train_vae.Clips()
    vae = get_vae(scratch, clips)
    table = vae and get_latents(scratch, vae, clips)
    if not table:
        return 1
    tok = get_tokenizer(scratch)
    run = Run(scratch, 'dit')
    held_out = judge.gate_cases(per_triple=1)

    def look(model, step):
        export.export(model, vae, table['mean'], table['std'], tok, step, os.path.join(scratch, 'weights'))
        run.say('step %d held out: %s' % (step, json.dumps(judge_model(model, vae, table, tok, held_out, 10000))))
    rows = train_dit.Table(table['z'], table['mean'], table['std'], clips.masks,
                           world.training_specs(**world.TAUGHT))
    model = train_dit.train(run, rows, tok, steps, decay_from, look=look)
    if model is None:
        return 1
    export.export(model, vae, table['mean'], table['std'], tok, steps)
    pack(scratch)
    return 0


GATE = dict(colour=.98, motion=.95, shape=.85)
CEILING = dict(colour=.97, motion=.97, shape=.97)       # of the VAE alone, before anything is built on it


def seen_cases(count, seed):
    """Combinations that training did show, drawn with the seed."""
    rng, cases = random.Random(seed), []
    for g, p in rng.sample(world.training_specs(**world.TAUGHT), count):
        shape, motion = world.GEOMETRIES[g][:2]
        cases.append(dict(colour=world.PAINTS[p][0], shape=shape, motion=motion, background=world.PAINTS[p][1]))
    return cases


def gate(scratch):
    """report.json of the shipped weights. The VAE's encoder, which is not shipped, comes from the scratch folder."""
    model, vae, mean, std, tok = export.shipped()
    table = dict(mean=mean, std=std)
    whole = train_vae.loaded(torch.load(os.path.join(scratch, 'vae.pt'))['average'])
    whole.decoder, whole.conv2 = vae.decoder, vae.conv2
    held_out = judge.gate_cases()
    report = dict(
        gate=GATE, true_clips=judge.tally(judge.true_clips(held_out)), vae_alone=judge_vae(whole),
        held_out=judge_model(model, vae, table, tok, held_out, 20000),
        seen=judge_model(model, vae, table, tok, seen_cases(100, 4), 30000))
    report['passed'] = (all(report['held_out'][k] >= v for k, v in GATE.items())
                        and all(report['vae_alone'][k] >= v for k, v in CEILING.items()))
    with open(os.path.join(HERE, 'report.json'), 'w') as f:
        f.write(json.dumps(report, indent=1) + '\n')
    print(json.dumps(report, indent=1))
    return 0 if report['passed'] else 1


def check():
    """Thirty steps of each stage; true where both losses fall by a fifth."""
    with tempfile.TemporaryDirectory() as scratch:
        clips = train_vae.Clips()
        run = Run(scratch, 'vae')
        vae = train_vae.train(run, clips, steps=30, every=5)
        specs = world.training_specs(**world.TAUGHT)[::16]
        table = train_dit.latents(vae, clips, specs, run)
        rows = train_dit.Table(table['z'], table['mean'], table['std'], clips.masks, specs)
        train_dit.train(Run(scratch, 'dit'), rows, get_tokenizer(scratch), 30, 30, every=5, warm_up=5)
        with open(os.path.join(scratch, 'train.log')) as f:
            log = f.read()
    falls = True
    for stage in ('vae', 'dit'):
        losses = [float(v) for v in re.findall(r'^%s step \d+ loss ([\d.]+)' % stage, log, re.M)]
        print(stage, 'loss', losses[0], '->', losses[-1])
        falls = falls and losses[-1] < .8 * losses[0]
    return 0 if falls else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--scratch', help='folder of restart points and tables, outside the repository')
    parser.add_argument('--resume', action='store_true', help='start from the committed restart point')
    parser.add_argument('--judge', action='store_true')
    parser.add_argument('--check', action='store_true')
    parser.add_argument('--steps', type=int, default=train_dit.STEPS)
    parser.add_argument('--decay-from', type=int, default=train_dit.DECAY_FROM)
    a = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if a.check:
        return check()
    if not a.scratch:
        parser.error('--scratch is needed')
    if a.resume:
        unpack(a.scratch)
    if a.judge:
        return gate(a.scratch)
    return train(a.scratch, a.steps, a.decay_from)


if __name__ == '__main__':
    sys.exit(main())
