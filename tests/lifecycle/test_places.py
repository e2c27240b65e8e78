"""The sections of the loop that a message can name are functions that exist."""

from __future__ import annotations

import importlib
import inspect

import pytest

from hookline.lifecycle.places import SECTIONS


@pytest.mark.parametrize(("module", "name"), SECTIONS)
def test_a_section_is_a_function_of_its_module(module: str, name: str) -> None:
    loaded = importlib.import_module(module)
    owners = [loaded, *(each for each in vars(loaded).values() if inspect.isclass(each) and each.__module__ == module)]
    assert any(inspect.isfunction(vars(owner).get(name)) for owner in owners)
