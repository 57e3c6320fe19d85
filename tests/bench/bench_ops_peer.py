#!/usr/bin/env python3
"""The peer of bench_ops: oneDNN by way of PyTorch, the same products and convolutions in bf16 on one
thread. One line per case, `gemm M N K GFLOPS` or `conv H W CI CO GFLOPS`; no lines when this machine
has no PyTorch. The best of several ways and runs counts, in time of the processor."""
import sys
import time

try:
    import torch
    from torch.utils import mkldnn
except ImportError:
    sys.exit(0)

torch.set_num_threads(1)
torch.set_grad_enabled(False)


def best(run, flop):
    run()
    shortest = 1e9
    for _ in range(7):
        count = max(1, int(0.05 * 300e9 / flop))
        begun = time.process_time()
        for _ in range(count):
            run()
        shortest = min(shortest, (time.process_time() - begun) / count)
    return flop / shortest / 1e9


def gemm(m, n, k):
    x = torch.randn(m, k).bfloat16()
    linear = torch.nn.Linear(k, n).bfloat16()
    flop = 2 * m * n * k
    ways = [best(lambda: linear(x), flop)]
    try:  # the weight in the library's own layout
        packed = mkldnn.to_mkldnn(torch.nn.Linear(k, n), torch.bfloat16)
        blocked = x.to_mkldnn()
        ways.append(best(lambda: packed(blocked), flop))
    except (RuntimeError, AttributeError):
        pass
    return max(ways)


def conv(h, w, ci, co):
    x = torch.randn(1, ci, 3, h + 2, w + 2).bfloat16()
    layer = torch.nn.Conv3d(ci, co, 3).bfloat16()
    flop = 2 * h * w * co * ci * 27
    ways = [best(lambda: layer(x), flop)]
    ways.append(best(lambda: layer(x.contiguous(memory_format=torch.channels_last_3d)), flop))
    return max(ways)


for line in sys.stdin:
    kind, *sizes = line.split()
    sizes = [int(size) for size in sizes]
    print(kind, *sizes, round((gemm if kind == 'gemm' else conv)(*sizes)), flush=True)
