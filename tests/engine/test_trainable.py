"""`checkpoint: {params: trainable}`: checkpoints without the frozen rest of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hookline import Hook, Optim, Runner
from hookline.checkpoint import seal, store
from hookline.checkpoint.export import export
from hookline.errors import ConfigError, HookError, StorageError
from hookline.hooks import EMAHook, FreezeHook
from hookline.testing import toy_runner


class Adapted(nn.Module):
    """A large frozen base with a norm, and a small head that is trained: 1% of the parameters."""

    def __init__(self, seed: int = 0, width: int = 300, features: int = 400) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            norm = nn.BatchNorm1d(features)
            self.base = nn.Sequential(nn.Linear(4, width), nn.Linear(width, features), norm, nn.ReLU())
            self.head = nn.Linear(features, 2)
        self.base.requires_grad_(False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.base(inputs))
        return result


def adapted(folder: Path, params: str = "trainable", seed: int = 0, model: Any = None, **parts: Any) -> Runner:
    model = model or Adapted(seed)
    saving = {"params": params, **parts.pop("checkpoint", {})}
    optim = Optim(torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=0.01))
    parts.setdefault("optim", optim)
    return toy_runner(model=model, work_dir=folder, default_hooks={"checkpoint": saving}, **parts)


def names(path: Path) -> list[str]:
    return list(store.read(path, sealed=True)["state_dict"])


STATISTICS = [f"base.2.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")]
HEAD = ["head.weight", "head.bias"]


def test_a_model_with_one_percent_of_trained_parameters_has_checkpoints_of_at_most_4_percent(tmp_path: Path) -> None:
    model = Adapted(width=2000)
    trained = sum(each.numel() for each in model.head.parameters())
    assert trained / sum(each.numel() for each in model.parameters()) < 0.01
    sizes = []
    for params in ("all", "trainable"):
        adapted(tmp_path / params, params, model=Adapted(width=2000), custom_hooks=[EMAHook()]).train()
        sizes.append((tmp_path / params / "epoch_2.pth").stat().st_size)
    assert sizes[1] / sizes[0] < 0.04
    assert names(tmp_path / "trainable" / "epoch_2.pth") == [*STATISTICS, *HEAD]
    found = store.read(tmp_path / "trainable" / "epoch_2.pth", sealed=True)
    assert list(found["frozen"]) == [name for name in model.state_dict() if name not in [*STATISTICS, *HEAD]]
    assert list(found["hooks"]["EMAHook"]["averaged"]) == [*STATISTICS, *HEAD]


@pytest.mark.parametrize("resumed", ["trainable", "all"])
def test_a_run_resumes_exactly_from_the_trained_part(tmp_path: Path, resumed: str) -> None:
    whole = adapted(tmp_path / "whole", "all", max_epochs=4, custom_hooks=[EMAHook()])
    whole.train()
    adapted(tmp_path / "parts", max_epochs=2, custom_hooks=[EMAHook()]).train()
    again = adapted(tmp_path / "parts", resumed, max_epochs=4, resume=True, custom_hooks=[EMAHook()])
    again.train()
    assert str(again.model.state_dict()) == str(whole.model.state_dict())
    states = [store.read(tmp_path / each / "epoch_4.pth", sealed=True) for each in ("whole", "parts")]
    assert str(states[0]["optimizer"]) == str(states[1]["optimizer"])
    averages = [state["hooks"]["EMAHook"]["averaged"] for state in states]
    assert all(value.equal(averages[0][name]) for name, value in averages[1].items())
    assert ("frozen" in states[1]) is (resumed == "trainable")


def test_a_whole_checkpoint_can_be_continued_with_partial_ones(tmp_path: Path) -> None:
    adapted(tmp_path, "all", max_epochs=1).train()
    adapted(tmp_path, max_epochs=2, resume=True).train()
    assert names(tmp_path / "epoch_2.pth") == [*STATISTICS, *HEAD]


def test_another_base_is_refused_with_exit_code_5(tmp_path: Path) -> None:
    adapted(tmp_path, max_epochs=1).train()
    runner = adapted(tmp_path, seed=1, max_epochs=2, resume=True)
    before = str(runner.model.state_dict())
    with pytest.raises(StorageError) as refused:
        runner.train()
    assert str(refused.value) == (
        f"{tmp_path / 'epoch_1.pth'} has only the trained parameters (params: trainable), and the frozen rest of this "
        "model is not the one that it was trained with: base.0.weight differs and 3 more; nothing was loaded\n"
        "  build the model with the same base weights: the same load_from, or the same parameters of the model"
    )
    assert refused.value.exit_code == 5
    assert str(runner.model.state_dict()) == before


@pytest.mark.parametrize(
    ("size", "misfits"),
    [
        (
            {"width": 320},
            [
                "base.0.weight: the model has (320, 4), the checkpoint (300, 4)",
                "base.0.bias: the model has (320,), the checkpoint (300,)",
                "base.1.weight: the model has (400, 320), the checkpoint (400, 300)",
            ],
        ),
        (
            {"features": 500},
            [
                "base.1.weight: the model has (500, 300), the checkpoint (400, 300)",
                "base.1.bias: the model has (500,), the checkpoint (400,)",
                "base.2.weight: the model has (500,), the checkpoint (400,)",
                "base.2.bias: the model has (500,), the checkpoint (400,)",
                "base.2.running_mean: the model has (500,), the checkpoint (400,)",
                "base.2.running_var: the model has (500,), the checkpoint (400,)",
                "head.weight: the model has (2, 500), the checkpoint (2, 400)",
            ],
        ),
    ],
    ids=["only the base", "base and head"],
)
def test_another_size_of_the_model_is_a_mismatch_of_shapes_not_of_the_frozen_rest(
    tmp_path: Path, size: dict[str, int], misfits: list[str]
) -> None:
    adapted(tmp_path, max_epochs=1).train()
    with pytest.raises(StorageError) as refused:
        adapted(tmp_path, model=Adapted(**size), max_epochs=2, resume=True).train()
    assert str(refused.value) == "\n  ".join(
        [f"{tmp_path / 'epoch_1.pth'} does not fit the model; nothing was loaded:", *misfits]
    )
    assert refused.value.exit_code == 5


def test_a_hash_without_a_shape_is_compared_as_before(tmp_path: Path) -> None:
    adapted(tmp_path, max_epochs=1).train()
    path = tmp_path / "epoch_1.pth"
    found = store.read(path, sealed=True)
    found["frozen"] = {name: value.rpartition(" ")[2] for name, value in found["frozen"].items()}
    note = seal.read_note(path)
    assert note is not None
    store.write(found, path, note)
    adapted(tmp_path, max_epochs=2, resume=True).train()
    with pytest.raises(StorageError, match="base.0.weight differs and 3 more"):
        adapted(tmp_path / "again", seed=1, max_epochs=2, resume=path).train()


def test_the_base_of_load_from_is_loaded_again_by_a_resume(tmp_path: Path) -> None:
    torch.save(Adapted(seed=5).state_dict(), tmp_path / "base.pth")
    base: dict[str, Any] = {"load_from": tmp_path / "base.pth"}
    whole = adapted(tmp_path / "whole", "all", max_epochs=2, **base)
    whole.train()
    adapted(tmp_path / "parts", max_epochs=1, **base).train()
    assert "base.0.weight" not in names(tmp_path / "parts" / "epoch_1.pth")
    again = adapted(tmp_path / "parts", max_epochs=2, resume=True, **base)
    again.train()
    assert str(again.model.state_dict()) == str(whole.model.state_dict())
    with pytest.raises(StorageError, match="base.0.weight differs"):
        adapted(tmp_path / "parts", max_epochs=3, resume=True).train()


def test_a_parameter_that_is_unfrozen_is_saved_from_then_on_and_stays_when_it_is_frozen_again(tmp_path: Path) -> None:
    def build(**parts: Any) -> Runner:
        model = Adapted()
        model.base[0].requires_grad_(True)
        hooks = [FreezeHook("base.0.*", until_epoch=1), FreezeHook("base.0.weight", from_epoch=2)]
        return adapted(parts.pop("folder", tmp_path), model=model, custom_hooks=hooks, **parts)

    build(max_epochs=3).train()
    assert names(tmp_path / "epoch_1.pth") == [*STATISTICS, *HEAD]
    for epoch in (2, 3):
        assert names(tmp_path / f"epoch_{epoch}.pth") == ["base.0.weight", "base.0.bias", *STATISTICS, *HEAD]
    again = build(max_epochs=4, resume=True)
    again.train()
    whole = build(max_epochs=4, folder=tmp_path / "whole")
    whole.train()
    assert str(again.model.state_dict()) == str(whole.model.state_dict())


@pytest.mark.parametrize("how", ["in place", "data", "replaced"])
def test_a_frozen_parameter_that_a_hook_changes_is_not_lost(tmp_path: Path, how: str) -> None:
    class Changes(Hook):
        def after_train_epoch(self, runner: Runner) -> None:
            weight: Any = runner.model.get_parameter("base.0.weight")
            with torch.no_grad():
                if how == "in place":
                    weight.neg_()
                elif how == "data":
                    weight.data.neg_()
                else:
                    weight.data = -weight.data

    adapted(tmp_path, max_epochs=1, custom_hooks=[Changes()]).train()
    assert names(tmp_path / "epoch_1.pth") == ["base.0.weight", *STATISTICS, *HEAD]
    assert adapted(tmp_path, max_epochs=1, resume=True).train() is not None


def test_a_partial_checkpoint_is_tested_with_its_base_and_refused_with_another(tmp_path: Path) -> None:
    trained = adapted(tmp_path, max_epochs=2)
    trained.train()
    path = tmp_path / "epoch_2.pth"
    assert adapted(tmp_path / "test", load_from=path).test() == trained.test()
    with pytest.raises(StorageError, match="base.0.weight differs and 3 more; nothing was loaded"):
        adapted(tmp_path / "test", seed=1, load_from=path).test()


def test_a_partial_checkpoint_of_another_base_can_be_the_start_of_a_training_which_is_reported(tmp_path: Path) -> None:
    adapted(tmp_path / "first", max_epochs=1).train()
    path = tmp_path / "first" / "epoch_1.pth"
    second = adapted(tmp_path / "second", seed=1, load_from=path, max_epochs=1)
    second.train()
    assert (
        f"  {path} has only the trained parameters, and the frozen rest of this model is not the one that it was "
        "trained with: base.0.weight differs\n" in (tmp_path / "second" / "run.log").read_text()
    )
    assert second.model.state_dict()["base.0.weight"].equal(Adapted(1).state_dict()["base.0.weight"])


def test_a_signal_and_a_failure_save_the_trained_part_as_well(tmp_path: Path) -> None:
    class Fails(Hook):
        def before_train_iter(self, runner: Runner) -> None:
            if runner.iter == 6:
                raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        adapted(tmp_path, max_epochs=2, custom_hooks=[Fails()], checkpoint={"save_on_exception": True}).train()
    assert names(tmp_path / "iter_6.pth") == [*STATISTICS, *HEAD]

    class Asks(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            if runner.iter == 2:
                runner.request_save()

    adapted(tmp_path / "asks", max_epochs=1, custom_hooks=[Asks()]).train()
    assert names(tmp_path / "asks" / "iter_3.pth") == [*STATISTICS, *HEAD]


def test_published_files_keep_the_hashes(tmp_path: Path) -> None:
    adapted(tmp_path, max_epochs=1, checkpoint={"published_keys": "state_dict"}).train()
    (published,) = tmp_path.glob("epoch_1-*.pth")
    assert list(store.read(published, sealed=True)) == ["state_dict", "frozen"]
    assert adapted(tmp_path / "test", load_from=published).test()


def test_the_setting_is_checked_before_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"CheckpointHook: params cannot be 'trained'; did you mean 'trainable'\?"):
        adapted(tmp_path, "trained")
    model = Adapted()
    model.requires_grad_(True)
    adapted(tmp_path, model=model, max_epochs=1).train()
    assert (
        "warning: CheckpointHook: params: trainable saves as much as all, because every parameter is trained\n"
        in (tmp_path / "run.log").read_text()
    )
    runner = toy_runner(max_epochs=1)
    runner.on("after_train_iter")(lambda runner: runner.request_save(params="trainable"))
    with pytest.raises(HookError, match="needs a hook that saves so from the beginning"):
        runner.train()


def test_a_sharded_run_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapted(tmp_path, max_epochs=1).train()
    runner = adapted(tmp_path, max_epochs=2)
    monkeypatch.setattr(type(runner.strategy.checkpoints), "are_sharded", True)
    with pytest.raises(
        ConfigError, match=r"^CheckpointHook: params: trainable cannot be used with the strategy 'single'"
    ):
        runner.train()
    with pytest.raises(
        StorageError, match="make it a whole one first: hookline export FILE --base BASE --out whole.pth"
    ):
        adapted(tmp_path, "all", max_epochs=2, resume=True).train()


def test_export_completes_a_partial_checkpoint_or_asks_for_its_base(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    trained = adapted(tmp_path, max_epochs=1, custom_hooks=[EMAHook()])
    trained.train()
    path, base = tmp_path / "epoch_1.pth", tmp_path / "base.pth"
    torch.save(Adapted().state_dict(), base)
    with pytest.raises(ConfigError) as refused:
        export(path)
    assert str(refused.value) == (
        f"{path} has only the trained parameters (params: trainable); to export the whole model, add the file with the "
        "weights that it began with: --base FILE; to export only these parameters: --trained-only"
    )
    whole = load_file(export(path, tmp_path / "whole.safetensors", base=base).path)
    assert all(value.equal(whole[name]) for name, value in trained.model.state_dict().items())
    assert set(load_file(export(path, tmp_path / "part.safetensors", trained_only=True).path)) == {*STATISTICS, *HEAD}
    averaged = load_file(export(path, tmp_path / "ema.safetensors", base=base, averaged=True).path)
    assert set(averaged) == set(whole)
    export(path, tmp_path / "all.pth", base=base)
    resumed = adapted(tmp_path / "new", seed=9, max_epochs=1, resume=tmp_path / "all.pth", custom_hooks=[EMAHook()])
    resumed.train()  # it needs no base any more
    torch.save(Adapted(1).state_dict(), tmp_path / "other.pth")
    with pytest.raises(StorageError, match="base.0.weight differs and 3 more"):
        export(path, tmp_path / "no.safetensors", base=tmp_path / "other.pth")
    options: list[dict[str, Any]] = [{"base": base}, {"trained_only": True}]
    for option in options:
        with pytest.raises(ConfigError, match="is for checkpoints with only the trained parameters, but .* has all"):
            export(tmp_path / "all.pth", tmp_path / "no.safetensors", **option)
