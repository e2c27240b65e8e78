"""Saving checkpoints, and resuming exactly from them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hookline.checkpoint import inspection
from hookline.checkpoint.compatibility import fit_lengths
from hookline.checkpoint.seal import read_note
from hookline.dialects.pointrix.engine.default_datapipeline import BaseDataPipeline
from hookline.dialects.pointrix.hook import CheckPointHook, Hook, LogHook
from hookline.dialects.pointrix.logger import JsonlWriter, Logger
from hookline.dialects.pointrix.optimizer import BaseOptimizer
from hookline.errors import ConfigError, NumericsError, StorageError
from tests.dialects.pointrix.scene import SIDE, Densify, SceneTrainer, Views, config

ROOT = Path(__file__).parents[3]
ALL = ["meta", "state_dict", "optimizer", "param_schedulers", "position", "parts", "writers", "hooks", "rng"]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Logger, "terminal", type(Logger.terminal)(quiet=True))


def trainer_in(folder: Path, *hooks: Any, kind: type[SceneTrainer] = SceneTrainer, **changes: Any) -> SceneTrainer:
    trainer = kind(config(**changes), folder)
    for hook in hooks:
        trainer.register_hook(hook)
    return trainer


def read(path: Path) -> dict[str, Any]:
    found = torch.load(path, weights_only=True)
    assert isinstance(found, dict)
    return found


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pth"))


def assert_same(one: Any, other: Any, where: str = "checkpoint") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same(left, right, f"{where}[{index}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    else:
        assert one == other, where


def assert_same_runs(one: Path, other: Path) -> None:
    left, right = read(one), read(other)
    for checkpoint in (left, right):
        checkpoint["meta"].pop("time")
        checkpoint["meta"].pop("experiment_name")
    assert_same(left, right)


def test_all_checkpoints_have_the_same_layout_and_naming(tmp_path: Path) -> None:
    trainer_in(tmp_path, CheckPointHook(save_step=2), LogHook()).train_loop()
    assert checkpoints(tmp_path) == ["chkpnt00002.pth", "chkpnt00004.pth", "chkpnt00005.pth"]
    for name in checkpoints(tmp_path):
        found = read(tmp_path / name)
        assert list(found) == ALL
        assert found["position"]["iter"] == int(name[6:11])
        assert list(found["hooks"]) == ["LogHook"]
    assert json.loads((tmp_path / "last_checkpoint").read_text())["name"] == "chkpnt00005.pth"
    assert "a run can resume from it" in inspection.describe_checkpoint(tmp_path / "chkpnt00005.pth")
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".pth") == [
        *("config.yaml", "events.jsonl", "hooks.json", "last_checkpoint", "plan.txt", "report.html"),
        "run.log",
    ]


@pytest.mark.parametrize(
    ("hook", "save_step", "saved"),
    [
        (CheckPointHook(), 3, [3, 5]),
        (CheckPointHook(save_last=False), 3, [3]),
        (CheckPointHook(), 40000, [5]),
        (CheckPointHook(save_step=0), 3, [5]),
        (CheckPointHook(save_step=5), 3, [5]),
        (CheckPointHook(save_step=1, max_keep=2), 3, [4, 5]),
    ],
)
def test_checkpoints_are_saved_at_the_interval_and_at_the_end(
    tmp_path: Path, hook: CheckPointHook, save_step: int, saved: list[int]
) -> None:
    trainer_in(tmp_path, hook, save_step=save_step).train_loop()
    assert checkpoints(tmp_path) == [f"chkpnt{step:05d}.pth" for step in saved]


def test_a_point_cloud_with_save_ply_is_also_saved_as_ply(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path, CheckPointHook(save_step=3))
    trainer.model.point_cloud.save_ply = lambda path: Path(path).write_text("ply")
    trainer.train_loop()
    assert sorted(path.name for path in tmp_path.glob("*.ply")) == ["00003.ply", "00005.ply"]


def test_hooks_may_add_entries_to_a_checkpoint_and_read_them_back(tmp_path: Path) -> None:
    class Adds(Hook):
        found = None

        def before_save_checkpoint(self, trainner: Any, checkpoint: dict[str, Any]) -> None:
            checkpoint["cameras"] = torch.ones(2)

        def after_load_checkpoint(self, trainner: Any, checkpoint: dict[str, Any]) -> None:
            self.found = checkpoint["cameras"]

    trainer_in(tmp_path, Adds(), CheckPointHook()).train_loop()
    trainer_in(tmp_path, adds := Adds(), CheckPointHook(), resume=True, max_steps=6).train_loop()
    assert adds.found is not None
    assert adds.found.tolist() == [1.0, 1.0]


# -- resuming


def broken_and_whole(tmp_path: Path, at: int, *, kind: type[SceneTrainer] = SceneTrainer, **changes: Any) -> None:
    """Check that a run of nine steps and a run that stops early and resumes leave the same results."""
    for folder, stops in (("whole", [9]), ("broken", [at, 9])):
        for stop in stops:
            torch.manual_seed(77 * stop)  # random numbers drawn earlier in this process must not matter
            hooks = (Densify(2), LogHook(), CheckPointHook(save_step=3))
            trainer = trainer_in(tmp_path / folder, *hooks, kind=kind, max_steps=stop, resume=True, **changes)
            trainer.writer = JsonlWriter(tmp_path / folder)
            trainer.train_loop()
    assert_same_runs(tmp_path / "whole" / "chkpnt00009.pth", tmp_path / "broken" / "chkpnt00009.pth")


@pytest.mark.parametrize("at", [1, 2, 4, 8])
def test_a_resumed_run_is_bit_exact_even_if_the_model_has_grown(tmp_path: Path, at: int) -> None:
    broken_and_whole(tmp_path, at, val_interval=0)
    records = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "broken")]
    assert records[0] == records[1]
    assert [json.loads(line)["step"] for line in records[0]] == list(range(1, 10))


def test_a_trainer_may_override_grow_model(tmp_path: Path) -> None:
    class Flat(nn.Module):
        """A model whose points are not in `point_cloud`."""

        def __init__(self) -> None:
            super().__init__()
            self.height = nn.Parameter(torch.rand(3))

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.height

        def get_loss_dict(self, height: torch.Tensor, batch: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": (height - batch[0, 0]).square().sum()}

    class FlatTrainer(SceneTrainer):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.renderer, self.model = None, Flat()
            self.optimizer = BaseOptimizer(None, torch.optim.Adam(self.model.parameters()))

    class Grows(Hook):
        def after_train_iter(self, trainner: Any) -> None:
            if trainner.global_step == 2:
                height, adam = trainner.model.height, trainner.optimizer.optimizer
                height.data, height.grad = torch.cat([height.data, torch.rand(1)]), None
                for name in ("exp_avg", "exp_avg_sq"):
                    adam.state[height][name] = torch.cat([adam.state[height][name], torch.zeros(1)])

    class Fits(FlatTrainer):
        def grow_model(self, checkpoint: dict[str, Any]) -> None:
            assert fit_lengths(self.model, checkpoint["state_dict"]) == ["height"]

    trainer_in(tmp_path, Grows(), CheckPointHook(), kind=FlatTrainer, val_interval=0).train_loop()
    with pytest.raises(StorageError) as caught:
        trainer_in(tmp_path, kind=FlatTrainer, resume=True).train_loop()
    assert str(caught.value) == (
        f"{tmp_path}/chkpnt00005.pth does not fit this run; nothing was loaded:\n"
        "  height: the model has (3,), the checkpoint (4,)\n"
        "  the optimizer: exp_avg of parameter 0 is (4,), but the parameter is (3,)\n"
        "  the optimizer: exp_avg_sq of parameter 0 is (4,), but the parameter is (3,)"
    )
    trainer = trainer_in(tmp_path, CheckPointHook(), kind=Fits, resume=True, max_steps=7, val_interval=0)
    trainer.train_loop()
    assert trainer.model.height.shape == (4,)
    assert checkpoints(tmp_path) == ["chkpnt00005.pth", "chkpnt00007.pth"]


def test_a_model_that_creates_new_parameters_when_loaded_is_refused(tmp_path: Path) -> None:
    class Remakes(SceneTrainer):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)

            class Own(type(self.model)):  # type: ignore[misc]
                def load_state_dict(self, state: dict[str, Any], *more: Any) -> None:
                    self.point_cloud.position = nn.Parameter(state["point_cloud.position"])

            self.model.__class__ = Own

    trainer_in(tmp_path, CheckPointHook()).train_loop()
    with pytest.raises(
        StorageError, match="the model created new parameters in load_state_dict, and the optimizer still has the"
    ):
        trainer_in(tmp_path, kind=Remakes, resume=True).train_loop()


def test_parts_with_a_state_are_restored(tmp_path: Path) -> None:
    class Counts:
        def __init__(self, inner: Any) -> None:
            self.inner, self.calls = inner, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def next_train(self, step: int) -> Any:
            self.calls += 1
            return self.inner.next_train(step)

        def state_dict(self) -> dict[str, int]:
            return {"calls": self.calls}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.calls = state["calls"]

    calls = []
    for stop in (3, 5):
        trainer = trainer_in(tmp_path, CheckPointHook(), max_steps=stop, resume=True)
        trainer.datapipeline = Counts(trainer.datapipeline)
        trainer.train_loop()
        calls.append(trainer.datapipeline.calls)
    assert calls == [3, 5]
    assert read(tmp_path / "chkpnt00005.pth")["parts"] == {"datapipeline": {"calls": 5}}


class Shuffles(BaseDataPipeline):
    """A subclass whose batches do not depend on the step."""

    def __init__(self) -> None:
        self.validation_dataset = []

    def next_train(self, step: int) -> Any:
        return torch.rand(SIDE * SIDE, 3)


class HasNothing(Views):
    def state_dict(self) -> dict[str, Any]:
        return {}


class Remembers(Shuffles):
    def state_dict(self) -> dict[str, Any]:
        return {"given": 2}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state["given"]


@pytest.mark.parametrize(
    ("pipeline", "steps", "warned"),
    [
        (Views, 5, True),
        (Views, 2, False),  # the run is already complete
        (Shuffles, 5, True),
        (Remembers, 5, False),
        (HasNothing, 5, False),
    ],
)
def test_resuming_warns_about_a_pipeline_without_a_state(
    tmp_path: Path, pipeline: Any, steps: int, warned: bool
) -> None:
    for stop in (2, steps):
        trainer = trainer_in(tmp_path, CheckPointHook(), max_steps=stop, val_interval=0, resume=True)
        trainer.datapipeline = pipeline()
        trainer.train_loop()
    message = (
        f"{pipeline.__name__} has no state_dict: the resumed run is exact only if the batch that its next_train(step) "
        "returns depends only on the step; otherwise, add state_dict and load_state_dict"
    )
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert [line.endswith(message) for line in lines if "state_dict" in line] == [True] * warned


def test_a_resumed_run_first_makes_the_validation_that_was_missed(tmp_path: Path) -> None:
    class Fails(Hook):
        def before_val(self, trainner: Any) -> None:
            raise RuntimeError("gone")

    class Notes(Hook):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def before_train_iter(self, trainner: Any) -> None:
            self.seen.append(trainner.global_step)

        def after_val(self, trainner: Any) -> None:
            self.seen.append("val")

    with pytest.raises(RuntimeError, match="^gone"):
        trainer_in(tmp_path, Fails(), CheckPointHook(save_step=2)).train_loop()
    trainer_in(tmp_path, notes := Notes(), CheckPointHook(), resume=True).train_loop()
    assert notes.seen == ["val", 3, 4, "val", 5, "val"]
    trainer_in(tmp_path, again := Notes(), resume=True).train_loop()
    assert again.seen == []
    assert (
        "training is already finished: 5 steps; to train longer, increase max_steps"
        in (tmp_path / "run.log").read_text()
    )


def run_apart(folder: Path, *more: str) -> int:
    command = [sys.executable, "-m", "tests.dialects.pointrix.killed", str(folder), *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    print(done.stdout, done.stderr)  # shown if the test fails
    return done.returncode


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    assert run_apart(folder) == 0
    return folder


@pytest.mark.parametrize(("step", "point"), [(6, "after_train_iter"), (8, "after_val_iter"), (13, "after_train_iter")])
def test_a_run_resumes_exactly_after_kill_9(whole: Path, tmp_path: Path, step: int, point: str) -> None:
    assert run_apart(tmp_path, str(step), point) == -signal.SIGKILL
    assert checkpoints(tmp_path) == [f"chkpnt{saved:05d}.pth" for saved in range(4, step + 1, 4)]
    assert run_apart(tmp_path) == 0
    assert_same_runs(whole / "chkpnt00014.pth", tmp_path / "chkpnt00014.pth")
    assert (whole / "metrics.jsonl").read_bytes() == (tmp_path / "metrics.jsonl").read_bytes()


def test_a_process_whose_run_fails_has_a_nonzero_exit_code(tmp_path: Path) -> None:
    assert run_apart(tmp_path, "2", "fails") == 1


def test_a_damaged_checkpoint_is_skipped_and_a_run_without_an_intact_one_is_refused(tmp_path: Path) -> None:
    trainer_in(tmp_path, CheckPointHook(save_step=2)).train_loop()
    whole = (tmp_path / "chkpnt00005.pth").read_bytes()
    (tmp_path / "chkpnt00005.pth").write_bytes(whole[: len(whole) // 2])
    trainer = trainer_in(tmp_path, CheckPointHook(), resume=True)
    trainer.train_loop()
    assert trainer.datapipeline.asked == [5]
    assert "warning: skipped: " in (tmp_path / "run.log").read_text()
    for name in checkpoints(tmp_path):
        (tmp_path / name).write_bytes(b"PK nothing")
    with pytest.raises(StorageError, match="^cannot resume: there is no intact checkpoint to continue from:\n"):
        trainer_in(tmp_path, resume=True).train_loop()


def test_resuming_from_a_path_moves_later_checkpoints_away(tmp_path: Path) -> None:
    trainer_in(tmp_path, CheckPointHook(save_step=2)).train_loop()
    trainer = trainer_in(tmp_path, CheckPointHook(), resume=str(tmp_path / "chkpnt00002.pth"))
    trainer.train_loop()
    assert trainer.datapipeline.asked == [3, 4, 5]
    assert checkpoints(tmp_path) == ["chkpnt00002.pth", "chkpnt00005.pth"]
    assert checkpoints(tmp_path / "old-1") == ["chkpnt00004.pth", "chkpnt00005.pth"]


def test_a_fresh_run_moves_old_files_away_and_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    trainer_in(tmp_path, CheckPointHook()).train_loop()

    class Second(Hook):
        def before_train(self, trainner: Any) -> None:
            with pytest.raises(StorageError, match="is in use by another run of this process"):
                trainer_in(tmp_path).train_loop()

    trainer_in(tmp_path, Second(), CheckPointHook()).train_loop()
    assert checkpoints(tmp_path) == checkpoints(tmp_path / "old-1") == ["chkpnt00005.pth"]
    assert (
        f"moved the files of an earlier run from {tmp_path} to {tmp_path}/old-1" in (tmp_path / "run.log").read_text()
    )


def test_a_run_that_is_refused_before_its_first_step_puts_the_old_files_back(tmp_path: Path) -> None:
    class Refuses(Hook):
        def before_train(self, trainner: Any) -> None:
            raise ConfigError("not like this")

    trainer_in(tmp_path, CheckPointHook()).train_loop()
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(ConfigError, match="^not like this"):
        trainer_in(tmp_path, Refuses()).train_loop()
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_resuming_without_any_checkpoint_starts_from_scratch(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path, CheckPointHook(), resume=True)
    trainer.train_loop()
    assert trainer.datapipeline.asked == [1, 2, 3, 4, 5]
    assert f"there is no checkpoint in {tmp_path} yet: starting from scratch" in (tmp_path / "run.log").read_text()


# -- signals and failures


@pytest.mark.parametrize(
    ("number", "kind", "code"), [(signal.SIGTERM, SystemExit, 143), (signal.SIGINT, KeyboardInterrupt, None)]
)
def test_a_signal_finishes_the_step_and_saves_it(tmp_path: Path, number: int, kind: Any, code: int | None) -> None:
    class Signals(Hook):
        def before_train_iter(self, trainner: Any) -> None:
            if trainner.global_step == 3:
                os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with pytest.raises(kind) as caught:
        trainer_in(tmp_path, Signals(), val_interval=0).train_loop()
    assert getattr(caught.value, "code", None) == code
    assert checkpoints(tmp_path) == ["chkpnt00003.pth"]
    assert signal.getsignal(number) is before
    trainer = trainer_in(tmp_path, resume=True)
    trainer.train_loop()
    assert trainer.datapipeline.asked == [4, 5]


def test_a_nonfinite_loss_or_weight_is_never_saved(tmp_path: Path) -> None:
    class Spoils(Hook):
        def __init__(self, what: str) -> None:
            self.what = what

        def after_train_iter(self, trainner: Any) -> None:
            if self.what == "loss":
                trainner.loss_dict["loss"] = torch.tensor(float("nan"))
            else:
                trainner.model.point_cloud.position.data[0] = float("inf")

    with pytest.raises(
        NumericsError, match="^the loss has become nan by step 2, so training cannot continue; check the"
    ):
        trainer_in(tmp_path, Spoils("loss"), CheckPointHook(save_step=2), val_interval=0).train_loop()
    with pytest.raises(NumericsError, match=r"^point_cloud\.position of the model became NaN or Inf by iteration 2"):
        trainer_in(tmp_path, Spoils("weights"), CheckPointHook(save_step=2), val_interval=0).train_loop()
    assert checkpoints(tmp_path) == []


# -- save_model, load_model, request_save


def test_save_model_writes_at_once_and_load_model_loads_the_weights(tmp_path: Path) -> None:
    class Saves(Hook):
        def after_train_iter(self, trainner: Any) -> None:
            if trainner.global_step == 3:
                self.path = trainner.save_model()

    trainer = trainer_in(tmp_path, saves := Saves(), Densify(2), val_interval=0)
    trainer.train_loop()
    assert saves.path == tmp_path / "chkpnt00003.pth"
    note = read_note(saves.path)
    assert note is not None
    assert (note.step, note.complete) == (3, False)
    last = trainer.save_model(tmp_path / "chkpnt5.pth")
    other = trainer_in(tmp_path / "other")
    other.test(str(last))
    assert len(other.model.point_cloud) == len(trainer.model.point_cloud) == 8
    assert_same(other.model.state_dict(), trainer.model.state_dict())
    assert other.metric_dict["psnr"].isfinite()
    (tmp_path / "no.pth").write_bytes(b"")
    with pytest.raises(StorageError, match=r"no\.pth cannot be read as a checkpoint: it is not a torch file$"):
        other.load_model(tmp_path / "no.pth")


def test_a_loss_of_an_earlier_training_does_not_end_the_next(tmp_path: Path) -> None:
    class Asks(Hook):
        def after_val(self, trainner: Any) -> None:
            trainner.request_save("asked.pth")

    trainer_in(tmp_path, CheckPointHook(save_step=2), max_steps=2, val_interval=0).train_loop()
    trainer = trainer_in(tmp_path, Asks(), max_steps=3, val_interval=2, resume=True)
    trainer.loss_dict = {"loss": torch.tensor(float("nan"))}
    trainer.train_loop()
    assert "asked.pth" in checkpoints(tmp_path)


def test_a_hook_may_save_the_best_checkpoint_under_a_custom_name(tmp_path: Path) -> None:
    class KeepsBest(Hook):
        best = float("-inf")

        def after_val(self, trainner: Any) -> None:
            psnr = float(trainner.metric_dict["psnr"])
            if psnr > self.best:
                self.best = psnr
                trainner.request_save("best.pth", done=lambda path: self.saved.append((trainner.iter, path.name)))

        def __init__(self) -> None:
            self.saved: list[tuple[int, str]] = []

    trainer_in(tmp_path, keeps := KeepsBest(), CheckPointHook(save_step=0), max_steps=8).train_loop()
    assert (keeps.saved[-1][0], checkpoints(tmp_path)) == (8, ["best.pth", "chkpnt00008.pth"])
    assert keeps.saved
    assert {name for _, name in keeps.saved} == {"best.pth"}
    assert read(tmp_path / "best.pth")["position"]["iter"] == keeps.saved[-1][0]
    note = read_note(tmp_path / "best.pth")
    assert note is not None
    assert note.complete
