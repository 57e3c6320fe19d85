#!/usr/bin/env python3
"""The clip of bench_wan.c by PyTorch, with its best settings: prints the median of its processor seconds, one thread.

    wan_torch.py [WEIGHTS]

WEIGHTS: a folder in the layout of appliance/engine/wan/starter/weights, which is the default. bf16 autocast, the fused kernels that the
model was trained with, both prompts in one batch, the text encoded once.
"""
import os
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../appliance/engine/wan/starter'))
import export  # noqa: E402
import sampler  # noqa: E402

CLIPS = 9


@torch.no_grad()
def main(folder):
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    model, vae, mean, std, tok = export.shipped(folder)
    guidance, steps, shift = (export.SAMPLING[k] for k in ('guidance', 'steps', 'shift'))

    def clip(seed):
        context = model.context(tok.batch(['a red circle moving left', '']))

        def velocity(x, t):
            v = model.dit(torch.cat([x, x]), torch.full((2,), t), context)
            return v[1:] + guidance * (v[:1] - v[1:])
        noise = torch.randn(1, 16, 5, 8, 8, generator=torch.Generator().manual_seed(seed))
        z = sampler.unipc(noise, velocity, steps, shift)
        rgb = vae.decode(z.float() * std.view(1, -1, 1, 1, 1) + mean.view(1, -1, 1, 1, 1))
        return ((rgb.float().clamp(-1, 1) + 1) * 127.5).byte()
    seconds = []
    with torch.autocast('cpu', torch.bfloat16):
        for i in range(CLIPS + 2):
            start = time.process_time()
            clip(i)
            seconds.append(time.process_time() - start)
    print('%.4f' % sorted(seconds[2:])[CLIPS // 2])


main(sys.argv[1] if len(sys.argv) > 1 else export.WEIGHTS)
