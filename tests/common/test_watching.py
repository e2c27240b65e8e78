"""Watching modules: which calls and gradients are seen, by which name, and that nothing else changes."""

from __future__ import annotations

import gc
import weakref
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hookline.common.watching import Backward, Forward, Seen, find_modules, tensors_in, watching
from hookline.errors import ConfigError


class Net(nn.Module):
    """Uses a layer twice, once in a list, and one under two names."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))])
        self.shared = self.layers[0]
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor, again: bool = True) -> Tensor:
        x = self.layers[1](self.layers[0](x))
        return self.head(self.shared(x) if again else x)  # type: ignore[no-any-return]  # a tensor


def short(seen: Seen) -> tuple[Any, ...]:
    shape = seen.outputs.shape if isinstance(seen, Forward) else seen.gradient.shape
    return seen.kind, seen.name, seen.call, tuple(shape)


def handles(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) for module in model.modules())


def test_calls_and_gradients_are_seen_in_order_with_their_numbers() -> None:
    model, seen = Net(), []
    with watching(model, ["layers.*", ""], ["forward", "backward"], lambda each: seen.append(short(each))):
        model(torch.ones(4, 3)).sum().backward()
    assert seen == [
        ("forward", "layers.0", 0, (4, 3)),
        ("forward", "layers.1.0", 0, (4, 3)),
        ("forward", "layers.1.1", 0, (4, 3)),
        ("forward", "layers.1", 0, (4, 3)),
        ("forward", "layers.0", 1, (4, 3)),
        ("forward", "", 0, (4, 2)),
        ("backward", "", 0, (4, 2)),
        ("backward", "layers.0", 1, (4, 3)),
        ("backward", "layers.1.1", 0, (4, 3)),
        ("backward", "layers.1", 0, (4, 3)),
        ("backward", "layers.1.0", 0, (4, 3)),
        ("backward", "layers.0", 0, (4, 3)),
    ]
    assert handles(model) == 0


def test_a_forward_call_is_seen_with_its_inputs_and_a_gradient_is_the_one_of_autograd() -> None:
    model = Net()
    calls: list[Seen] = []
    gradients: list[Seen] = []
    batch = torch.ones(4, 3)
    with watching(model, "", ["forward"], calls.append):
        model(batch, again=False)
    (call,) = calls
    assert isinstance(call, Forward)
    assert (call.inputs[0] is batch, call.named_inputs, call.module is model) == (True, {"again": False}, True)
    hidden: list[Tensor] = []
    with watching(model, "layers.1.0", ["backward"], gradients.append):
        kept = model.layers[1][0].register_forward_hook(lambda module, inputs, outputs: hidden.append(outputs.clone()))  # type: ignore[index]
        outputs = model(batch)
        kept.remove()
        outputs.square().sum().backward()
    (gradient,) = gradients
    assert isinstance(gradient, Backward)
    x = hidden[0].detach().requires_grad_()
    model.head(model.layers[0](x.relu())).square().sum().backward()
    assert x.grad is not None
    assert gradient.gradient.equal(x.grad)


@dataclass
class Out:
    """Outputs as some libraries return them."""

    logits: Tensor
    more: Any = None


class Many(nn.Module):
    """Returns several tensors, one of them twice, one without a gradient, and one that nobody uses."""

    def forward(self, x: Tensor) -> Out:
        return Out(x * 2, {"first": (x * 3, x.detach()), "same": [x * 4] * 2, "number": 1})


def test_gradients_of_several_outputs_have_their_numbers() -> None:
    seen: list[Any] = []
    x = torch.ones(2, requires_grad=True)
    with watching(model := Many(), "", ["forward", "backward"], seen.append):
        outputs = model(x)
        (outputs.logits.sum() + 5 * outputs.more["same"][1].sum()).backward()
    assert [(each.output, each.gradient.tolist()) for each in seen[1:]] == [(3, [5.0, 5.0]), (0, [1.0, 1.0])]
    assert [each.tolist() for each in tensors_in(seen[0].outputs)] == [[2, 2], [3, 3], [1, 1], [4, 4], [4, 4]]


Pair = namedtuple("Pair", ["first", "second"])


def test_tensors_are_found_in_all_usual_outputs() -> None:
    one, two = torch.zeros(1), torch.ones(1)
    for outputs in ((one, [two]), {"a": one, "b": (two,)}, Pair(one, two), Out(one, {"x": two}), [[one], None, 3, two]):
        assert [each is wanted for each, wanted in zip(tensors_in(outputs), (one, two), strict=True)] == [True, True]
    assert list(tensors_in(Out)) == list(tensors_in("text")) == []


def test_nothing_is_seen_after_the_end_not_even_gradients_of_earlier_calls() -> None:
    model = Net()
    seen: list[Seen] = []
    with watching(model, "*", ["backward"], seen.append):
        loss = model(torch.ones(1, 3)).sum()
    loss.backward()
    model(torch.ones(1, 3)).sum().backward()
    assert seen == []
    assert handles(model) == 0


def test_everything_is_removed_after_an_error_in_the_model_and_in_the_callback() -> None:
    model = Net()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), watching(model, "*", ["forward"], print):
        model(torch.ones(1, 5))
    assert handles(model) == 0

    def fail(seen: Seen) -> None:
        raise ValueError(seen.name)

    with pytest.raises(ValueError, match=r"^layers\.0$"), watching(model, "*", ["forward"], fail):
        model(torch.ones(1, 3))
    assert handles(model) == 0


def weights_after(callback: Callable[[Seen], None] | None) -> list[Tensor]:
    torch.manual_seed(1)
    model = nn.Sequential(Net(), nn.Dropout(0.5), nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        if callback is None:
            model(torch.randn(8, 3)).square().sum().backward()
        else:
            with watching(model, ["*", ""], ["forward", "backward"], callback):
                model(torch.randn(8, 3)).square().sum().backward()
        optimizer.step()
    return [*(value.clone() for value in model.state_dict().values()), torch.get_rng_state()]


def test_watching_changes_no_bit_of_the_weights_and_the_random_numbers() -> None:
    def look(seen: Seen) -> None:
        tensor = seen.outputs if isinstance(seen, Forward) else seen.gradient
        assert not (tensor.mean() * 2).requires_grad

    plain, watched = weights_after(None), weights_after(look)
    assert [one.equal(other) for one, other in zip(plain, watched, strict=True)] == [True] * len(plain)


def test_a_callback_runs_without_autocast_so_that_weights_keep_their_gradients() -> None:
    second, kinds = nn.Linear(2, 2), []
    model = nn.Sequential(nn.Linear(2, 2), second)

    def look(seen: Any) -> None:
        kinds.append(seen.outputs.dtype)
        kinds.append(nn.functional.linear(torch.ones(1, 2), second.weight).dtype)  # autocast would keep a copy

    with torch.autocast("cpu", torch.bfloat16), watching(model, "0", ["forward"], look):
        loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    assert kinds == [torch.bfloat16, torch.float32]
    assert second.weight.grad is not None


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_recomputed_forward_pass_is_not_seen_twice(reentrant: bool) -> None:
    class Saving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Any:
            return checkpoint(self.inner, x, use_reentrant=reentrant)

    seen: list[tuple[Any, ...]] = []
    with watching(model := Saving(), "inner", ["forward", "backward"], lambda each: seen.append(short(each))):
        model(torch.ones(1, 2, requires_grad=True)).sum().backward()
    assert seen == [("forward", "inner", 0, (1, 2)), ("backward", "inner", 0, (1, 2))]


def test_a_graph_is_freed_as_without_watching() -> None:
    model, alive = Net(), []
    gc.collect()
    gc.disable()
    try:
        with watching(model, "*", ["forward", "backward"], lambda seen: None):
            kept = model.head.register_forward_hook(lambda *given: alive.append(weakref.ref(given[2])))
            model(torch.ones(1, 3)).sum().backward()
            kept.remove()
            assert [each() for each in alive] == [None]
    finally:
        gc.enable()


# ------------------------------------------------------------------------------------------------ names


def test_a_pattern_selects_modules_by_name_and_each_module_once() -> None:
    model = Net()
    assert list(find_modules(model, "*")) == ["layers.0", "layers.1", "layers.1.0", "layers.1.1", "head"]
    assert list(find_modules(model, ["shared", "layers.?"])) == ["shared", "layers.1"]
    assert list(find_modules(model, ["", "head"])) == ["", "head"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("layers", "'layers' matches no module of the model; did you mean 'layers.*'?"),
        ("heads", "'heads' matches no module of the model; the closest name is 'head'"),
        (
            "zzz",
            "'zzz' matches no module of the model; available: layers.0, layers.1, layers.1.0, layers.1.1, shared, head",
        ),
    ],
)
def test_a_pattern_without_a_module_is_refused_with_the_nearest_name(pattern: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        find_modules(Net(), ["head", pattern])
    assert str(refused.value) == message


def test_an_unknown_pass_is_refused() -> None:
    with pytest.raises(ConfigError) as refused, watching(Net(), "*", ["backwards"], print):  # type: ignore[list-item]
        pass
    assert str(refused.value) == (
        "modules are watched in the 'forward' or the 'backward' pass, not 'backwards'; did you mean 'backward'?"
    )


def test_compiled_modules_are_refused_and_others_are_not() -> None:
    model = Net()
    model.layers[1].compile(backend="eager")
    assert list(find_modules(model, "layers.0")) == ["layers.0"]
    for name in ("layers.1", "layers.1.0"):
        with pytest.raises(ConfigError) as refused:
            find_modules(model, name)
        assert str(refused.value) == (
            f"the module '{name}' is compiled, and compiled code does not call modules one by one, so it cannot be "
            "watched; train without compile, or watch modules outside the compiled part"
        )
    whole = Net()
    compiled: Any = nn.Module()
    compiled._orig_mod = whole  # as torch.compile returns it
    with pytest.raises(ConfigError, match="^the module 'head' is compiled, and"):
        find_modules(whole, "head", compiled)
    with pytest.raises(ConfigError, match="^the model is compiled, and"):
        find_modules(whole, "", compiled)
