"""Messages about torch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from hookline.strategies import pick
from hookline.testing import toy_model


@pytest.fixture
def _one_process() -> Iterator[None]:
    store: Any = distributed
    distributed.init_process_group("gloo", store=store.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("_one_process")
def test_an_error_of_ddp_about_a_parameter_without_a_gradient_names_the_setting() -> None:
    model = toy_model()
    wrapped = DistributedDataParallel(model)
    for requires_grad in (True, False):
        model.get_submodule("0").requires_grad_(requires_grad)
        wrapped(torch.ones(2, 4)).sum().backward()
    with pytest.raises(RuntimeError) as failed:
        wrapped(torch.ones(2, 4))
    assert pick("ddp").explain(failed.value) is failed.value
    assert failed.value.__notes__ == [
        "a parameter got no gradient: the loss does not use it, or a hook has frozen it since the strategy wrapped the "
        "model; set strategy: {type: ddp, find_unused_parameters: true}"
    ]
