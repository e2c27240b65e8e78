"""States that a checkpoint cannot hold are refused by name, and all others survive a resume."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from hookline import Hook, Optim, Runner
from hookline.errors import HookError, StorageError
from hookline.testing import toy_model, toy_runner
from tests.checkpoint import bombs
from tests.engine.spoiled import spoil

USE_PLAIN_TENSORS = (
    "a tensor class that a checkpoint cannot store; store a plain tensor, as .as_subclass(torch.Tensor) returns, or "
    "allow the class with torch.serialization.add_safe_globals"
)


class Marked(torch.Tensor):
    pass


class WithExtraState(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"seed": 2**3000}

    def set_extra_state(self, state: Any) -> None:
        pass


class Remembers(Hook):
    """A hook whose state is any value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def with_buffer(value: torch.Tensor) -> nn.Module:
    model = toy_model()
    model.register_buffer("extra", value)
    return model


@pytest.mark.parametrize("async_save", [False, True])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            lambda: with_buffer(torch.ones(2).as_subclass(Marked)),
            f"checkpoint['state_dict']['extra'] is a {__name__}.Marked, {USE_PLAIN_TENSORS}",
        ),
        (
            lambda: nn.Sequential(WithExtraState(4, 2)),
            "checkpoint['state_dict']['0._extra_state']['seed'] is an int of 3,001 bits, but a checkpoint stores at "
            "most 2,039; store it as text",
        ),
    ],
)
def test_a_model_that_could_not_be_resumed_is_refused_by_name_and_nothing_is_written(
    tmp_path: Path, model: Callable[[], nn.Module], message: str, async_save: bool
) -> None:
    with pytest.raises(HookError) as refused:
        toy_runner(model=model(), work_dir=tmp_path, default_hooks={"checkpoint": {"async_save": async_save}}).train()
    assert str(refused.value) == message
    assert list(tmp_path.glob("*.pth")) == list(tmp_path.glob(".*")) == []


def test_cyclic_and_endless_states_of_every_part_are_refused_by_name(tmp_path: Path) -> None:
    class Scheduler(lr_scheduler.StepLR):
        def state_dict(self) -> Any:
            return {"states": bombs.cyclic()}

    def train(**parts: Any) -> str:
        with pytest.raises(HookError) as refused:
            toy_runner(work_dir=tmp_path, **parts).train()
        return str(refused.value)

    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cyclic = "contains itself, which a checkpoint cannot store"
    assert train(model=model, optim=Optim(optimizer, [Scheduler(optimizer, 1)])) == (
        f"checkpoint['param_schedulers'][0]['states']['hooks'][0]['self'][0]['self'] {cyclic}"
    )
    assert train(custom_hooks=[Remembers(bombs.cyclic())]) == (
        f"the state of Remembers['value']['hooks'][0]['self'] {cyclic}"
    )
    assert train(custom_hooks=[Remembers(bombs.shared_lists())]).startswith(
        "the state of Remembers['value']['hooks'][0][0][0][0][0][0]... repeats the same lists or dicts, to more than "
    )


# ------------------------------------------------------------------------------- what is resumed exactly, today as ever

STATES: dict[str, Callable[[], torch.Tensor]] = {
    "expanded": lambda: torch.full((1,), 3.0).expand(512),
    "expanded_rows": lambda: torch.arange(3.0).expand(5, 3),
    "coo": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8),
    "conjugate": lambda: (torch.ones(2) * 1j).conj(),
    "strided": lambda: torch.arange(100.0)[::2],
}


def as_text(value: torch.Tensor) -> str:
    return str(value.dequantize().tolist() if value.is_quantized else value.to_dense().resolve_conj().tolist())


@pytest.mark.filterwarnings("ignore:(?i).*(deprecated|beta state)")
@pytest.mark.parametrize("async_save", [False, True])
@pytest.mark.parametrize("kind", STATES)
def test_tensors_of_every_kind_survive_a_resume(tmp_path: Path, kind: str, async_save: bool) -> None:
    def make(max_epochs: int, value: torch.Tensor, **parts: Any) -> Runner:
        return toy_runner(
            model=with_buffer(value),
            max_epochs=max_epochs,
            work_dir=tmp_path,
            default_hooks={"checkpoint": {"async_save": async_save}},
            **parts,
        )

    value, hook = STATES[kind](), Remembers(None)
    make(1, value, custom_hooks=[Remembers(STATES[kind]())]).train()
    other = (
        value
        if value.is_quantized or value.layout is not torch.strided
        else torch.zeros_like(value[:1]).expand_as(value)
    )
    resumed = make(2, other, custom_hooks=[hook], resume=True)
    resumed.train()
    assert as_text(resumed.model.get_buffer("extra")) == as_text(hook.value) == as_text(value)


def replace_weights(more: dict[str, torch.Tensor], checkpoint: dict[str, Any]) -> None:
    checkpoint["state_dict"].update(more)


@pytest.mark.filterwarnings("ignore:(?i).*(deprecated|beta state)")
def test_a_tensor_of_another_kind_does_not_fit_a_model(tmp_path: Path) -> None:
    weight = torch.ones(8, 4)
    for kind, other in [
        ("torch.sparse_coo", weight.to_sparse()),
        ("torch.qint8", torch.quantize_per_tensor(weight, 1.0, 0, torch.qint8)),
    ]:
        folder = tmp_path / kind
        toy_runner(max_epochs=1, work_dir=folder).train()
        spoil(folder, partial(replace_weights, {"0.weight": other}))
        with pytest.raises(StorageError) as refused:
            toy_runner(max_epochs=2, work_dir=folder, resume=True).train()
        assert str(refused.value) == (
            f"{folder / 'epoch_1.pth'} does not fit this run; nothing was loaded:\n"
            f"  0.weight: the model has (8, 4), the checkpoint {kind} (8, 4)"
        )
