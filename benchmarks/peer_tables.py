"""The comparison with other engines as text, as JSON, and as the tables and the chart of the pages."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import charts
import pages
from engines.results import BARE, Case, Results

if TYPE_CHECKING:
    from engines.task import Model

#: If the rounds of the bare loop differ by more, something else was running.
QUIET = 0.1
ONLY, EVERYTHING = "nothing but the loop", "logging, a progress bar and checkpoints"
BY_HAND = "by hand"
NEVER_FAILS = "the bare loop uses nothing that could fail"
ALT = "Bars: the time per step of each engine, as a ratio to a bare loop."


def names_shown(results: Results) -> list[str]:
    """Return the rows of the tables."""
    return [BARE, *(engine.name for engine in results.engines)]


def plain_text(results: Results, models: Sequence[Model]) -> str:
    """Return the results as text."""
    head = f"{'':14}{'us/step':>9}{'CPU':>9}{'ratio':>8}{'CPU':>8}{'spread':>8}{'start ms':>10}{'end ms':>8}"
    lines = []
    for model in models:
        for everything in (False, True):
            lines += ["", f"{model.name}, {EVERYTHING if everything else ONLY}", head]
            for name in names_shown(results):
                label = BY_HAND if everything and name == BARE else name
                found, ratios = (
                    results.summary(Case(name, model.name, everything)),
                    results.ratios(name, model.name, everything),
                )
                if found is None or ratios is None:
                    lines.append(
                        f"{label:14}   {results.failures.get(Case(name, model.name, everything), 'no bare loop')}"
                    )
                    continue
                lines.append(
                    f"{label:14}{found.wall:9.1f}{found.cpu:9.1f}{ratios[0]:8.3f}{ratios[1]:8.3f}{found.spread:8.1%}"
                    f"{found.start:10.1f}{found.end:8.1f}"
                )
    return "\n".join([*lines[1:], "", versions(results)])


def find_noise(results: Results, models: Sequence[Model]) -> str:
    """Return a warning if the bare loop itself was not steady, else an empty text."""
    found = {model.name: results.summary(Case(BARE, model.name, False)) for model in models}
    noisy = [f"{name} {base.spread:.0%}" for name, base in found.items() if base is not None and base.spread > QUIET]
    if not noisy:
        return ""
    return f"The machine was not quiet: the rounds of the bare loop differ ({', '.join(noisy)}). Measure again later."


def versions(results: Results) -> str:
    """Return what was compared: versions, platform and date."""
    found = []
    for package in ("torch", *(engine.package for engine in results.engines)):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{package} (not installed)")
    where = f"Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} CPUs, one thread"
    return f"Measured on {date.today().isoformat()} with `make bench-peers`: {', '.join(found)}; {where}."


def ratio_text(ratios: tuple[float, float] | None) -> str:
    """Return a ratio by the wall clock for a table."""
    return "failed" if ratios is None else f"{ratios[0]:.2f}"


def readme_text(results: Results, model: Model) -> str:
    """Return what the README shows: the ratios of the smallest model, where an engine costs most, and the chart."""
    names = [engine.name for engine in results.engines]
    rows = [
        [label, *(ratio_text(results.ratios(name, model.name, everything)) for name in names)]
        for everything, label in ((False, "the engine alone"), (True, f"with {EVERYTHING}"))
    ]
    base = results.summary(Case(BARE, model.name, False))
    assert base is not None, NEVER_FAILS
    bars = f"![{ALT}](docs/images/peers.svg)"
    return f"{pages.table(['', *names], rows)}\n\nSteps of {base.wall / 1000:.2f} ms. {versions(results)}\n\n{bars}"


def long_tables(results: Results, models: Sequence[Model]) -> str:
    """Return the tables of docs/performance.md."""
    parts = [versions(results), f"![{ALT}](images/peers.svg)"]
    for model in models:
        base = results.summary(Case(BARE, model.name, False))
        assert base is not None, NEVER_FAILS
        rows = []
        for name in names_shown(results):
            row = [name]
            for everything in (False, True):
                found, ratios = (
                    results.summary(Case(name, model.name, everything)),
                    results.ratios(name, model.name, everything),
                )
                row += (
                    ["failed", "", ""]
                    if found is None or ratios is None
                    else [
                        f"{ratios[0]:.3f}",
                        f"{ratios[1]:.3f}",
                        f"{found.spread:.1%}",
                    ]
                )
                if everything:
                    row += ["", ""] if found is None else [f"{found.start:.0f}", f"{found.end:.0f}"]
            rows.append(row)
        head = ["", "alone", "CPU", "spread", "with everything", "CPU", "spread", "start, ms", "end, ms"]
        parts += [f"**{model.name}**, a bare step takes {base.wall / 1000:.2f} ms:", pages.table(head, rows)]
    for name, reasons in results.reasons().items():
        parts.append(f"{name} has no figures: {'; '.join(reasons)}.")
    return "\n\n".join(parts)


def chart(results: Results, models: Sequence[Model]) -> str:
    """Return the bar chart."""
    panels: dict[str, dict[str, Any]] = {}
    for model in models:
        base = results.summary(Case(BARE, model.name, False))
        size = f", {base.wall / 1000:.2f} ms" if base is not None else ""
        panels[model.name + size] = {
            name: [
                ratios and ratios[0]
                for ratios in (results.ratios(name, model.name, all_on) for all_on in (False, True))
            ]
            for name in names_shown(results)
        }
    title = f"Time per step, as a ratio to a bare loop (less is better; {date.today().isoformat()})"
    return charts.bars(title, [ONLY, EVERYTHING], panels)


def as_json(results: Results) -> str:
    """Return the results for programs."""
    found = [
        {**case._asdict(), **summary._asdict()}
        for case in results.times
        if (summary := results.summary(case)) is not None
    ]
    failed = [{**case._asdict(), "reason": reason} for case, reason in results.failures.items()]
    return json.dumps({"versions": versions(results), "found": found, "failed": failed}, indent=2)
