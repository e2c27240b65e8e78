"""The user's step: what it may return, and what hooks see of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hookline.engine import steps
from hookline.engine.metrics import accuracy
from hookline.errors import HooklineError

LOSS = torch.tensor(2.0)


@pytest.mark.parametrize(
    ("result", "outputs"),
    [
        (LOSS, {"loss": LOSS}),
        ({"loss": LOSS, "n": 3}, {"loss": LOSS, "n": 3}),
        ({"loss_a": LOSS, "b_loss": LOSS, "n": 3}, {"loss_a": LOSS, "b_loss": LOSS, "n": 3, "loss": LOSS * 2}),
        (("preds", LOSS), {"outputs": "preds", "loss": LOSS}),
        (({"n": 3}, LOSS), {"n": 3, "loss": LOSS}),
    ],
)
def test_results_of_a_step_become_outputs(result: Any, outputs: dict[str, Any]) -> None:
    assert steps.as_outputs(result) == outputs


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (None, "the step returned None; "),
        ("loss", "the step returned a str; "),
        (torch.zeros(2), "the loss of the step is a tensor of shape (2,); "),
        ({"loss": 2.0}, "the loss of the step is a float; "),
        ({"n": 3}, "the step returned a mapping with ['n'], but without a loss; "),
        ((1, 2, 3), "the step returned a tuple; "),
    ],
)
def test_anything_else_is_refused_with_what_to_return(result: Any, found: str) -> None:
    with pytest.raises(HooklineError) as refused:
        steps.as_outputs(result)
    assert str(refused.value) == found + steps.WHAT_TO_RETURN


@pytest.mark.parametrize(
    ("result", "outputs"),
    [(None, {}), ({"n": 3}, {"n": 3}), ({"loss": LOSS, "n": 3}, {"loss": LOSS, "n": 3}), (LOSS, {"loss": LOSS})],
)
def test_a_step_that_makes_its_own_updates_may_return_no_loss(result: Any, outputs: dict[str, Any]) -> None:
    found = steps.own_outputs(result)
    assert found == outputs
    assert found is not result


def test_the_model_is_called_with_a_batch_as_keywords_as_arguments_or_directly() -> None:
    def model(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    call: Any = steps.call_model
    assert call(model, {"a": 1}) == ((), {"a": 1})
    assert call(model, (1, 2)) == ((1, 2), {})
    assert call(model, [1]) == ((1,), {})
    assert call(model, 1) == ((1,), {})


def test_a_step_updates_itself_if_it_has_a_parameter_named_optim() -> None:
    assert steps.updates_itself(lambda model, batch, optim: None)
    assert not steps.updates_itself(lambda model, batch: None)
    assert not steps.updates_itself(dict)


def test_the_ready_made_steps() -> None:
    model = nn.Linear(2, 2)
    batch = (torch.ones(3, 2), torch.tensor([0, 1, 0]))
    expected: Tensor = nn.functional.cross_entropy(model(batch[0]), batch[1])
    assert torch.equal(steps.cross_entropy(model, batch), expected)
    preds, target = steps.predict(model, batch)
    assert torch.equal(preds, model(batch[0]))
    assert target is batch[1]


def test_a_mapping_without_text_as_keys_is_refused_with_its_keys() -> None:
    with pytest.raises(HooklineError) as refused:
        steps.as_outputs({1: 2.0, "a": 1.0})
    assert str(refused.value) == (
        f"the step returned a mapping with [1, 'a'], but without a loss; {steps.WHAT_TO_RETURN}"
    )


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        ((torch.zeros(2, 4), torch.zeros(2)), "too many positional arguments"),
        ({"inputs": torch.zeros(2, 4)}, "missing a required argument: 'input'"),
    ],
)
def test_without_a_step_a_model_that_does_not_accept_the_batch_says_what_to_write(batch: Any, why: str) -> None:
    with pytest.raises(HooklineError) as raised:
        steps.call_model(nn.Linear(4, 1), batch)
    assert str(raised.value) == (
        f"without a step, the model is called with the batch, which Linear.forward does not accept: {why}; "
        "write a step, a function of the model and a batch, and set it: train.step, val.step or test.step"
    )
    assert isinstance(raised.value.__cause__, TypeError)


def test_without_a_step_a_type_error_inside_the_model_is_raised_unchanged() -> None:
    class Broken(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs + None  # type: ignore[operator]  # on purpose

    with pytest.raises(TypeError, match="unsupported operand"):
        steps.call_model(Broken(), torch.zeros(2))


class Two(nn.Module):
    """A model with two outputs."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return inputs, inputs


def test_cross_entropy_says_what_to_do_about_a_model_that_returns_a_tuple() -> None:
    with pytest.raises(HooklineError) as caught:
        steps.cross_entropy(Two(), (torch.zeros(2, 3), torch.zeros(2)))
    assert str(caught.value) == (
        "the step cross_entropy needs a tensor of logits, but the model returned a tuple; write a step, a function of "
        f"the model and a batch: {steps.WHAT_TO_RETURN}"
    )


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        ((1, 2, 3), "a tuple of 3"),
        ([1], "a list of 1"),
        ({"inputs": 1, "target": 2}, "a dict"),
        (torch.zeros(2, 3), "a tensor of shape (2, 3)"),
    ],
)
@pytest.mark.parametrize("step", [steps.cross_entropy, steps.predict])
def test_a_ready_made_step_refuses_batches_that_are_not_pairs(step: Any, batch: Any, found: str) -> None:
    with pytest.raises(HooklineError) as caught:
        step(nn.Identity(), batch)
    assert str(caught.value) == (
        f"the step {step.__name__} needs batches (inputs, target), but the loader yields {found}; write a step, a "
        "function of the model and a batch"
    )


def test_accuracy_refuses_predictions_that_are_not_a_tensor() -> None:
    with pytest.raises(HooklineError) as caught:
        accuracy(*steps.predict(Two(), (torch.zeros(2, 3), torch.zeros(2))))
    assert str(caught.value) == (
        "accuracy needs a tensor of outputs, but the predictions of the step are a tuple; write a step that returns "
        "(preds, target)"
    )
