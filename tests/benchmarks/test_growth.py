from __future__ import annotations

import pytest

import growth
from simulation import Simulation


@pytest.mark.parametrize(
    ("measure", "names"),
    [
        (growth.registration, ["registered", "then to the first step"]),
        (growth.calls, ["called at every step", "not due"]),
        (growth.numbers, ["recorded"]),
        (growth.groups, ["bare loop", "hookline"]),
        (growth.checkpoints, ["find the newest", "resume, step, save"]),
        (growth.compared_runs, ["hookline compare"]),
    ],
)
def test_every_kind_of_growth_is_measured(measure, names) -> None:  # type: ignore[no-untyped-def]
    panel = growth.measure("Things", "things", "ms", measure, [2, 3], rounds=1)
    assert list(panel.curves) == names
    assert all(list(curve) == [2, 3] and min(curve.values()) > 0 for curve in panel.curves.values())


def test_a_long_run_is_measured_at_every_power_of_ten() -> None:
    cost, memory = growth.long_runs(10_000)
    for panel in (cost, memory):
        assert {name: list(curve) for name, curve in panel.curves.items()} == {
            "training": [1000, 10_000],
            "with validations": [1000, 10_000],
        }
    assert cost.as_table().splitlines()[0] == "| steps (us per step) | 1,000 | 10,000 |"
    assert growth.picture_of([cost, memory]).count("<polyline") == 4


def test_a_simulation_hands_out_as_many_batches_as_it_says_and_takes_no_time_between_two_marks_twice() -> None:
    data = Simulation([3, 5])
    assert (len(data), list(data)) == (6, [0] * 6)
    (_, began), (over, _) = data.seen
    assert data.microseconds == [(over - began) / 2 * 1e6]
