"""Runs that leave out batches beside runs on data without them, and the samples of steps. Nothing here needs a process.

The figures SKIP and SAMPLES of `make faults` count them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from hookline.data import ResumableLoader
from hookline.data.skipping import parse_skip
from hookline.replay.samples import Batch, look_up
from tests.data.test_skipping import LOADERS, Records, bits, run, without
from tests.replay.test_samples import Numbers, runner_of

#: Each loader is trained with this many random choices of batches to leave out.
CHOICES = 5
#: The samples that are compared.
SAMPLES = 1000


def compare(folder: Path, number: int, chance: random.Random) -> str:
    """Train with a random choice of left out batches, and on data without them. Return what differs."""
    make, accumulate, cut = LOADERS[number % len(LOADERS)], chance.choice((1, 2, 3)), chance.randrange(1, 8)
    places = sorted(
        place for epoch in range(3) for place in chance.sample(range(5 * epoch, 5 * epoch + 5), chance.randrange(3))
    )
    skip = [str(place + 1) for place in places]
    one = run(folder / "skip", make(), accumulate=accumulate, skip=skip)
    other = run(folder / "without", without(folder, make, set(places)), accumulate=accumulate)
    if bits(folder / "skip") != bits(folder / "without"):
        return f"{make.__name__} without {parse_skip(skip)}: other losses"
    if not all(map(torch.equal, one.model.state_dict().values(), other.model.state_dict().values())):
        return f"{make.__name__} without {parse_skip(skip)}: other weights"
    if make.__name__ == "OwnOrder" or accumulate > 1:
        return ""
    try:
        run(folder / "cut", make(), Records(fails_at=cut), saves=True, skip=skip)
    except RuntimeError:
        run(folder / "cut", make(), Records(), skip=skip, resume=True)
    same = bits(folder / "cut") == bits(folder / "skip")
    return "" if same else f"{make.__name__} without {parse_skip(skip)}: other losses after an interruption in {cut}"


def measure() -> tuple[int, list[str]]:
    """Compare runs with every loader. Return how many there are, and what was wrong with which."""
    total, chance = CHOICES * len(LOADERS), random.Random(0)
    with TemporaryDirectory(prefix="hookline-skips-") as folder:
        found = [compare(Path(folder, str(number)), number, chance) for number in range(total)]
    return total, [problem for problem in found if problem]


def measure_samples(processes: Sequence[int] = (1, 2, 3)) -> tuple[int, list[str]]:
    """Compare the samples of steps with the samples that a loader reads, in all processes of a run."""
    compared, wrong, epoch = 0, [], 0
    loaders: dict[tuple[int, int], ResumableLoader] = {}
    while compared < SAMPLES:
        for several in processes:
            for rank in range(several):
                loader = loaders.setdefault((several, rank), ResumableLoader(Numbers(37), 5, shuffle=True, seed=0))
                loader.share(rank, several, pad=True)
                runner = runner_of(ResumableLoader(Numbers(37), 5, shuffle=True))
                for number, read in enumerate(loader.iterate(epoch)):
                    batch = Batch(Path(), epoch * len(loader) + number + 1, rank, several)
                    look_up(runner._host, batch)
                    ids = read.tolist()[: SAMPLES - compared]
                    compared += len(ids)
                    if batch.ids[: len(ids)] != ids:
                        wrong.append(f"step {batch.step}, rank {rank} of {several}: {batch.ids}, not {ids}")
        epoch += 1
    return compared, wrong
