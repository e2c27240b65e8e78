"""A GPT on real text: a small character-level transformer that learns to write like the pages of docs/.

The math is a model and a step of one line. Around it, without changing the loop: parameter groups, warmup and cosine
by iteration, clipping, the best checkpoint, and a hook that writes a sample after every validation. Kill it whenever
you like, and continue with --resume: the samples will be the same to the letter.

    python examples/gpt.py [--iters 600] [--resume]
"""

import argparse
import math
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.data import ResumableLoader
from hookline.schedules import Cosine

BLOCK, WIDTH, HEADS, LAYERS = 48, 64, 4, 2
TEXT = "\n".join(page.read_text() for page in sorted((Path(__file__).parents[1] / "docs").glob("*.md")))
LETTERS = sorted(set(TEXT))


class Windows(Dataset):
    """All windows of a text: BLOCK letters, and the same ones shifted by one."""

    def __init__(self, text, every=1):
        self.tokens = torch.tensor([LETTERS.index(letter) for letter in text])
        self.every = every

    def __len__(self):
        return (len(self.tokens) - BLOCK - 1) // self.every

    def __getitem__(self, index):
        window = self.tokens[index * self.every : index * self.every + BLOCK + 1]
        return window[:-1], window[1:]


class Block(nn.Module):
    """Attention to the letters so far, and an MLP."""

    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    """Scores for the next letter, at every place."""

    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS)))
        for embedding in (self.letters, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.letters(tokens) + self.places(places)))

    @torch.no_grad()
    def write(self, start, length, generator):
        """Continue a text, letter by letter."""
        tokens = torch.tensor([[LETTERS.index(letter) for letter in start]], device=self.places.weight.device)
        for _ in range(length):
            chances = self(tokens[:, -BLOCK:])[:, -1].softmax(-1).cpu()
            tokens = torch.cat([tokens, torch.multinomial(chances, 1, generator=generator).to(tokens.device)], 1)
        return "".join(LETTERS[token] for token in tokens[0])


class WriteHook(Hook):
    """Writes a sample after every validation, to the screen and to TensorBoard."""

    role = "observer"

    def after_val_epoch(self, runner, metrics):
        text = runner.model.write("A hook ", 150, torch.Generator().manual_seed(runner.iter))
        runner.writers.write_text("sample", text, runner.iter)
        print(f"--- {runner.iter} iterations, {metrics['loss'] / math.log(2):.2f} bits per letter\n{text}\n---")


def loss_of(model, batch):
    """Return the cross entropy of the next letters."""
    tokens, following = batch
    return functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten())


parser = argparse.ArgumentParser()
parser.add_argument("--iters", type=int, default=600)
parser.add_argument("--resume", action="store_true")
options = parser.parse_args()

torch.manual_seed(0)
model = GPT()
matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
optimizer = torch.optim.AdamW(
    [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=6e-3
)
split = int(0.95 * len(TEXT))
Runner(
    model,
    train=TrainLoop(
        ResumableLoader(Windows(TEXT[:split]), 32, shuffle=True), loss_of, max_iters=options.iters, val_interval=150
    ),
    val=EvalLoop(ResumableLoader(Windows(TEXT[split:], every=BLOCK), 64), loss=loss_of),
    optim=Optim(optimizer, schedulers=[Cosine(optimizer, warmup=0.1)], clip_norm=1.0),
    default_hooks={"logger": {"interval": 50}, "checkpoint": {"save_best": "loss", "max_keep_ckpts": 1}},
    custom_hooks=[WriteHook()],
    writers=["jsonl", "tensorboard"],
    work_dir="runs/gpt",
    resume=options.resume,
).train()
