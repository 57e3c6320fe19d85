"""The shipped files: three safetensors in Comfy's layout under the published names. The matrices of the transformer's
blocks are F8 (E4M3, scaled), all else is f16.

Shapes tell the loader all but what __metadata__ holds: heads, lengths, the VAE's plan, sampling defaults. The mean and
deviation of the latents are among the metadata of the VAE.
"""
import json
import os

import torch

import tensors
import world
from model import CONFIG, TEXT_LEN, Vae
from train_dit import SAMPLING, Model
from tokenizer import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
WEIGHTS = os.path.join(HERE, 'weights')
FILES = dict(dit='diffusion_models/reeld_starter.safetensors', text='text_encoders/reeld_starter_text.safetensors',
             vae='vae/reeld_starter_vae.safetensors')


def numbers(values):
    return ','.join('%g' % v for v in values)


def metadata_dit(step):
    return {'format': 'pt', 'model': 'starter', 'heads': str(CONFIG['dit']['heads']), 'text_len': str(TEXT_LEN),
            'width': str(world.SIZE_PX), 'height': str(world.SIZE_PX), 'frames': str(world.FRAMES),
            'fps': str(world.FPS), 'steps': str(SAMPLING['steps']), 'shift': '%g' % SAMPLING['shift'],
            'cfg': '%g' % SAMPLING['guidance'], 'solver': 'unipc', 'schedule': 'wan', 'negative_prompt': '',
            'trained_steps': str(step)}


def metadata_vae(mean, std):
    plan = CONFIG['vae']
    return {'format': 'pt', 'model': 'starter', 'mult': numbers(plan['mult']), 'res_blocks': str(plan['res_blocks']),
            'temporal_upsample': ','.join('01'[t] for t in plan['temporal']),
            'latents_mean': ','.join('%.9g' % v for v in mean), 'latents_std': ','.join('%.9g' % v for v in std)}


def packed(state):
    inner = lambda name, t: name.startswith('blocks.') and name.endswith('.weight') and t.ndim == 2
    return {k: tensors.f8(v) if inner(k, v) else v.detach().half() for k, v in state.items()}


def export(model, vae, mean, std, tokenizer, step, folder=WEIGHTS):
    """Writes the three files; returns their sizes in bytes."""
    half = lambda state: {k: v.detach().half() for k, v in state.items()}
    text = half(model.text.published())
    text['spiece_model'] = torch.frombuffer(bytearray(tokenizer.proto), dtype=torch.uint8)
    shipped = {k: v for k, v in vae.state_dict().items() if k.startswith(('decoder.', 'conv2.'))}
    content = dict(dit=(packed(model.dit.state_dict()), metadata_dit(step)),
                   text=(text, {'format': 'pt', 'model': 'starter', 'text_len': str(TEXT_LEN)}),
                   vae=(half(shipped), metadata_vae(mean.tolist(), std.tolist())))
    sizes = {}
    for part, (state, metadata) in content.items():
        path = os.path.join(folder, FILES[part])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        tensors.save(path, state, metadata)
        sizes[FILES[part]] = os.path.getsize(path)
    return sizes


def shipped(folder=WEIGHTS):
    """(model, vae, mean, std, tokenizer) read back from the three files, in f32. The VAE's encoder is not among them."""
    state, about = tensors.load(os.path.join(folder, FILES['text']))
    tokenizer = Tokenizer(proto=state.pop('spiece_model').numpy().tobytes())
    model = Model(tokenizer.size)
    for name, target in model.text.published().items():
        target.copy_(state[name])
    dit, _ = tensors.load(os.path.join(folder, FILES['dit']))
    model.dit.load_state_dict({k: v.float() for k, v in dit.items()})
    decoder, about = tensors.load(os.path.join(folder, FILES['vae']))
    vae = Vae(**CONFIG['vae'])
    vae.load_state_dict({k: v.float() for k, v in decoder.items()}, strict=False)
    mean, std = (torch.tensor([float(v) for v in about['latents_' + k].split(',')]) for k in ('mean', 'std'))
    return model.eval(), vae.eval(), mean, std, tokenizer


if __name__ == '__main__':
    for name in FILES.values():
        state, about = tensors.load(os.path.join(WEIGHTS, name))
        print(name, json.dumps(about, indent=1), sum(t.numel() for t in state.values()), 'values')
