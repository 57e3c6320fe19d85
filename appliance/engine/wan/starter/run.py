"""What every long stage shares: the log, the restart point, the pause file, the stop on SIGTERM."""
import os
import signal
import time

import torch


class Run:
    def __init__(self, scratch, name):
        self.scratch, self.name, self.stop, self.began, self.idle = scratch, name, False, time.time(), 0.
        os.makedirs(scratch, exist_ok=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, *_):
        self.stop = True

    def path(self, name):
        return os.path.join(self.scratch, name)

    def say(self, text):
        line = '%s %s' % (self.name, text)
        print(line, flush=True)
        with open(self.path('train.log'), 'a') as f:
            f.write(line + '\n')

    def save(self, state):
        """Replaces the restart point of this stage whole or not at all."""
        part = self.path(self.name + '.part')
        torch.save(state, part)
        os.replace(part, self.path(self.name + '.pt'))

    def restart(self):
        path = self.path(self.name + '.pt')
        return torch.load(path) if os.path.exists(path) else None

    def may_go_on(self):
        """Call once a step: waits while the file PAUSE exists, and says whether to go on at all."""
        began = time.time()
        while os.path.exists(self.path('PAUSE')) and not self.stop:
            time.sleep(1)
        self.idle += time.time() - began
        return not self.stop

    def busy_s(self):
        return time.time() - self.began - self.idle


def generator(seed, step):
    """Random numbers of one step: a restart draws the same."""
    return torch.Generator().manual_seed(seed * 1000003 + step)
