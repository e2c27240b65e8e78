"""Stateful parts: a snapshot is the state of each, and a new one is one entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import EvalLoop, Hook, Optim, Runner
from hookline.checkpoint import store
from hookline.engine.steps import cross_entropy, predict
from hookline.errors import ConfigError, HookError, StorageError
from hookline.hooks import EarlyStoppingHook, EMAHook
from hookline.run.handling import Validations
from hookline.state import snapshot
from hookline.state.contents import Contents, Part
from hookline.state.host import Host
from hookline.testing import toy_data, toy_model, toy_runner
from tests.engine.spoiled import spoil


class Curriculum:
    """A user's object with a state."""

    def __init__(self) -> None:
        self.level = 0

    def state_dict(self) -> dict[str, Any]:
        return {"level": self.level}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.level = state["level"]


def test_a_checkpoint_has_meta_and_one_entry_for_each_part(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, max_epochs=1)
    runner.train()
    saved = store.read(tmp_path / "epoch_1.pth", sealed=True)
    parts = list(runner._host.contents.parts)
    assert list(saved) == ["meta", *(name for name in parts if name not in ("loader", "groups"))]  # without a state
    assert parts == [
        *("state_dict", "optimizer", "param_schedulers", "scaler", "position", "loader", "modules", "groups"),
        *("message_hub", "writers", "metric_states", "hooks", "rng"),
    ]


def test_a_part_of_the_user_is_saved_and_comes_back(tmp_path: Path) -> None:
    curriculum = Curriculum()
    runner = toy_runner(work_dir=tmp_path, max_epochs=2)
    runner.add_part("curriculum", curriculum)
    assert list(runner._host.contents.parts)[-3:] == ["curriculum", "hooks", "rng"]
    runner.on("after_train_epoch")(lambda: setattr(curriculum, "level", curriculum.level + 1))
    runner.train()
    assert store.read(tmp_path / "epoch_2.pth", sealed=True)["curriculum"] == {"level": 2}

    again = Curriculum()
    resumed = toy_runner(work_dir=tmp_path, max_epochs=2, resume=True)
    resumed.add_part("curriculum", again)
    resumed.train()
    assert again.level == 2


#: Instead of a value: the entry is deleted.
DELETED = object()


def test_a_negative_number_of_averaged_steps_is_refused(tmp_path: Path) -> None:
    class Spoils(Hook):
        def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
            checkpoint["hooks"]["EMAHook"]["steps"] = -1

    scheduled(tmp_path, 1, Spoils()).train()
    with pytest.raises(StorageError, match="^EMAHook: this is not the state of a weight average, which has"):
        scheduled(tmp_path, 2, resume=True).train()


def test_the_updates_of_several_optims_are_checked(tmp_path: Path) -> None:
    def step(model: Any, batch: Any, optim: Any) -> None:
        optim["net"].update(cross_entropy(model, batch))

    def gan(**options: Any) -> Runner:
        model = toy_model()
        optims = {"net": torch.optim.SGD(model.parameters(), lr=0.1)}
        return toy_runner(model=model, optim=optims, step=step, work_dir=tmp_path, **options)

    gan(max_epochs=1).train()
    spoil(tmp_path, lambda checkpoint: checkpoint["position"]["updates"].update(net=-1))
    with pytest.raises(StorageError, match=r"position\['updates'\] is not of the type that a run saves$"):
        gan(max_epochs=2, resume=True).train()
    gan(max_epochs=1).train()
    gan(max_epochs=2, resume=True).train()


class Remembers:
    """A metric that counts the evaluations that it has seen."""

    def __init__(self) -> None:
        self.seen = 0

    def reset(self) -> None: ...

    def update(self, preds: Any, target: Any) -> None: ...

    def compute(self) -> float:
        self.seen += 1
        return float(self.seen)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def counted(folder: Path, name: str = "seen") -> list[float]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record[f"val/{name}"] for record in records if f"val/{name}" in record]


def remembering(folder: Path, metrics: Any = None, **options: Any) -> Runner:
    loop = EvalLoop(toy_data(1), predict, metrics=metrics or {"seen": Remembers()})
    return toy_runner(work_dir=folder, val=loop, **options)


def test_a_metric_with_a_memory_continues_where_it_was(tmp_path: Path) -> None:
    remembering(tmp_path, max_epochs=2).train()
    assert store.read(tmp_path / "epoch_2.pth", sealed=True)["metric_states"] == {"val/seen": {"seen": 1}}
    resumed = remembering(tmp_path, max_epochs=4, resume=True)
    resumed.train()
    assert counted(tmp_path) == [1.0, 2.0, 3.0, 4.0]


def test_a_checkpoint_without_the_states_of_metrics_resumes_which_is_reported(tmp_path: Path) -> None:
    class Earlier(Hook):
        def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
            del checkpoint["metric_states"]

    remembering(tmp_path, max_epochs=2, custom_hooks=[Earlier()]).train()
    remembering(tmp_path, {"": Remembers()}, max_epochs=3, resume=True).train()
    assert "not in the checkpoint, so starting from scratch: the metric val\n" in (tmp_path / "run.log").read_text()
    assert counted(tmp_path, "Remembers") == [1.0, 2.0]


def test_modules_are_reset_and_not_saved(tmp_path: Path) -> None:
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(2, 1)

        def forward(self, preds: torch.Tensor, target: Any) -> Any:
            return self.net(preds).mean()

    remembering(tmp_path, {"module": Module()}, max_epochs=1).train()
    assert store.read(tmp_path / "epoch_1.pth", sealed=True)["metric_states"] == {}


def test_a_metric_that_cannot_be_restored_is_named(tmp_path: Path) -> None:
    class Fails(Remembers):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            raise ValueError("too old")

    remembering(tmp_path, max_epochs=2).train()
    with pytest.raises(
        ValueError, match="^too old\nin the metric val/seen, while restoring its state from a checkpoint$"
    ):
        remembering(tmp_path, {"seen": Fails()}, max_epochs=3, resume=True).train()


def test_a_part_that_a_checkpoint_does_not_have_starts_fresh_which_is_reported(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path, max_epochs=1).train()
    resumed = toy_runner(work_dir=tmp_path, max_epochs=2, resume=True)
    resumed.add_part("curriculum", Curriculum())
    resumed.train()
    assert "  part curriculum: not in the checkpoint, so it starts fresh\n" in (tmp_path / "run.log").read_text()


@pytest.mark.parametrize(
    ("name", "part", "message"),
    [
        ("rng", Curriculum(), "checkpoints already have a part 'rng'; choose another name"),
        ("meta", Curriculum(), "checkpoints already have a part 'meta'; choose another name"),
        ("mine", object(), "the part 'mine' (object) has no method state_dict"),
    ],
)
def test_a_part_that_cannot_be_saved_is_refused(name: str, part: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        toy_runner().add_part(name, part)
    assert str(refused.value) == message


def test_nothing_is_loaded_if_one_part_does_not_fit(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path, max_epochs=1).train()

    class Picky(Part):
        def state_dict(self) -> dict[str, Any]:
            return {}

        def misfits(self, state: Any, checkpoint: Any) -> list[str]:
            return ["the weather: it rains"]

    resumed = toy_runner(work_dir=tmp_path, max_epochs=2, resume=True)
    resumed._host.contents.parts["position"] = Picky()
    before = {name: value.clone() for name, value in resumed.model.state_dict().items()}
    with pytest.raises(StorageError) as refused:
        resumed.train()
    assert str(refused.value) == (
        f"{tmp_path / 'epoch_1.pth'} does not fit this run; nothing was loaded:\n  the weather: it rains"
    )
    assert all(value.equal(before[name]) for name, value in resumed.model.state_dict().items())


def test_a_snapshot_is_the_state_of_each_part_of_any_host() -> None:
    class Counts(Part):
        def state_dict(self) -> dict[str, Any]:
            return {"n": 3}

    class Bare(Contents):
        def facts(self) -> dict[str, Any]:
            return {"who": "a host"}

    runner, host = toy_runner(), Host()
    host.plan, host.strategy, host.evaluation = runner.plan, runner.strategy, Validations()
    host.contents = Bare({"counts": Counts()})
    assert snapshot.take(host) == {"meta": {"who": "a host"}, "counts": {"n": 3}}


@pytest.mark.parametrize(
    ("part", "where", "value", "named"),
    [
        ("position", ("batch",), -1, "position['batch']"),
        ("position", ("epoch",), "1", "position['epoch']"),
        ("message_hub", ("scalars", "train/loss", "values"), ["a"], "message_hub['scalars']['train/loss']"),
        ("message_hub", ("scalars", "train/loss", "values"), torch.zeros(2, 2), "message_hub['scalars']['train/loss']"),
        ("message_hub", ("scalars", "train/loss", "fresh"), None, "message_hub['scalars']['train/loss']"),
        ("meta", ("hooks",), 1, "meta['hooks']"),
        ("meta", ("optims",), [], "meta['optims']"),
        ("meta", ("threads",), torch.zeros(2), "meta['threads']"),
        ("param_schedulers", (0, "base_lrs"), ["0.1"], "param_schedulers[0]['base_lrs'][0]"),
        ("optimizer", ("param_groups", 0, 7), 1.0, "optimizer['param_groups'][0][7]"),
        ("param_schedulers", (0, "last_epoch"), None, "param_schedulers[0]['last_epoch']"),
        ("hooks", ("EMAHook",), 5, "hooks['EMAHook']"),
        ("meta", ("seed",), torch.ones(3), "meta['seed']"),
        ("meta", ("batches",), torch.ones(3), "meta['batches']"),
        ("meta", ("accumulate", 0), torch.ones(3), "meta['accumulate']"),
        ("position", ("updates",), "3", "position['updates']"),
        ("position", ("updates",), {}, "position['updates']"),
        ("position", ("updates",), DELETED, "position['updates'] (missing)"),
        ("position", ("iter",), 10**30, "position['iter']"),
        ("position", ("epoch",), 10**30, "position['epoch']"),
        *(("position", (name,), DELETED, f"position['{name}'] (missing)") for name in ("iter", "epoch", "batch")),
        ("param_schedulers", (0,), {}, "param_schedulers[0]['last_epoch'] (missing)"),
        ("optimizer", ("param_groups", 0, "lr"), True, "optimizer['param_groups'][0]['lr']"),
        ("optimizer", ("param_groups", 0, "lr"), -1, "optimizer['param_groups'][0]['lr']"),
        ("optimizer", ("param_groups", 0, "weight_decay"), -1.0, "optimizer['param_groups'][0]['weight_decay']"),
        ("optimizer", ("param_groups", 0, "momentum"), float("nan"), "optimizer['param_groups'][0]['momentum']"),
        ("scaler", ("scale",), -5.5, "scaler['scale']"),
        ("scaler", ("scale",), 2**70, "scaler['scale']"),
        ("scaler", ("_growth_tracker",), 2**70, "scaler['_growth_tracker']"),
        ("scaler", ("growth_interval",), -5.5, "scaler['growth_interval']"),
    ],
)
def test_a_part_with_a_value_of_another_kind_is_refused_by_name(
    tmp_path: Path, part: str, where: tuple[Any, ...], value: Any, named: str
) -> None:
    def change(checkpoint: dict[str, Any]) -> None:
        inner = checkpoint[part]
        for key in where[:-1]:
            inner = inner[key]
        inner[where[-1]] = value
        if value is DELETED:
            del inner[where[-1]]

    precision = "fp16" if part == "scaler" else "fp32"
    scheduled(tmp_path, 1, precision=precision).train()
    spoil(tmp_path, change)
    with pytest.raises(StorageError) as refused:
        scheduled(tmp_path, 2, resume=True, precision=precision).train()
    path = tmp_path / "best_accuracy_epoch_1.pth"
    assert str(refused.value) == f"{path} cannot be used: {named} is not of the type that a run saves"


def scheduled(folder: Path, epochs: int, *hooks: Hook, **more: Any) -> Runner:
    """Return a runner with a scheduler and hooks that have states."""
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return toy_runner(
        model=model,
        work_dir=folder,
        max_epochs=epochs,
        optim=Optim(optimizer, schedulers=[torch.optim.lr_scheduler.StepLR(optimizer, 1)]),
        custom_hooks=[*hooks, EMAHook(), EarlyStoppingHook("accuracy")],
        default_hooks={"checkpoint": {"save_best": "accuracy"}},
        **more,
    )


@pytest.mark.parametrize(
    ("hook", "entry", "value", "found"),
    [
        ("CheckpointHook", "accuracy", {"values": ["0.5"], "names": ["a.pth"]}, "the best value of accuracy['values']"),
        ("EarlyStoppingHook", "best", "0.5", "the best value of accuracy['best']"),
        ("EarlyStoppingHook", "waited", [], "the state of EarlyStoppingHook['waited']"),
        ("LoggerHook", "logged_at", "1", "the state of LoggerHook['logged_at']"),
        ("LoggerHook", "logged_at", None, "the state of LoggerHook['logged_at']"),
    ],
)
def test_the_state_of_a_hook_with_a_value_of_another_kind_is_refused_by_name(
    tmp_path: Path, hook: str, entry: str, value: Any, found: str
) -> None:
    class Spoils(Hook):
        def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
            checkpoint["hooks"].setdefault(hook, {})[entry] = value

    scheduled(tmp_path, 1, Spoils()).train()
    with pytest.raises(StorageError) as refused:
        scheduled(tmp_path, 2, resume=True).train()
    found += "[0]" * (entry == "accuracy")
    assert str(refused.value) == f"{found} in the checkpoint is not of the type that a run saves"
    assert refused.value.__notes__[0] == f"in hook {hook}, while restoring its state from a checkpoint"


def test_a_state_that_a_builtin_hook_cannot_use_names_the_hook_and_the_reason(tmp_path: Path) -> None:
    class Spoils(Hook):
        def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
            del checkpoint["hooks"]["LoggerHook"]["logged_at"]

    scheduled(tmp_path, 1, Spoils()).train()
    with pytest.raises(StorageError) as refused:
        scheduled(tmp_path, 2, resume=True).train()
    assert str(refused.value) == ("the state of LoggerHook in the checkpoint cannot be restored: KeyError: 'logged_at'")


class Keeps(Hook):
    """A hook with any state."""

    def __init__(self, state: Any = None) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


@pytest.mark.parametrize("state", [[1, 2], "text", 3])
def test_the_state_of_a_hook_need_not_be_a_dict(tmp_path: Path, state: Any) -> None:
    toy_runner(work_dir=tmp_path, max_epochs=1, custom_hooks=[Keeps(state)]).train()
    toy_runner(work_dir=tmp_path, max_epochs=2, custom_hooks=[again := Keeps()], resume=True).train()
    assert again.state == state
    toy_runner(work_dir=tmp_path, max_epochs=3, resume=True).train()  # without the hook


REFUSED: dict[str, tuple[dict[Any, Any] | None, str]] = {
    "nothing": (
        None,
        "it has no meta, state_dict, optimizer, param_schedulers, position, message_hub, hooks, rng",
    ),
    "hooks": ({"hooks": []}, "hooks is not of the type that a run saves"),
    "rng": ({"rng": None}, "rng is not of the type that a run saves"),
    "position": ({"position": "zz"}, "position is not of the type that a run saves"),
    "meta": ({"meta": 1}, "meta is not of the type that a run saves"),
    "key": ({3: "x"}, "it must have text as keys, not 3"),
    "weights": (
        {"state_dict": {}},
        "missing: 0.weight (8, 4)\n  missing: 0.bias (8,)\n  missing: 2.weight (2, 8)\n  missing: 2.bias (2,)",
    ),
}


class Changes(Hook):
    """Changes entries of the checkpoint; None deletes all of it."""

    def __init__(self, more: dict[Any, Any] | None) -> None:
        self.more = more

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[Any, Any]) -> None:
        checkpoint.update(self.more) if self.more is not None else checkpoint.clear()


@pytest.mark.parametrize("case", REFUSED)
def test_a_checkpoint_that_no_run_could_resume_from_is_not_written(tmp_path: Path, case: str) -> None:
    more, problem = REFUSED[case]
    with pytest.raises(HookError) as refused:
        toy_runner(work_dir=tmp_path, custom_hooks=[Changes(more)]).train()
    assert str(refused.value) == (
        "no run could resume from this checkpoint, because of what Changes did at before_save_checkpoint; nothing was "
        f"saved:\n  {problem}"
    )
    assert list(tmp_path.glob("*.pth*")) == []


def test_a_hook_may_change_weights_that_it_changes_back(tmp_path: Path) -> None:
    class Packs(Hook):
        def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
            state = checkpoint["state_dict"]
            checkpoint["state_dict"] = {
                "names": list(state),
                "all": torch.cat([each.flatten() for each in state.values()]),
            }

        def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
            packed, own = checkpoint["state_dict"], runner.model.state_dict()
            parts = packed["all"].split([each.numel() for each in own.values()])
            checkpoint["state_dict"] = {name: part.view_as(own[name]) for name, part in zip(own, parts, strict=True)}

    toy_runner(work_dir=tmp_path, max_epochs=1, custom_hooks=[Packs()]).train()
    resumed = toy_runner(work_dir=tmp_path, max_epochs=2, custom_hooks=[Packs()], resume=True)
    resumed.train()
    whole = toy_runner(max_epochs=2)
    whole.train()
    assert all(
        own.equal(other) for own, other in zip(resumed.model.parameters(), whole.model.parameters(), strict=True)
    )
