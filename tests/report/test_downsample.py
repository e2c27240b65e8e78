from __future__ import annotations

import math

import numpy as np
import pytest

from hookline.report.downsample import BUCKETS, Curve


def curve(values: list[float], block: int = 1000) -> Curve:
    made, array = Curve(), np.array(values, np.float64)
    for first in range(0, len(array), block):
        part = array[first : first + block]
        made.add(np.arange(first + 1, first + 1 + len(part)), part)
    return made


def test_a_short_curve_is_exact() -> None:
    found = curve([3.0, 1.0, math.nan, 2.0])
    assert found.points(100) == {"steps": [1, 2, 3, 4], "values": [3.0, 1.0, None, 2.0]}
    assert (found.count, found.gaps, found.first, found.last) == (4, 1, (1, 3.0), (4, 2.0))
    assert (found.lowest(), found.highest()) == ((2, 1.0), (1, 3.0))


def test_an_empty_curve_has_no_points() -> None:
    assert Curve().points(10) == {"steps": [], "values": []}
    assert Curve().lowest() is None
    assert curve([math.nan]).highest() is None


@pytest.mark.parametrize("place", [1, 2, 777, 50_000, 99_999, 100_000])
@pytest.mark.parametrize("spike", [1e6, -1e6])
def test_a_single_spike_survives_at_its_step(place: int, spike: float) -> None:
    values = np.sin(np.arange(100_000)).tolist()
    values[place - 1] = spike
    for limit in (10, 100, 1600):
        found = curve(values).points(limit)
        at = found["values"].index(spike)
        assert found["steps"][at] == place
        assert len(found["steps"]) <= limit + 4
        assert found["steps"] == sorted(found["steps"])


def test_a_single_gap_survives() -> None:
    values = [1.0] * 50_000
    values[31_415] = math.inf
    found = curve(values).points(100)
    assert [step for step, value in zip(found["steps"], found["values"], strict=True) if value is None] == [31_416]


def test_a_long_curve_keeps_its_ends_and_its_means() -> None:
    values = np.linspace(0, 1, 200_000).tolist()
    found = curve(values).points(200)
    assert (found["steps"][0], found["values"][0]) == (1, 0.0)
    assert (found["steps"][-1], found["values"][-1]) == (200_000, 1.0)
    assert found["means"] == sorted(found["means"])
    assert np.mean(found["means"]) == pytest.approx(0.5, abs=0.02)


def test_memory_does_not_grow_with_the_length() -> None:
    made = curve(np.random.default_rng(0).random(300_000).tolist())
    assert len(made.buckets) <= 2 * BUCKETS
    assert int(made.buckets.count.sum()) == 300_000
    assert float(made.buckets.total.sum()) == pytest.approx(150_000, rel=0.01)


def test_steps_that_go_back_are_sorted() -> None:
    made = Curve()
    made.add(np.array([5, 6, 3]), np.array([1.0, 2.0, 3.0]))
    assert made.points(10) == {"steps": [3, 5, 6], "values": [3.0, 1.0, 2.0]}


def test_the_first_values_can_be_kept_as_they_are() -> None:
    made = Curve(exact=3)
    for first in (0, 2):
        made.add(np.array([first + 1, first + 2]), np.array([0.1, 0.2]))
    assert [steps.tolist() for steps, _ in made.exact] == [[1, 2], [3]]
