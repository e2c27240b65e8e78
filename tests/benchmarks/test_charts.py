from __future__ import annotations

from xml.etree import ElementTree

import charts

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_bars_are_as_long_as_their_values_and_a_missing_one_is_called_failed() -> None:
    svg = charts.bars("Time <per> step", ["alone", "all"], {"MLP": {"a": [1.0, 2.0], "b & c": [4.0, None]}})
    bars = [r for r in ElementTree.fromstring(svg).iter(f"{SVG}rect") if r.get("height") == "14.0"]
    widths = [float(bar.get("width", "")) for bar in bars]
    assert [round(width / widths[0]) for width in widths] == [1, 2, 4]
    assert [bar.get("fill") for bar in bars] == [charts.COLORS[0], charts.COLORS[1], charts.COLORS[0]]
    assert texts(svg) == ["Time <per> step", "alone", "all", "a", "b & c", "MLP", "1.00", "2.00", "4.00", "failed"]


def test_lines_use_a_log_scale_with_a_separate_place_for_zero() -> None:
    svg = charts.lines("Growth", [("Hooks", {"due": [(0, 1.0), (1, 10.0), (1000, 1000.0)]}, ("hooks", "us"))])
    (drawn,) = ElementTree.fromstring(svg).iter(f"{SVG}polyline")
    places = [tuple(map(float, point.split(","))) for point in drawn.get("points", "").split()]
    assert places == [(60.0, 254.0), (107.1, 197.3), (390.0, 84.0)]
    assert texts(svg) == [
        *("Growth", "Hooks", "1", "10", "100", "1k", "0", "1", "10", "100", "1k"),
        "hooks (vertical: us)",
    ]


def test_a_constant_curve_has_axes_too() -> None:
    svg = charts.lines("Growth", [("Memory", {"one": [(1000, 100.0), (10_000, 100.0)]}, ("steps", "MB"))])
    (drawn,) = ElementTree.fromstring(svg).iter(f"{SVG}polyline")
    assert drawn.get("points") == "60.0,254.0 390.0,254.0"
    assert texts(svg)[2:6] == ["100", "1k", "1k", "10k"]
