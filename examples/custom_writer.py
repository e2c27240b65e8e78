"""A custom writer: every number of the run goes into a SQLite database.

A writer needs three methods. This one also names its file, so that a fresh run moves it aside with the rest of the old
run. When a run is resumed, it drops the rows after the checkpoint, because the run repeats these steps. A writer that
fails never ends the run.

    python examples/custom_writer.py [--resume]
"""

import sqlite3
import sys

import torch

from hookline import WRITERS, EvalLoop, Runner, TrainLoop, Writer
from hookline.data import Digits, DigitsNet, ResumableLoader
from hookline.metrics import accuracy
from hookline.steps import cross_entropy, predict


@WRITERS.register("sqlite")
class SqliteWriter(Writer):
    """Writes numbers to a table `(step, name, value)`.

    Args:
        filename: The name of the database in the run's folder.
    """

    keeps_images = False

    def __init__(self, filename: str = "metrics.db") -> None:
        self.filename = filename

    def begin(self, work_dir, experiment_name):
        self.database = sqlite3.connect(work_dir / self.filename, isolation_level=None)
        self.database.execute("CREATE TABLE IF NOT EXISTS metrics (step INTEGER, name TEXT, value REAL)")

    def write_scalar(self, name, value, step):
        self.database.execute("INSERT INTO metrics VALUES (?, ?, ?)", (step, name, value))

    def write_image(self, name, image, step, caption=None): ...

    def write_config(self, name, config, step): ...

    def load_state_dict(self, state):
        self.database.execute("DELETE FROM metrics WHERE step > ?", (state["iter"],))

    def close(self):
        self.database.close()

    def files(self):
        return [self.filename]


torch.manual_seed(0)
model = DigitsNet(width=8)
Runner(
    model,
    train=TrainLoop(ResumableLoader(Digits("train"), 64, shuffle=True), cross_entropy, max_epochs=5),
    val=EvalLoop(ResumableLoader(Digits("val"), 256), predict, metrics={"accuracy": accuracy}),
    optim=torch.optim.AdamW(model.parameters(), lr=5e-3),
    writers=["jsonl", "sqlite"],  # by name, as in a config: {type: sqlite, filename: numbers.db}
    work_dir="runs/custom_writer",
    resume="--resume" in sys.argv,
).train()

with sqlite3.connect("runs/custom_writer/metrics.db") as database:
    for step, value in database.execute("SELECT step, value FROM metrics WHERE name = 'val/accuracy' ORDER BY step"):
        print(f"step {step}: accuracy {value:.3f}")
