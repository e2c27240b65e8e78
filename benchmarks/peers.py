"""Compare hookline with other engines: the same training in a bare loop and in seven engines, in one interleaved run.

python benchmarks/peers.py               tables: seconds per step, as a ratio to the bare loop
python benchmarks/peers.py --write       also write them into README.md and docs/performance.md, with a chart
python benchmarks/peers.py --rounds 2    fewer rounds, to try it; otherwise as many as fit into --minutes

`make bench-peers` does this in an environment of its own, which has all engines.

Every engine trains three models twice: with nothing but the loop and a scheduler that is stepped every iteration, and
with logging, a progress bar and checkpoints: a file and TensorBoard every 10 steps, a progress display on a terminal, a
scheduler, and a checkpoint at the end. The engines take turns in one process, in another order in every round, and the
minimum of all rounds counts. The final weights of every run have to equal the weights of the bare loop. An engine that
is missing, fails or computes something else is listed with the reason.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.metadata
import logging
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import IO

import torch

import pages
import peer_tables
from engines import bare
from engines.models import MODELS
from engines.results import BARE, Case, Engine, Results
from engines.task import Model, Task
from terminals import on_a_terminal

#: How far a weight may be from that of the bare loop.
TOLERANCE = 1e-6
LEAST_ROUNDS = 3


ENGINES = (
    Engine("hookline", "engines.hookline_engine", "hookline"),
    Engine("Ignite", "engines.ignite_engine", "pytorch-ignite"),
    Engine("MMEngine", "engines.mmengine_engine", "mmengine"),
    Engine("accelerate", "engines.accelerate_engine", "accelerate"),
    Engine("torchtnt", "engines.torchtnt_engine", "torchtnt"),
    Engine("Lightning", "engines.lightning_engine", "lightning"),
    Engine("Transformers", "engines.transformers_engine", "transformers"),
)


def load(models: Sequence[Model], results: Results) -> dict[str, Callable[[Task], None]]:
    """Import the engines. One that cannot be imported is a failure of all its cases."""
    found: dict[str, Callable[[Task], None]] = {}
    for engine in results.engines:
        try:
            found[engine.name] = importlib.import_module(engine.module).train
        except Exception as error:
            for model in models:
                for everything in (False, True):
                    results.failures[Case(engine.name, model.name, everything)] = reason_of(error)
    return found


def reason_of(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


@cache
def weights_of_bare_loop(model: Model, steps: int) -> list[torch.Tensor]:
    """Return the final weights of the bare loop, which every engine has to reach."""
    task = Task(model, Path(), everything=False, steps=steps)
    task.run(bare.train)
    return list(task.model.state_dict().values())


def run_once(case: Case, model: Model, train: Callable[[Task], None], results: Results, steps: int | None) -> None:
    """Make one run of a case, and compare its weights. A failure takes the case out of the comparison."""
    expected = weights_of_bare_loop(model, steps or model.steps)
    gc.collect()
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        task = Task(model, Path(folder), case.everything, steps)
        try:
            times = task.run(train)
        except Exception as error:
            results.failures[case] = reason_of(error)
            return
    found = task.model.state_dict().values()
    far = max((one.double() - other.double()).abs().max().item() for one, other in zip(found, expected, strict=True))
    if not far <= TOLERANCE:  # also if it is NaN
        results.failures[case] = f"its weights are not those of the bare loop: they differ by up to {far:.2g}"
        return
    results.times.setdefault(case, []).append(times)


def one_round(
    models: Sequence[Model],
    engines: dict[str, Callable[[Task], None]],
    results: Results,
    order: random.Random,
    steps: int | None = None,
) -> None:
    """Run every case once. The cases of one model follow each other, in random order."""
    for model in models:
        cases = [Case(name, model.name, everything) for name in (BARE, *engines) for everything in (False, True)]
        order.shuffle(cases)
        for case in cases:
            by_hand = bare.train_by_hand if case.everything else bare.train
            train = by_hand if case.engine == BARE else engines[case.engine]
            if case not in results.failures:
                run_once(case, model, train, results, steps)


def measure(
    engines: Sequence[Engine],
    models: Sequence[Model],
    steps: int | None,
    rounds: int | None,
    minutes: float,
    shown: IO[str],
) -> Results:
    """Make rounds until the time is over, or exactly `rounds` of them."""
    began, order = time.monotonic(), random.Random(0)
    results, warm = Results(engines), Results(engines)
    loaded = load(models, results)
    warm.failures.update(results.failures)
    one_round(models, loaded, warm, order, steps=20)
    results.failures.update(warm.failures)
    gc.collect()
    gc.freeze()  # what the imports left is not a cost of anybody's steps
    done, longest = 0, 0.0
    while done < (rounds or LEAST_ROUNDS) or (rounds is None and time.monotonic() - began + longest < minutes * 60):
        start = time.monotonic()
        one_round(models, loaded, results, order, steps)
        done, longest = done + 1, max(longest, time.monotonic() - start)
        print(f"round {done} took {time.monotonic() - start:.0f} s", file=shown)
    gc.unfreeze()
    return results


def main() -> None:
    """Measure, print, and write the pages if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="rounds are made until this time is over")
    parser.add_argument("--rounds", type=int, help="make exactly so many rounds")
    parser.add_argument("--steps", type=int, help="measured steps per run, in tens; by default half a second of them")
    parser.add_argument("--models", nargs="+", choices=[model.name for model in MODELS], help="only these models")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help="write the figures into README.md and docs/performance.md")
    options = parser.parse_args()
    if options.steps is not None and (options.steps < 10 or options.steps % 10):
        parser.error(f"--steps must be a multiple of 10, not {options.steps}")
    if options.write and options.models:
        parser.error("--write needs all models")
    models = [model for model in MODELS if model.name in (options.models or [model.name])]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    with on_a_terminal() as shown:
        results = measure(ENGINES, models, options.steps, options.rounds, options.minutes, shown)
    print(peer_tables.as_json(results) if options.json else peer_tables.plain_text(results, models))
    if noise := peer_tables.find_noise(results, models):
        print(noise, file=sys.stderr)
    if options.write:
        pages.save("docs/images/peers.svg", peer_tables.chart(results, models))
        pages.write("README.md", "peers", peer_tables.readme_text(results, models[0]))
        pages.write("docs/performance.md", "peers", peer_tables.long_tables(results, models))


if __name__ == "__main__":
    main()
