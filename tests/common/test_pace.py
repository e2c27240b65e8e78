"""Work that is repeated now and then."""

from __future__ import annotations

from hookline.common.pace import SPARSE, Pace


def test_work_is_due_at_once_then_after_the_gap_and_never_too_often() -> None:
    pace = Pace(5.0)
    assert pace.is_due(0.0)
    pace.done(0.0, 0.001)
    assert [pace.is_due(now) for now in (1.0, 5.0, 5.002)] == [False, False, True]
    assert [pace.is_due(now, gap=0.0) for now in (1.0, 2.1)] == [False, True], "2000 times as long as it took"
    pace.done(10.0, 11.0)
    assert [pace.is_due(now) for now in (20.0, 11.0 + SPARSE)] == [False, True]
