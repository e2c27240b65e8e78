"""Checkpoints: exact resuming, files from MMEngine, and functions that read and write checkpoints."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hookline.dialects.mmengine.hooks import Hook
from hookline.dialects.mmengine.runner import (
    CheckpointLoader,
    find_latest_checkpoint,
    get_state_dict,
    load_checkpoint,
    save_checkpoint,
    weights_to_cpu,
)
from hookline.dialects.mmengine.runner.checkpoint import _load_checkpoint_with_prefix
from hookline.errors import HookError, StorageError
from hookline.testing import toy_model
from tests.checkpoint import bombs
from tests.dialects.mmengine.parts import VAL, ToyNet, runner_of, weights

ROOT = Path(__file__).parents[3]


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(mine, theirs) for mine, theirs in zip(one.parameters(), other.parameters(), strict=True))


def parts(**more: Any) -> dict[str, Any]:
    return {
        "model": {"type": "ToyNet", "dropout": 0.3},
        "train_cfg": {"max_epochs": 4},
        "param_scheduler": {"type": "ExponentialLR", "gamma": 0.9, "end": 100},
        "custom_hooks": [{"type": "EMAHook", "momentum": 0.1}],
        **more,
    }


def test_a_resumed_run_is_bit_identical(tmp_path: Path) -> None:
    whole = runner_of(tmp_path / "whole", **parts()).train()
    runner_of(tmp_path / "run", **parts(train_cfg={"max_epochs": 2})).train()
    resumed = runner_of(tmp_path / "run", **parts(resume=True))
    assert same(resumed.train(), whole)
    assert resumed._resume
    at_two = tmp_path / "run" / "epoch_2.pth"
    again = runner_of(tmp_path / "other", **parts(load_from=str(at_two), resume=True))
    assert same(again.train(), whole)
    assert sorted(path.name for path in (tmp_path / "other").glob("*.pth")) == ["epoch_3.pth", "epoch_4.pth"]
    for name in ("epoch_3.pth", "epoch_4.pth"):
        mine, other = (weights(tmp_path / folder / name, "hooks", "EMAHook", "averaged") for folder in ("run", "whole"))
        assert all(torch.equal(mine[key], other[key]) for key in mine)


class Dies(Hook):
    """Kills the process, as in a power failure."""

    priority = "LOWEST"

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if runner.iter == 9:
            os.kill(os.getpid(), signal.SIGKILL)


def killed(folder: str) -> None:
    from torch.utils.data import TensorDataset

    from hookline.testing import toy_data

    inputs, labels = (torch.cat(each) for each in zip(*toy_data(4), strict=True))
    saving = {"checkpoint": {"type": "CheckpointHook", "by_epoch": False, "interval": 3}}
    loader = {
        "dataset": TensorDataset(inputs, labels),
        "sampler": {"type": "DefaultSampler", "shuffle": True},
        "collate_fn": {"type": "default_collate"},
        "batch_size": 8,
    }
    mode = {"run": [Dies()], "run-again": [], "whole": []}[Path(folder).name]
    work_dir = Path(folder).with_name(Path(folder).name.removesuffix("-again"))
    custom = [{"type": "EMAHook", "momentum": 0.1}, *mode]
    more = parts(custom_hooks=custom, default_hooks=saving, train_dataloader=loader, resume=folder.endswith("-again"))
    runner_of(work_dir, **more).train()


def test_a_run_killed_in_the_middle_of_an_epoch_resumes_bit_identically(tmp_path: Path) -> None:
    code = "import sys; from tests.dialects.mmengine.test_checkpoints import killed; killed(sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], env=environment, cwd=tmp_path)
    assert ended.returncode == -signal.SIGKILL
    assert sorted(path.name for path in (tmp_path / "run").glob("*.pth")) == ["iter_3.pth", "iter_6.pth", "iter_9.pth"]
    killed(str(tmp_path / "run-again"))
    killed(str(tmp_path / "whole"))
    mine, other = (weights(tmp_path / folder / "iter_16.pth") for folder in ("run", "whole"))
    assert list(mine["state_dict"]) == [f"net.{number}.{name}" for number in (0, 2) for name in ("weight", "bias")]
    assert all(torch.equal(mine["state_dict"][name], other["state_dict"][name]) for name in mine["state_dict"])
    assert torch.equal(mine["rng"]["torch"], other["rng"]["torch"])
    averaged = [each["hooks"]["EMAHook"]["averaged"] for each in (mine, other)]
    assert all(torch.equal(averaged[0][name], averaged[1][name]) for name in averaged[0])


# -- files from MMEngine

WRITE = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
from torch import nn
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner

class Net(BaseModel):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    def forward(self, inputs, labels, mode="tensor"):
        return {"loss": nn.functional.cross_entropy(self.net(inputs), labels)}

batch = (torch.arange(32.0).reshape(8, 4) / 32, torch.tensor([0, 1] * 4))
runner = Runner(
    Net(), sys.argv[1], train_dataloader=torch.utils.data.DataLoader([(a, b) for a, b in zip(*batch)], batch_size=4),
    train_cfg=dict(by_epoch=True, max_epochs=2), optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.1)),
    custom_hooks=[dict(type="EMAHook")] if sys.argv[2:] else [], randomness=dict(seed=1), log_level="ERROR",
)
runner.train()
torch.save(runner.model.state_dict(), sys.argv[1] + "/raw.pt")
"""


@pytest.fixture(scope="module")
def written_by_mmengine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mmengine")
    subprocess.run([sys.executable, "-c", WRITE, str(folder)], check=True, cwd=folder, capture_output=True)
    return folder


def test_load_from_loads_the_weights_of_a_file_from_mmengine(tmp_path: Path, written_by_mmengine: Path) -> None:
    path = written_by_mmengine / "epoch_2.pth"
    with pytest.raises(Exception, match="HistoryBuffer"):
        torch.load(path, weights_only=True)
    begun = []

    class Copies(Hook):
        def before_train(self, runner: Any) -> None:
            begun.append({name: value.clone() for name, value in runner.model.state_dict().items()})

    runner = runner_of(tmp_path / "run", load_from=str(path), custom_hooks=[Copies()])
    runner.train()
    raw = torch.load(written_by_mmengine / "raw.pt", weights_only=True)
    assert all(torch.equal(begun[0][name], raw[name]) for name in raw)
    assert f"weights from {path}" in (tmp_path / "run" / "run.log").read_text()
    assert "mmengine" not in sys.modules


def test_the_functions_read_such_a_file_too(written_by_mmengine: Path) -> None:
    path = written_by_mmengine / "epoch_2.pth"
    raw = torch.load(written_by_mmengine / "raw.pt", weights_only=True)
    model = ToyNet()
    found = load_checkpoint(model, str(path), strict=True)
    assert all(torch.equal(value, raw[name]) for name, value in model.state_dict().items())
    assert found["meta"]["epoch"] == 2
    assert CheckpointLoader.load_checkpoint(str(path))["meta"]["iter"] == 4
    assert find_latest_checkpoint(written_by_mmengine) == str(path)


def test_a_file_from_mmengine_cannot_be_resumed(tmp_path: Path, written_by_mmengine: Path) -> None:
    path = written_by_mmengine / "epoch_2.pth"
    with pytest.raises(StorageError) as refused:
        runner_of(tmp_path / "run", load_from=path, resume=True).train()
    assert str(refused.value) == (
        f"{path} cannot be resumed: it does not end with a seal, so it was cut short, damaged, or written by something "
        "else; to load only the weights of an intact file, use load_from without resume"
    )


class ConfigDict(dict[str, Any]):
    """A custom dict class of a project."""


def test_weights_next_to_other_dict_classes_are_loaded(tmp_path: Path) -> None:
    by_kind: defaultdict[str, list[int]] = defaultdict(list)
    by_kind["a"].append(1)
    cfg = ConfigDict(lr=0.1, inner=ConfigDict(deep=[1, 2]))
    stored = {"state_dict": toy_model(3).state_dict(), "meta": {"seen": by_kind, "cfg": cfg}}
    torch.save(stored, tmp_path / "other.pth")
    model = toy_model()
    found = load_checkpoint(model, tmp_path / "other.pth", strict=True)
    assert same(model, toy_model(3))
    assert found["meta"] == {"seen": {"a": [1]}, "cfg": {"lr": 0.1, "inner": {"deep": [1, 2]}}}
    assert type(found["meta"]["cfg"]) is type(found["meta"]["seen"]) is OrderedDict


class Opens:
    """An object that makes a hostile file run code."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


class Calls:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("kind", [Opens, Calls])
def test_nothing_in_a_file_is_run(tmp_path: Path, kind: Any) -> None:
    victim = tmp_path / "victim"
    weights_of_net = {"net." + name: value for name, value in toy_model().state_dict().items()}
    torch.save({"state_dict": weights_of_net, "message_hub": kind(victim)}, tmp_path / "hostile.pth")
    runner = runner_of(tmp_path / "run", load_from=tmp_path / "hostile.pth")
    try:
        runner.train()
    except StorageError as error:
        assert "code in a file is never run" in str(error)  # noqa: PT017  # refused or loaded without it: both are fine
    assert not victim.exists()


def test_a_file_that_is_not_a_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.pth").write_bytes(b"no checkpoint")
    with pytest.raises(StorageError, match="x.pth cannot be read as a checkpoint: it is not a torch file$"):
        load_checkpoint(toy_model(), tmp_path / "x.pth")
    with pytest.raises(StorageError, match="is not on the local disk; download it, and pass the path of the file"):
        load_checkpoint(toy_model(), "https://example.com/x.pth")
    with pytest.raises(StorageError, match="there is no checkpoint"):
        load_checkpoint(toy_model(), tmp_path / "y.pth")


class Unknown:
    pass


def test_stand_ins_do_not_open_the_door_to_files_that_claim_too_much(tmp_path: Path) -> None:
    for name, expected in [("shared_lists", "it repeats the same lists"), ("expanded", "its tensors claim 4,398,046,")]:
        torch.save({"meta": Unknown(), **getattr(bombs, name)()}, tmp_path / "x.pth")
        with pytest.raises(StorageError, match=f"x.pth cannot be read as a checkpoint: {expected}"):
            load_checkpoint(toy_model(), tmp_path / "x.pth")


# -- functions


def test_weights_with_a_prefix_fit(tmp_path: Path) -> None:
    other = toy_model(seed=3)
    save_checkpoint({"state_dict": {f"module.{k}": v for k, v in other.state_dict().items()}}, tmp_path / "x" / "m.pth")
    model = toy_model()
    load_checkpoint(model, tmp_path / "x" / "m.pth", strict=True)
    assert same(model, other)
    partly = {"state_dict": {"backbone.0.weight": torch.zeros(8, 4)}}
    save_checkpoint(partly, tmp_path / "part.pth")
    load_checkpoint(model, tmp_path / "part.pth", revise_keys=[(r"^backbone\.", "")])
    assert torch.equal(model.state_dict()["0.weight"], torch.zeros(8, 4))
    with pytest.raises(RuntimeError, match="does not fit the model:\n  missing: 0.weight"):
        load_checkpoint(model, tmp_path / "part.pth", strict=True)
    assert list(get_state_dict(nn.DataParallel(model))) == list(model.state_dict())
    assert weights_to_cpu(model.state_dict()).keys() == model.state_dict().keys()


def test_weights_of_a_part_of_a_model(tmp_path: Path) -> None:
    save_checkpoint({"state_dict": {"module.net.a": torch.ones(1), "head.b": torch.zeros(1)}}, tmp_path / "x.pth")
    assert _load_checkpoint_with_prefix("net", tmp_path / "x.pth") == {"a": torch.ones(1)}
    with pytest.raises(StorageError, match=r"x\.pth has no weights whose names start with 'neck\.'$"):
        _load_checkpoint_with_prefix("neck.", tmp_path / "x.pth")


def test_save_checkpoint_of_a_runner_writes_at_once_and_again_when_the_step_is_done(tmp_path: Path) -> None:
    at_once = tmp_path / "mine" / "at_{two}.pth"

    class Saves(Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            if runner.iter == 1:
                runner.save_checkpoint(tmp_path / "mine", "at_{two}.pth", meta={"why": "just so"})
                now = runner.model.state_dict()
                stored = weights(at_once, "state_dict")
                assert all(torch.equal(stored[name], value) for name, value in now.items())
                shutil.copy(at_once, tmp_path / "copy.pth")
                runner.save_checkpoint(tmp_path / "mine", "moved.pth")
                (tmp_path / "mine" / "moved.pth").rename(tmp_path / "elsewhere.pth")

        def after_run(self, runner: Any) -> None:
            runner.save_checkpoint(str(tmp_path / "mine"), "end.pth", save_optimizer=False, meta={"by": "me"})
            with pytest.raises(HookError, match=r"^the meta of a checkpoint\['model'\] is a "):
                runner.save_checkpoint(tmp_path, "x.pth", meta={"model": runner.model})
            assert (tmp_path / "mine" / "end.pth").exists()

    whole = runner_of(tmp_path / "run", VAL, **parts(custom_hooks=[Saves()])).train()
    copied, found = weights(tmp_path / "copy.pth"), weights(at_once)
    assert [(each["position"]["iter"], each["meta"]["why"]) for each in (copied, found)] == [
        (1, "just so"),
        (2, "just so"),
    ]
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["at_{two}.pth", "end.pth", "last_checkpoint"]
    end = weights(tmp_path / "mine" / "end.pth")
    assert ("optimizer" in end, "why" in end["meta"], end["meta"]["by"]) == (False, False, "me")
    assert "why" not in weights(tmp_path / "run" / "epoch_4.pth", "meta")
    with pytest.raises(StorageError, match="in the middle of a step"):
        resumed_from(tmp_path / "copy.pth", tmp_path / "again")
    runner_of(tmp_path / "weights", VAL, **parts(custom_hooks=[], load_from=tmp_path / "copy.pth")).train()
    assert same(resumed_from(at_once, tmp_path / "resumed"), whole)


def resumed_from(checkpoint: Path, folder: Path) -> nn.Module:
    resuming = {"load_from": checkpoint, "resume": True}
    return runner_of(folder, VAL, **parts(custom_hooks=[], **resuming)).train()


def test_a_checkpoint_for_a_runner_that_only_tests(tmp_path: Path) -> None:
    runner_of(tmp_path / "run", **parts()).train()
    tests = {"load_from": tmp_path / "run" / "epoch_4.pth", "custom_hooks": [{"type": "EMAHook"}]}
    from tests.dialects.mmengine.parts import TRAIN

    runner = runner_of(tmp_path / "tests", [*TRAIN, *VAL], **tests)
    assert list(runner.test()) == ["accuracy"]
    assert "uses the averaged weights of 16 steps" in (tmp_path / "tests" / "run.log").read_text()


def test_load_checkpoint_of_a_runner_is_immediate_and_hooks_see_it(tmp_path: Path) -> None:
    runner_of(tmp_path / "run").train()
    seen = []

    class Looks(Hook):
        def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
            seen.append(checkpoint["meta"]["epoch"])

    runner = runner_of(tmp_path / "other", custom_hooks=[Looks()])
    runner.load_checkpoint(tmp_path / "run" / "epoch_2.pth")
    assert seen == [2]
    stored = weights(tmp_path / "run" / "epoch_2.pth", "state_dict")
    assert all(torch.equal(value, stored[name]) for name, value in runner.model.state_dict().items())
    assert find_latest_checkpoint(tmp_path / "run") == str(tmp_path / "run" / "epoch_2.pth")


def test_load_or_resume_loads_the_weights_immediately(tmp_path: Path) -> None:
    runner_of(tmp_path / "run").train()
    seen = []

    class Looks(Hook):
        def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
            seen.append(checkpoint["meta"]["epoch"])

    runner = runner_of(tmp_path / "other", load_from=tmp_path / "run" / "epoch_2.pth", custom_hooks=[Looks()])
    runner.model.init_weights = lambda: pytest.fail("the weights are already loaded")  # type: ignore[assignment]
    runner.load_or_resume()
    stored = weights(tmp_path / "run" / "epoch_2.pth", "state_dict")
    assert all(torch.equal(value, stored[name]) for name, value in runner.model.state_dict().items())
    runner.train()
    assert seen == [2]


def test_a_folder_without_a_pointer_has_no_latest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert find_latest_checkpoint(tmp_path) is None
    assert caplog.messages == [f"there is no last_checkpoint in {tmp_path}, so its newest checkpoint is unknown"]
