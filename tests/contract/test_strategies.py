"""One contract suite for every strategy: everything that the loop, hooks, checkpoints and writers rely on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from hookline.errors import ConfigError, DistributedError
from hookline.record.history import Weighted
from hookline.run.requests import Requests
from hookline.strategies import STRATEGIES, Single, Strategy, one_process, pick, unwrap
from hookline.testing import toy_runner

NAMES = list(STRATEGIES)


@pytest.fixture(scope="module", params=NAMES)
def strategy(request: pytest.FixtureRequest) -> Iterator[Strategy]:
    """Return a strategy at work: alone in this process, or with the processes that torchrun has started."""
    if request.param == "single" and "WORLD_SIZE" in os.environ:
        yield Single()
        return
    several = "WORLD_SIZE" in os.environ
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in alone.items() if not several else ():
            patch.setenv(name, value)
        found = pick(request.param)
        found.start(Requests(), torch.device("cpu"))
        yield found
        if not several:  # gloo cannot create a group twice in the store of torchrun; the processes leave at their end
            found.shutdown()


def test_a_strategy_can_be_picked_by_its_name(strategy: Strategy) -> None:
    assert strategy.name in NAMES
    assert type(pick(strategy.name)) is type(strategy)
    assert pick(strategy) is strategy


def test_exactly_one_process_is_the_main_one(strategy: Strategy) -> None:
    assert 0 <= strategy.rank < strategy.world_size
    assert strategy.gather(strategy.is_main).count(True) == 1
    assert strategy.gather(strategy.rank) == list(range(strategy.world_size))
    everyone = list(range(strategy.world_size)) if strategy.is_main else []
    assert strategy.gather_on_main(strategy.rank) == everyone


def test_preparing_twice_is_harmless_and_the_user_module_can_be_unwrapped(strategy: Strategy) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = list(model.state_dict())
    device = strategy.pick_device("cpu")
    wrapped = strategy.prepare(strategy.prepare(model, [optimizer], device), [optimizer], device)
    inner = unwrap(wrapped)
    assert list(inner.state_dict()) == names
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == {id(p) for p in inner.parameters()}


def test_model_and_optimizer_states_are_restored(strategy: Strategy) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    weights, state = model.state_dict(), optimizer.state_dict()
    other = nn.Linear(2, 1)
    theirs = torch.optim.SGD(other.parameters(), lr=0.5, momentum=0.9)
    strategy.checkpoints.load_model(other, weights)
    strategy.checkpoints.load_optimizer(theirs, state)
    assert torch.equal(other.weight, model.weight)
    assert str(theirs.state_dict()) == str(state)


def test_numbers_are_summed_and_the_norm_covers_all_gradients(strategy: Strategy) -> None:
    assert strategy.reduce_sum(torch.tensor(2.0)).item() == 2.0 * strategy.world_size
    parameters = [nn.Parameter(torch.zeros(1)) for _ in range(3)]
    parameters[0].grad, parameters[1].grad = torch.tensor([3.0]), torch.tensor([4.0])
    assert strategy.gradients.norm_of(parameters).item() == 5.0
    assert strategy.gradients.norm_of(parameters, float("inf")).item() == 4.0


def test_numbers_are_averaged_by_their_weights_in_the_order_in_which_they_were_given(strategy: Strategy) -> None:
    found: list[dict[str, float]] = []
    rank, last = strategy.rank, strategy.world_size - 1
    for step in range(4):
        own: dict[str, float] = {"step": step, "rank": rank, "weighted": Weighted(rank, 1.0 + rank)}
        if step % 2 and rank == last:
            own["rare"] = 7.0
        if step == 3:
            own["nothing"] = Weighted(5.0, 0.0)
        strategy.average(own, found.append)
    strategy.settle()
    weights = [1.0 + each for each in range(last + 1)]
    every: dict[str, float] = {
        "rank": last / 2,
        "weighted": sum(each * weight for each, weight in enumerate(weights)) / sum(weights),
    }
    rare = {"rare": 7.0}
    assert found == [
        {"step": 0, **every},
        {"step": 1, **every, **rare},
        {"step": 2, **every},
        {"step": 3, **every, **rare, "nothing": 5.0},
    ]
    assert not any(isinstance(value, Weighted) for each in found for value in each.values())


def test_numbers_that_wait_are_used_as_they_are_if_the_other_processes_are_gone(strategy: Strategy) -> None:
    found: list[dict[str, float]] = []
    strategy.settle(alone=True)
    for step in range(3):
        strategy.average({"step": step, "rank": strategy.rank}, found.append)
    strategy.settle(alone=True)
    assert [each["step"] for each in found] == [0, 1, 2]
    strategy.barrier()


def test_results_and_errors_of_the_main_process_reach_all_processes(strategy: Strategy) -> None:
    assert strategy.on_main(lambda: 3) == 3
    kind = ValueError if strategy.is_main else DistributedError
    with pytest.raises(kind, match="^invalid" if strategy.is_main else "^rank 0 failed: ValueError: invalid"):
        strategy.on_main(lambda: int("planted"))
    strategy.barrier()


def test_processes_agree_on_requests(strategy: Strategy) -> None:
    requests = Requests()
    strategy.start(requests, torch.device("cpu"))
    if strategy.rank == strategy.world_size - 1:
        requests.ask_validation()
    strategy.agree(requests, now=True)
    assert (requests.validate, requests.pending) == (True, True)
    assert strategy.agree_on_first("bad" if strategy.is_main else "") in ("bad", "rank 0: bad")


def test_gradients_are_synced_in_the_last_backward_pass_of_a_window(
    strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    kind = type(strategy.gradients)
    original = kind.syncing

    def record(self: Any, model: nn.Module, sync: bool) -> object:
        synced.append(sync)
        return original(self, model, sync)

    monkeypatch.setattr(kind, "syncing", record)
    toy_runner(max_epochs=1, batches=5 * strategy.world_size, accumulate=2, val=None, strategy=strategy).train()
    assert synced == [False, True, False, True]  # the last window has one batch, so there is no sync to hold back


def test_a_trainer_for_one_process_refuses_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError) as refused:
        one_process("a trainer", "it only has one model")
    assert str(refused.value) == (
        "a trainer trains in one process, but this one is one of 2 (WORLD_SIZE): it only has one model; start one "
        "process, or use hookline's own Runner"
    )


def test_a_strategy_may_have_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = pick({"type": "ddp", "timeout": 7, "find_unused_parameters": True})
    assert (found.name, found.group.timeout, found.options) == ("ddp", 7, {"find_unused_parameters": True})
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ConfigError) as refused:
        pick({"type": "single", "timeout": 7})
    assert str(refused.value) == "the strategy 'single' has no option 'timeout'; it has none"


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        pick("singel")
    assert str(refused.value) == "unknown strategy 'singel'; did you mean 'single'?"


def test_a_timeout_that_is_not_shorter_than_the_grace_period_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found: Any = pick({"type": "ddp", "timeout": 90})
    monkeypatch.setattr(found.group, "join", lambda device: None)
    for grace in ("60", "91"):
        monkeypatch.setenv("HOOKLINE_GRACE", grace)
        found.start(Requests(), torch.device("cpu"))
    expected = (
        "the timeout of the processes (90 s) is not shorter than the time to end after a signal (--grace 60): if a "
        "process hangs then, all are killed without a message; use a shorter timeout or a longer --grace"
    )
    assert [record.getMessage() for record in caplog.records] == ([expected] if found.is_main else [])
    monkeypatch.setenv("HOOKLINE_GRACE", "many")
    with pytest.raises(ConfigError, match="HOOKLINE_GRACE must be a number of seconds, not 'many'"):
        found.start(Requests(), torch.device("cpu"))
