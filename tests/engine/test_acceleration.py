from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hookline import Optim, Runner, TrainLoop
from hookline.config import build_runner, from_dict
from hookline.engine import acceleration
from hookline.errors import ConfigError
from hookline.testing import toy_runner

IMAGES = [(torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])) for _ in range(3)]


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def trained(folder: Path, model: nn.Module | None = None, **parts: Any) -> Runner:
    model = small_net() if model is None else model
    runner = Runner(
        model,
        train=TrainLoop(IMAGES, loss_of, max_epochs=2),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.1)),
        work_dir=folder,
        device="cpu",
        quiet=True,
        **parts,
    )
    runner.train()
    return runner


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


# ------------------------------------------------------------------------------------------------------- threads


class Clock:
    """A clock that advances by the duration of a step, which depends on the number of threads."""

    def __init__(self, durations: dict[int, float]) -> None:
        self.durations, self.now = durations, 0.0

    def __call__(self) -> float:
        return self.now

    def step(self, model: nn.Module, batch: Any) -> Tensor:
        self.now += self.durations[torch.get_num_threads()]
        return loss_of(model, batch)


@pytest.mark.parametrize(
    ("durations", "chosen"), [({1: 1.0, 2: 5.0}, 1), ({1: 1.0, 2: 0.6}, 2), ({1: 1.0, 2: 0.97}, 1)]
)
def test_auto_takes_the_fastest_number_of_threads_and_restores_it_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_threads: None, durations: dict[int, float], chosen: int
) -> None:
    clock = Clock(durations)
    monkeypatch.setattr(acceleration, "clock", clock)
    model, seen = small_net(), []
    runner = Runner(
        model,
        train=TrainLoop(IMAGES, clock.step, max_epochs=1),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.1)),
        work_dir=tmp_path,
        quiet=True,
        threads="auto",
    )
    runner.on("after_train_iter")(lambda runner: seen.append(torch.get_num_threads()))
    runner.train()
    assert seen == [chosen] * 3
    assert torch.get_num_threads() == 2
    times = ", ".join(f"{1e3 * seconds:.3g} ms with {number}" for number, seconds in durations.items())
    assert f"threads: {chosen} (measured: a step takes {times})" in (tmp_path / "run.log").read_text()


def test_measuring_changes_nothing_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_threads: None
) -> None:
    monkeypatch.setattr(acceleration, "clock", lambda: 0.0)  # so one thread is as fast as two, and is chosen

    def with_dropout() -> nn.Module:
        return nn.Sequential(*small_net().children(), nn.Dropout(0.5), nn.BatchNorm1d(2))

    torch.set_num_threads(1)
    plain = trained(tmp_path / "plain", with_dropout())
    torch.set_num_threads(2)
    auto = with_dropout()
    runner = trained(tmp_path / "auto", auto, threads="auto")
    assert runner.model is auto
    for name, value in plain.model.state_dict().items():
        assert torch.equal(auto.state_dict()[name], value), name


def test_a_resumed_run_computes_with_the_threads_of_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_threads: None
) -> None:
    trained(tmp_path, threads=1)
    monkeypatch.setattr(acceleration, "measure", lambda *given: pytest.fail("it must not measure again"))
    model, seen = small_net(), []
    runner = Runner(
        model,
        train=TrainLoop(IMAGES, loss_of, max_epochs=3),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.1)),
        work_dir=tmp_path,
        quiet=True,
        threads="auto",
        resume=True,
    )
    runner.on("after_train_iter")(lambda runner: seen.append(torch.get_num_threads()))
    runner.train()
    assert seen == [1] * 3
    text = (tmp_path / "run.log").read_text()
    assert "threads: 1 (as in the checkpoint)" in text
    assert "bits may differ" not in text


def test_a_step_that_cannot_run_before_training_keeps_the_threads_of_the_process(
    tmp_path: Path, two_threads: None
) -> None:
    ready: list[bool] = []

    def step(model: nn.Module, batch: Any) -> Tensor:
        assert ready, "not prepared"
        return loss_of(model, batch)

    model = small_net()
    runner = Runner(
        model,
        train=TrainLoop(IMAGES, step, max_epochs=1),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.1)),
        work_dir=tmp_path,
        quiet=True,
        threads="auto",
    )
    runner.on("before_train")(lambda runner: ready.append(True))
    runner.train()
    assert (
        "threads: 2 (a step before training failed: AssertionError: not prepared" in (tmp_path / "run.log").read_text()
    )


def test_a_number_of_threads_is_used_during_the_run_and_restored(tmp_path: Path, two_threads: None) -> None:
    runner = toy_runner(work_dir=tmp_path, threads=1, max_epochs=1)
    seen: list[int] = []
    runner.on("after_train_iter")(lambda runner: seen.append(torch.get_num_threads()))
    runner.train()
    assert set(seen) == {1}
    assert torch.get_num_threads() == 2


# ----------------------------------------------------------------------------------- channels_last and compile


def test_channels_last_trains_the_same_weights(tmp_path: Path) -> None:
    plain, changed = trained(tmp_path / "a"), trained(tmp_path / "b", channels_last=True)
    weight = next(changed.model.parameters())
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()
    for name, value in plain.model.state_dict().items():
        torch.testing.assert_close(changed.model.state_dict()[name], value)


def test_a_compiled_model_trains_the_same_weights_and_hooks_see_the_module(tmp_path: Path) -> None:
    plain = trained(tmp_path / "a")
    model = small_net()
    compiled = trained(tmp_path / "b", model, compile={"backend": "aot_eager"})
    assert compiled.model is model
    assert hasattr(compiled.wrapped, "_orig_mod")
    for name, value in plain.model.state_dict().items():
        assert compiled.model.state_dict()[name].equal(value), name


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"threads": 0}, "threads must be an int of at least 1, not 0"),
        ({"threads": "all"}, "threads must be a number or 'auto', not 'all'"),
        ({"threads": True}, "threads must be an int of at least 1, not True"),
        ({"channels_last": 1}, "channels_last must be true or false, not 1"),
        ({"prefetch": None}, "prefetch must be true or false, not None"),
        ({"compile": "yes"}, "compile must be true, false, or parameters of torch.compile, not 'yes'"),
        ({"compile": {"backand": "eager"}}, "compile: unknown parameter 'backand'; did you mean 'backend'?"),
        (
            {"channels_last": True},
            "channels_last has no effect on Sequential: it has no weight with four dimensions, as a Conv2d has; "
            "remove it",
        ),
    ],
)
def test_misuse_is_refused_when_the_runner_is_created(tmp_path: Path, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        toy_runner(work_dir=tmp_path, **parts)
    assert str(refused.value) == message


def test_a_backend_that_does_not_exist_is_refused_when_the_runner_is_created(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"compile: torch.compile refuses \{'backend': 'nope'\}: "):
        toy_runner(work_dir=tmp_path, compile={"backend": "nope"})


def test_a_model_that_is_compiled_already_is_refused(tmp_path: Path) -> None:
    model: Any = torch.compile(small_net(), backend="eager")
    with pytest.raises(ConfigError, match="the model is already compiled"):
        trained(tmp_path, model, compile=True)


# ---------------------------------------------------------------------------------------------------- configs

CONFIG: dict[str, Any] = {
    "model": {"type": "Linear", "in_features": 64, "out_features": 10},
    "train": {"dataloader": {"dataset": {"type": "Digits"}, "batch_size": 64}, "max_epochs": 1},
    "optim": {"optimizer": {"type": "SGD", "lr": 0.1}},
    "device": "cpu",
}


def test_a_config_can_set_all_of_them() -> None:
    options = {"threads": "auto", "compile": {"backend": "eager"}, "prefetch": False}
    found = build_runner(from_dict({**CONFIG, **options}))._host.acceleration
    assert (found.threads, found.prefetch, found.channels_last) == ("auto", False, False)
    assert found.compile == {"backend": "eager"}


@pytest.mark.parametrize(
    ("key", "value"), [("threads", 0), ("threads", "al"), ("compile", "yes"), ("compile", {"backand": "x"})]
)
def test_a_config_with_a_wrong_value_names_the_key(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        build_runner(from_dict({**CONFIG, key: value}))
    print(refused.value)
    assert key in str(refused.value)
