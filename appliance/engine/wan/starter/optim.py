"""Muon (momentum, orthogonalised) for hidden matrices and AdamW for the rest, under one schedule factor."""
import torch

MOMENTS = ('exp_avg', 'exp_avg_sq')


def orthogonal(g, steps=5):
    """Newton-Schulz on one matrix: singular values to about one. One at a time, each stays in the cache."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.t().contiguous() if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        m = x @ x.t()
        x = a * x + (b * m + c * (m @ m)) @ x
    return (x.t() if tall else x).float()


class Optimizer:
    """hidden: matrices for Muon. groups: list of (AdamW learning rate, parameters)."""

    def __init__(self, hidden, groups, lr, momentum=.95, decay=.1):
        self.hidden, self.lr, self.momentum, self.decay = list(hidden), lr, momentum, decay
        self.buffers = [torch.zeros_like(p) for p in self.hidden]
        self.base = [r for r, _ in groups]
        self.adam = torch.optim.AdamW([dict(params=list(p), lr=r) for r, p in groups], betas=(.9, .98),
                                      weight_decay=0.)
        self.count = 0

    @torch.no_grad()
    def step(self, factor):
        for group, base in zip(self.adam.param_groups, self.base):
            group['lr'] = base * factor
        self.adam.step()
        self.count += 1
        for p, buffer in zip(self.hidden, self.buffers):
            buffer.lerp_(p.grad, 1 - self.momentum)
            o = orthogonal(p.grad.lerp(buffer, self.momentum).reshape(p.shape[0], -1))
            scale = self.lr * factor * max(1, o.shape[0] / o.shape[1]) ** .5
            p.mul_(1 - self.lr * factor * self.decay).add_(o.view(p.shape), alpha=-scale)

    def zero_grad(self):
        for p in self.hidden:
            p.grad = None
        self.adam.zero_grad(set_to_none=True)

    def adam_parameters(self):
        return [p for group in self.adam.param_groups for p in group['params']]

    def state(self):
        """Flat, by position: what restart.py writes as tensors."""
        moments = {'%d.%s' % (i, m): self.adam.state[p][m] for i, p in enumerate(self.adam_parameters())
                   if p in self.adam.state for m in MOMENTS}
        return dict(buffers={str(i): b for i, b in enumerate(self.buffers)}, moments=moments, count=self.count)

    def load(self, state):
        self.count = state['count']
        for i, b in enumerate(self.buffers):
            b.copy_(state['buffers'][str(i)])
        for i, p in enumerate(self.adam_parameters()):
            if '%d.%s' % (i, MOMENTS[0]) in state['moments']:
                self.adam.state[p] = dict(step=torch.tensor(float(self.count)), **{
                    m: state['moments']['%d.%s' % (i, m)].float().clone() for m in MOMENTS})
