from __future__ import annotations

from typing import Any

import pytest
import torch

from hookline.checkpoint import frozen
from hookline.errors import StorageError


def test_a_fingerprint_notices_every_kind_of_change() -> None:
    whole = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    balanced = torch.tensor([1.0, -1.0]).repeat(100)
    other = whole.clone()
    other[7] += 1e-6
    changed = [other, whole.flip(0), whole.roll(1), whole[:999], whole.view(10, 100), whole.double(), -whole]
    prints = [frozen.fingerprint(each) for each in [whole, *changed]]
    assert len(set(prints)) == len(prints)
    assert frozen.fingerprint(-balanced) != frozen.fingerprint(balanced)
    assert frozen.fingerprint(whole.clone()) == prints[0]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.float64, torch.complex64])
def test_tensors_of_all_types_and_shapes_have_fingerprints_and_hashes(dtype: torch.dtype) -> None:
    for shape in [(), (0,), (3,), (5, 70)]:
        value = torch.ones(shape).to(dtype)
        assert frozen.fingerprint(value) == frozen.fingerprint(value.clone())
        assert len(frozen.digest(value)) == 64
        if value.numel():
            assert frozen.fingerprint(value) != frozen.fingerprint(torch.zeros_like(value))
            assert frozen.digest(value) != frozen.digest(torch.zeros_like(value))
    assert frozen.digest(torch.ones(4, 2)) != frozen.digest(torch.ones(2, 4))
    assert frozen.digest(torch.arange(6).view(2, 3).T) == frozen.digest(torch.arange(6).view(2, 3).T.contiguous())


def test_tensors_that_training_changed_are_kept_and_the_rest_is_hashed() -> None:
    state = {"head": torch.ones(2), "body": torch.ones(3), "mean": torch.zeros(2), "extra": {"any": 1}}
    rest = frozen.FrozenRest(state)
    state["mean"] = torch.ones(2)
    kept, left = rest.split(state, trained={"head"})
    assert (list(kept), left) == (["head", "mean", "extra"], {"body": f"(3,) {frozen.digest(torch.ones(3))}"})


def test_a_partial_checkpoint_is_completed_in_the_order_of_the_model() -> None:
    own = {"a": torch.ones(1), "b": torch.ones(2), "c": torch.ones(3)}
    checkpoint: dict[str, Any] = {
        "state_dict": {"b": torch.zeros(2)},
        "hooks": {"EMAHook": {"averaged": {"b": torch.zeros(2)}, "steps": 1}, "Other": {"averaged": 3}},
        "frozen": {"a": frozen.digest(own["a"]), "c": frozen.digest(own["c"])},
    }
    assert frozen.complete(checkpoint, own, "file") == []
    assert [(name, value.tolist()) for name, value in checkpoint["state_dict"].items()] == [
        ("a", [1]), ("b", [0, 0]), ("c", [1, 1, 1])
    ]  # fmt: skip
    assert sorted(checkpoint["hooks"]["EMAHook"]["averaged"]) == ["a", "b", "c"]
    assert not frozen.is_partial(checkpoint)


def test_another_base_is_refused_by_name_unless_it_is_tolerated() -> None:
    own = {"a": torch.ones(1), "b": torch.ones(2)}

    def partial() -> dict[str, object]:
        return {
            "state_dict": {},
            "frozen": {"a": frozen.digest(torch.zeros(1)), "z": "0", "b": frozen.digest(own["b"])},
        }

    with pytest.raises(StorageError) as refused:
        frozen.complete(partial(), own, "file.pth")
    assert str(refused.value) == (
        "file.pth has only the trained parameters (params: trainable), and the frozen rest of this model is not the "
        "one that it was trained with: a differs and 1 more; nothing was loaded\n"
        "  build the model with the same base weights: the same load_from, or the same parameters of the model"
    )
    assert frozen.complete(partial(), own, "file.pth", tolerant=True) == ["a differs", "z is missing"]
    with pytest.raises(StorageError, match=r"^file cannot be used: frozen is not of the type that a run saves$"):
        frozen.complete({"state_dict": {}, "frozen": {"a": 3}}, own, "file")
