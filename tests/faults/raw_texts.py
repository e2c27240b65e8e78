"""Texts with escape codes, C1 codes and line ends, wherever hookline shows a text that it did not write itself.

No such code may reach the screen or run.log, and no text may look like a line of its own. Whether the text itself is
refused is up to the place. What a person types in a command is not in this table, except for overrides.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.faults.cases import Case
from tests.faults.mistakes import evaluation, training
from tests.faults.project import checkpoint, config, point, put_run, sealed, write
from tests.faults.raw import FORGED

#: It colors and clears a screen, in two ways, rings, deletes, and begins another line.
EVIL = f"x\x1b[31m\x9b2J\x07\x7f\b\r\n{FORGED}all is well"
#: The same for a double-quoted text of YAML, which must escape most of it.
QUOTED = '"x\\e[31m\\x9b2J\\a\\x7f\\b\\r\\n' + FORGED + 'all is well"'
FILE = "runs/run/epoch_1.pth"

MINE = f"""
import torch
from hookline import Hook
from mynet import Net, loss_of

EVIL = {EVIL!r}


def step(model, batch):
    return {{"loss": loss_of(model, batch), EVIL: torch.ones(())}}

def losses(model, batch):
    return {{f"loss_{{EVIL}}": loss_of(model, batch)}}

class Results:
    def update(self, preds, target): ...
    def reset(self): ...
    def compute(self):
        return {{EVIL: 0.5, "second": 0.25}}

def after_train_iter(self, runner):
    runner.hub.update_scalar(f"train/{{EVIL}}", 1.0)
    runner.hub.update_info(EVIL, EVIL)
    runner.stop(EVIL)

Named = type(EVIL, (Hook,), {{"after_train_iter": lambda self, runner: None}})
Stops = type("Stops", (Hook,), {{"after_train_iter": after_train_iter}})

class Keeps(Hook):
    def state_dict(self): return {{EVIL: {{1}}}}
    def load_state_dict(self, state): ...

class Odd(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer(EVIL, torch.zeros(1))
"""


def cases() -> list[Case]:
    """Return all cases."""
    return [*_configs(), *_code(), *_checkpoints(), *_files(), *_words()]


def _configs() -> list[Case]:
    """Return cases with such texts in a config."""

    def text(name: str, **changes: str | None) -> Case:
        return Case(f"text_config_{name}", None, config=config(**changes))

    sgd = "{type: SGD, lr: 0.1}"
    return [
        text("experiment_name", experiment_name=QUOTED),
        text("key", **{QUOTED: "1"}),
        text("seed", seed=QUOTED),
        text("device", device=QUOTED),
        text("strategy", strategy=QUOTED),
        text("reference", experiment_name=f'"${{{QUOTED[1:-1]}}}"'),
        text("model", model=f"{{type: {QUOTED}}}"),
        text("parameter", model=f'{{type: "mynet:Net", {QUOTED}: 1}}'),
        text("value_of_a_parameter", model=f'{{type: "mynet:Net", hidden: {QUOTED}}}'),
        text("step", train=training(step=QUOTED)),
        text("optimizer", optim=f"{{optimizer: {{type: {QUOTED}}}}}"),
        text("value_of_the_optimizer", optim=f"{{optimizer: {{type: SGD, lr: {QUOTED}}}}}"),
        text("match", optim=f"{{optimizer: {sgd}, param_groups: [{{match: {QUOTED}, lr: 1}}]}}"),
        text("optims", optim=f"{{{QUOTED}: {{optimizer: {sgd}}}}}"),
        text("metric", val=evaluation(metrics=f"{{{QUOTED}: accuracy}}")),
        text("metric_type", val=evaluation(metrics=f"{{accuracy: {QUOTED}}}")),
        text("data_set", val=f"{{{QUOTED}: {evaluation()}}}"),
        text("hook", custom_hooks=f"[{QUOTED}]"),
        text("hook_priority", custom_hooks=f"[{{type: ProgressHook, priority: {QUOTED}}}]"),
        text("default_hook", default_hooks=f"{{{QUOTED}: {{}}}}"),
        text("save_best", default_hooks=f"{{checkpoint: {{save_best: {QUOTED}}}}}"),
        text("file_name_of_checkpoints", default_hooks=f'{{checkpoint: {{filename_tmpl: {QUOTED[:-1]}{{}}.pth"}}}}'),
        text("writer", writers=f"[{QUOTED}]"),
        text("records", writers=f"[{{type: jsonl, filename: {QUOTED}}}]"),
        text("imports", imports=f"[{QUOTED}]"),
        text("points", points=f"{{{QUOTED}: []}}"),
        text("work_dir", work_dir=f'"runs/{QUOTED[1:]}'),
        text("load_from", load_from=QUOTED),
        text("resume", resume=QUOTED),
        Case("text_config_base", None, config=f"_base_: {QUOTED}\n{config()}"),
        Case("text_config_tag", None, config=f"%TAG ! tag:x%1b[31m,2000:\n---\nseed: !x%1b%5b31m%0a{FORGED}x 1\n"),
        Case("text_config_anchor", None, config="seed: *a\x9b2J\n"),
        Case("text_config_plan", None, words=("plan", "config.yaml"), config=config(experiment_name=QUOTED)),
    ]


def _code() -> list[Case]:
    """Return cases with such texts as names and results of user code."""

    def code(name: str, words: tuple[str, ...] = ("train", "config.yaml"), **changes: str) -> Case:
        return Case(f"text_code_{name}", None, words=words, config=config(**changes), files={"mine.py": MINE})

    named, stops = "['mine:Named']", "['mine:Stops']"
    return [
        code("scalars_of_a_step", train=training(step='"mine:step"')),
        code("losses_of_a_step", train=training(step='"mine:losses"')),
        code("results_of_a_metric", val=evaluation(metrics='{results: {type: "mine:Results"}}')),
        code("name_of_a_hook", custom_hooks=named),
        code("name_of_a_hook_in_a_plan", words=("plan", "config.yaml"), custom_hooks=named),
        code("reason_of_a_stop", custom_hooks=stops),
        code("key_of_a_state", custom_hooks="['mine:Keeps']"),
        code("name_of_a_buffer", model='{type: "mine:Odd"}'),
    ]


def _checkpoints() -> list[Case]:
    """Return cases with such texts in a checkpoint."""
    ones = {"values": torch.ones(1, dtype=torch.float64), "fresh": 1}
    changes: dict[str, Callable[[dict[str, Any]], object]] = {
        "meta": lambda found: found["meta"].update(
            dict.fromkeys(("experiment_name", "torch", "numpy", "python", "hookline", "time", "device"), EVIL)
        ),
        "more_meta": lambda found: found["meta"].update({"hooks": [EVIL], "seed": EVIL, EVIL: EVIL}),
        "precision": lambda found: found["meta"].update(precision=EVIL, threads=EVIL, batches=EVIL),
        "optims": lambda found: found["meta"].update(optims={"": [EVIL]}),
        "weights": lambda found: found["state_dict"].update({EVIL: torch.zeros(1)}),
        "hooks": lambda found: found["hooks"].update({EVIL: {"x": 1}}),
        "metrics": lambda found: found["message_hub"]["scalars"].update({f"train/{EVIL}": ones, EVIL: ones}),
        "facts": lambda found: found["message_hub"]["info"].update({EVIL: EVIL}),
        "writers": lambda found: found["writers"].update({EVIL: {"size": 1}}),
        "position": lambda found: found["position"].update(stopped=EVIL, stopped_by=EVIL),
        "stop": lambda found: found["position"].update(stop_asked=EVIL),
        "key": lambda found: found.update({EVIL: EVIL}),
        "generators": lambda found: found["rng"].update({EVIL: 1}),
        "odd_scalar": lambda found: found["message_hub"]["scalars"].update({EVIL: 1}),
        "odd_hook": lambda found: found["hooks"].update({EVIL: 1}),
    }
    places = {
        "inspect": ("inspect", FILE),
        "load_from": ("train", "config.yaml", f"load_from={FILE}"),
        "resume": ("train", "config.yaml", "train.max_epochs=2", "--resume"),
        "test": ("test", "config.yaml", "--checkpoint", FILE),
        "export": ("export", FILE, "--out", "runs/weights.safetensors"),
    }

    def case(name: str, place: str) -> Case:
        def put(project: Path) -> None:
            changed = checkpoint()
            changes[name](changed)
            put_run(project, epoch_1=sealed(changed))

        return Case(f"text_checkpoint_{place}_{name}", None, words=places[place], prepare=put)

    wanted = [(name, place) for name in changes for place in ("inspect", "resume")]
    wanted += [
        (name, place) for name in ("meta", "weights", "hooks", "key") for place in ("load_from", "test", "export")
    ]
    return [case(name, place) for name, place in wanted]


def _files() -> list[Case]:
    """Return cases with such texts in the other files of a run, and as names of files."""

    def record(project: Path) -> None:
        for name in ("run", "other"):
            run = put_run(project) if name == "run" else project / "runs" / name
            write(run, "metrics.jsonl", json.dumps({"step": 1, "epoch": 1, f"val/{EVIL}": 1.0, EVIL: 2.0}) + "\n")
            write(run, "config.yaml", config(experiment_name=QUOTED, seed=name, **{QUOTED: QUOTED}))

    def surrogate(project: Path) -> None:
        record(project)
        odd = '{"step": 1, "epoch": 1, "val/\\ud800accuracy": 1.0, "val/accuracy": 0.5}\n'
        write(project / "runs" / "run", "metrics.jsonl", odd)
        write(project / "runs" / "other", "metrics.jsonl", odd)

    def named(project: Path) -> None:
        run = put_run(project)
        (run / "epoch_1.pth").rename(run / f"{EVIL}.pth")

    resume = ("train", "config.yaml", "--resume")
    return [
        Case("text_file_records", None, words=("compare", "runs/run", "runs/other"), prepare=record),
        Case("text_file_surrogate", None, words=("compare", "runs/run", "runs/other"), prepare=surrogate),
        Case("text_file_checkpoint", None, words=("inspect", "runs/run"), prepare=named),
        Case("text_file_resume", None, words=resume, prepare=named),
        Case("text_file_pointer", None, words=resume, prepare=lambda project: point(put_run(project), name=EVIL)),
    ]


def _words() -> list[Case]:
    """Return cases with such texts on the command line."""

    def words(name: str, *given: str) -> Case:
        return Case(f"text_word_{name}", None, words=given, prepare=put_run)

    return [
        words("command", EVIL),
        words("option", "train", "config.yaml", f"--{EVIL}"),
        words("override_key", "train", "config.yaml", f"{EVIL}=1"),
        words("override_value", "train", "config.yaml", f"seed={EVIL}"),
        words("override_work_dir", "train", "config.yaml", f"work_dir=runs/{EVIL}"),
        words("compare_surrogate", "compare", "runs/run", "runs/\udcff"),
        words("compare_surrogates", "compare", "\udcff", "\udc80\udcfe"),
        words("inspect_surrogate", "inspect", "runs/\udcff.pth"),
        words("override_surrogate", "train", "config.yaml", "seed=\udcff"),
        words("work_dir_surrogate", "train", "config.yaml", "work_dir=runs/\udcff"),
    ]
