"""Data from a stream: no length, no epochs, and an exact resume.

The stream never ends, like a queue or a log, and a buffer shuffles its samples. The loop only needs an iterable. With
`state_dict` and `load_state_dict`, a resumed run continues in the middle of the stream, with the samples that were
waiting in the buffer. Press Ctrl-C or kill it, and continue with --resume: it ends with the same bits.

    python examples/stream.py [--iters 300] [--resume]
"""

import argparse
import random

import torch
from torch.utils.data import default_collate

from hookline import EvalLoop, Optim, Runner, TrainLoop
from hookline.data import Digits, DigitsNet, ResumableLoader
from hookline.metrics import accuracy
from hookline.steps import cross_entropy, predict


class Stream:
    """Batches from an endless source, shuffled by a buffer of samples.

    Args:
        source: Returns the sample at any position of the stream.
        batch_size: Samples per batch.
        buffer: The number of samples that wait; each one that leaves is chosen at random.
    """

    def __init__(self, source, batch_size, buffer=256):
        self.source, self.batch_size = source, batch_size
        self.position, self.waiting = 0, []
        self.buffer, self.random = buffer, random.Random(0)

    def __iter__(self):
        while True:
            batch = [self.next_sample() for _ in range(self.batch_size)]
            yield default_collate([self.source(position) for position in batch])

    def next_sample(self):
        """Take a random sample from the buffer, after the stream has filled it."""
        while len(self.waiting) < self.buffer:
            self.waiting.append(self.position)
            self.position += 1
        return self.waiting.pop(self.random.randrange(self.buffer))

    def state_dict(self):
        version, numbers, gauss = self.random.getstate()
        return {"position": self.position, "waiting": list(self.waiting), "random": [version, list(numbers), gauss]}

    def load_state_dict(self, state):
        version, numbers, gauss = state["random"]
        self.position, self.waiting = state["position"], list(state["waiting"])
        self.random.setstate((version, tuple(numbers), gauss))


parser = argparse.ArgumentParser()
parser.add_argument("--iters", type=int, default=300)
parser.add_argument("--resume", action="store_true")
options = parser.parse_args()

torch.manual_seed(0)
digits, model = Digits("train"), DigitsNet(width=8)
stream = Stream(lambda position: digits[position % len(digits)], batch_size=32)
runner = Runner(
    model,
    train=TrainLoop(stream, cross_entropy, max_iters=options.iters, val_interval=100),
    val=EvalLoop(ResumableLoader(Digits("val"), 256), predict, metrics={"accuracy": accuracy}),
    optim=Optim(torch.optim.AdamW(model.parameters(), lr=5e-3)),
    default_hooks={"logger": {"interval": 50}, "checkpoint": {"interval": 50, "max_keep_ckpts": 2}},
    work_dir="runs/stream",
    resume=options.resume,
)
runner.train()
print(f"{stream.position:,} samples left the source, {len(stream.waiting)} of them wait in the buffer")
