"""The committed restart point: the scratch folder's state in one safetensors file that is small enough for the repository.

Weights in f16, Muon's momentum and Adam's moments in bf16: less than the noise of a step. The averaged weights
are the shipped ones in weights/. A run from it is not bit for bit the run that was interrupted; one from a scratch
folder is.
"""
import os

import torch

import tensors

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, 'restart.safetensors')


def pack(scratch, path=PATH):
    dit, vae = (torch.load(os.path.join(scratch, n + '.pt')) for n in ('dit', 'vae'))
    out = {'model.' + k: v.half() for k, v in dit['model'].items()}
    for kind in ('buffers', 'moments'):
        out.update(('%s.%s' % (kind, k), v.bfloat16()) for k, v in dit['optimizer'][kind].items())
    out.update(('vae.' + k, v) for k, v in vae['average'].items())
    with open(os.path.join(scratch, 'spiece.model'), 'rb') as f:
        out['spiece_model'] = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8)
    tensors.save(path, out, {'step': str(dit['step']), 'vae_step': str(vae['step'])})


def unpack(scratch, path=PATH):
    """Writes vae.pt, dit.pt and spiece.model where the scratch folder has none."""
    os.makedirs(scratch, exist_ok=True)
    state, about = tensors.load(path)
    part = lambda prefix: {k[len(prefix):]: v for k, v in state.items() if k.startswith(prefix)}
    step = int(about['step'])
    _write(scratch, 'vae.pt', lambda: dict(average=part('vae.'), step=int(about['vae_step'])))
    _write(scratch, 'dit.pt', lambda: dict(
        model={k: v.float() for k, v in part('model.').items()}, average=None, step=step,
        optimizer=dict(buffers=part('buffers.'), moments=part('moments.'), count=step)))
    if not os.path.exists(os.path.join(scratch, 'spiece.model')):
        with open(os.path.join(scratch, 'spiece.model'), 'wb') as f:
            f.write(state['spiece_model'].numpy().tobytes())


def _write(scratch, name, make):
    path = os.path.join(scratch, name)
    if not os.path.exists(path):
        torch.save(make(), path)
