from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.serialization import safe_globals

from hookline.common.plain import check_plain, without_numpy
from hookline.errors import HookError


class Marked(torch.Tensor):
    pass


class OwnParameter(nn.Parameter):
    pass


class Pair(NamedTuple):
    a: int


class Text(str):
    __slots__ = ()


def with_attributes(value: Any, **attributes: Any) -> Any:
    for name, attribute in attributes.items():
        setattr(value, name, attribute)
    return value


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(2)


def refusal(value: Any) -> str:
    with pytest.raises(HookError) as refused:
        check_plain(value, "state")
    return str(refused.value)


USE_PLAIN = "which a checkpoint cannot store; use tensors and plain data (numbers, strings, lists, dicts)"
STORE_PLAIN = (
    "a tensor class that a checkpoint cannot store; store a plain tensor, as .as_subclass(torch.Tensor) returns, or "
    "allow the class with torch.serialization.add_safe_globals"
)
TOO_LARGE = "is an int of {} bits, but a checkpoint stores at most 2,039; store it as text"
NO_SHAPE = "has no shape yet, so a checkpoint cannot store it; call the model once before it is saved"
NESTED = "is a nested tensor, which a checkpoint cannot store; store a list of tensors"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: {"seed": 2**2039}, f"state['seed'] {TOO_LARGE.format('2,040')}"),
        (lambda: {"seed": -(2**2039) - 1}, f"state['seed'] {TOO_LARGE.format('2,040')}"),
        (lambda: {2**3000: 1}, f"the key {2**3000} in state {TOO_LARGE.format('3,001')}"),
        (lambda: [b""], "state[0] is bytes without content, which a checkpoint cannot store; use text, or None"),
        (lambda: [Text("a")], f"state[0] is a {__name__}.Text, {USE_PLAIN}"),
        (lambda: [np.float64(1)], f"state[0] is a numpy.float64, {USE_PLAIN}"),
        (lambda: [Pair(1)], f"state[0] is a {__name__}.Pair, {USE_PLAIN}"),
        (lambda: [{1}], f"state[0] is a builtins.set, {USE_PLAIN}"),
        (
            lambda: {"a": {(1, Pair(1)): 2}},
            f"the key (1, Pair(a=1)) in state['a'][1] is a {__name__}.Pair, {USE_PLAIN}",
        ),
        (lambda: with_attributes(OrderedDict(), more=[Pair(1)]), f"state.more[0] is a {__name__}.Pair, {USE_PLAIN}"),
        (lambda: {"w": torch.ones(2).as_subclass(Marked)}, f"state['w'] is a {__name__}.Marked, {STORE_PLAIN}"),
        (lambda: nn.Parameter(torch.ones(2).as_subclass(Marked)), f"state is a {__name__}.Marked, {STORE_PLAIN}"),
        (fake, f"state is a torch._subclasses.fake_tensor.FakeTensor, {STORE_PLAIN}"),
        (lambda: with_attributes(torch.ones(2), tag=Pair(1)), f"state.tag is a {__name__}.Pair, {USE_PLAIN}"),
        (lambda: [with_attributes(torch.ones(2), tag=2**3000)], f"state[0].tag {TOO_LARGE.format('3,001')}"),
        (lambda: nn.LazyLinear(3).state_dict(), f"state['weight'] {NO_SHAPE}"),
        (lambda: torch.nested.nested_tensor([torch.ones(2)]), f"state {NESTED}"),
        (lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged), f"state {NESTED}"),
        (
            lambda: {"w": torch.ones(2, device="meta")},
            "state['w'] is on the device 'meta', so it has no data that a checkpoint could store",
        ),
        (
            lambda: {"w": torch.zeros(1).expand(1 << 40)},
            "state['w'] has 4,398,046,511,104 bytes in 4 bytes of memory, because it is expanded, which a checkpoint "
            "cannot store; store it as it was before that",
        ),
        (
            lambda: [torch.zeros(1).expand(1 << 25) for _ in range(10)],
            "state has tensors of 1,342,177,280 bytes in 40 bytes of memory, because they are expanded or repeated, "
            "which a checkpoint cannot store; store each of them once",
        ),
    ],
)
def test_values_that_cannot_be_loaded_again_are_refused_by_name(make: Callable[[], Any], message: str) -> None:
    assert refusal(make()) == message


@pytest.mark.filterwarnings("ignore:(?i).*(deprecated|beta state)")
def test_values_that_can_be_loaded_again_are_accepted() -> None:
    needs_gradient = torch.ones(2, requires_grad=True)
    values = [
        *(2**2039 - 1, -(2**2039), 1.5, 1j, None, True, "a", b"a", torch.Size([2]), torch.float32, torch.device("cpu")),
        *(
            Counter("aab"),
            with_attributes(Counter(), more=Pair(1)),
            {(1, (2, 3)): 4, None: 5},
            nn.Linear(2, 2).state_dict(),
        ),
        *(nn.Parameter(torch.ones(2)), OwnParameter(torch.ones(2)), nn.Buffer(torch.ones(2)), needs_gradient * 2),
        *(with_attributes(torch.ones(2), tag={"a": torch.ones(2)}), with_attributes(torch.ones(2), tags={1, 2})),
        *(torch.ones(2, dtype=torch.complex64).conj(), torch.zeros(1).expand(4096, 4096), torch.arange(9)[::2]),
        *(torch.eye(2).to_sparse(), torch.eye(2).to_sparse_csr(), torch.zeros(0, 3)),
        torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8),
    ]
    check_plain(values, "state")
    for declared in (Marked, (Marked, f"{__name__}.Marked")):
        with safe_globals([declared]):
            check_plain(torch.ones(2).as_subclass(Marked), "state")


def test_tied_weights_may_be_far_larger_than_their_memory() -> None:
    check_plain([torch.zeros(1 << 20)] * 160, "state")  # 640 MB in 4 MB


# ------------------------------------------------------------------------------------- shared, cyclic and deep values


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels - 1):
        found = [found]
    return found


def doubled(levels: int) -> list[Any]:
    found: list[Any] = [0.5]
    for _ in range(levels):
        found = [found, found]
    return found


def test_a_value_that_contains_itself_is_refused_by_name() -> None:
    end = "contains itself, which a checkpoint cannot store"
    as_list: list[Any] = [1]
    as_list.append({"a": (as_list,)})
    as_dict: dict[str, Any] = {}
    as_dict["me"] = as_dict
    tensor = torch.ones(2)
    tensor.me = tensor  # type: ignore[attr-defined]  # a new attribute
    assert refusal({"a": as_list}) == f"state['a'][1]['a'][0] {end}"
    assert refusal(as_dict) == f"state['me'] {end}"
    assert refusal([tensor]) == f"state[0].me {end}"


def test_a_value_may_have_300_levels_and_not_more() -> None:
    check_plain(nested(300), "state")
    end = "has more than 300 levels of lists and dicts inside each other, which a checkpoint cannot store"
    assert refusal(nested(301)) == f"state{'[0]' * 8}... {end}"
    assert refusal({"a": nested(100_000)}) == f"state['a']{'[0]' * 7}... {end}"


def test_shared_lists_are_visited_once_and_may_not_repeat_without_end() -> None:
    check_plain(doubled(18), "state")
    assert refusal(doubled(60)) == (
        f"state{'[0]' * 8}... repeats the same lists or dicts, to more than 1,012,100 entries, which a checkpoint "
        "cannot store; store each of them once"
    )
    check_plain([[0.5] * 50] * 10_000, "state")


# --------------------------------------------------------------------------------------------------- numpy numbers


def test_numpy_numbers_become_python_numbers() -> None:
    found = without_numpy({"lr": np.float64(0.1), "steps": [np.int64(3), (np.bool_(True), "a")]})
    assert found == {"lr": 0.1, "steps": [3, (True, "a")]}
    assert [type(found["lr"]), type(found["steps"][0]), type(found["steps"][1][0])] == [float, int, bool]


def test_shared_lists_stay_shared_and_cyclic_and_deep_ones_are_left_for_the_check() -> None:
    shared = without_numpy(doubled(60))
    assert shared[0] is shared[1]
    cyclic: list[Any] = [np.float64(1)]
    cyclic.append(cyclic)
    assert refusal(without_numpy(cyclic)).startswith("state[1]")
    assert refusal(without_numpy(nested(100_000))).endswith(
        "levels of lists and dicts inside each other, which a checkpoint cannot store"
    )
