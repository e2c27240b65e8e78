"""Runs an example in this process, in a temporary folder, and counts lines of code."""

from __future__ import annotations

import ast
import io
import runpy
import signal
import sys
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


class Done(NamedTuple):
    """An example that ran: its variables, and the lines that it printed."""

    names: dict[str, Any]
    lines: list[str]


class Examples:
    """Runs examples in the current folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def run(self, name: str, *options: str) -> Done:
        self.monkeypatch.setattr(sys, "argv", [name, *options])
        self.capsys.readouterr()
        torch.manual_seed(0)
        names = runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return Done(names, self.capsys.readouterr().out.splitlines())

    def interrupt(self, module: Any, function: str, call: int, name: str, *options: str) -> None:
        """Run an example, and press Ctrl-C in a call of a function that its step uses."""
        original: Callable[..., Any] = getattr(module, function)
        calls = iter(range(1, 1_000_000))

        def pressing(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == call:
                signal.raise_signal(signal.SIGINT)
            return original(*args, **kwargs)

        with self.monkeypatch.context() as patch:
            patch.setattr(module, function, pressing)
            with pytest.raises(KeyboardInterrupt):
                self.run(name, *options)


def code_lines(source: str) -> int:
    """Count the lines of Python code: without blank lines, comments and docstrings."""
    layout = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER}
    counted: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in layout:
            counted |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            counted -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(counted)


def yaml_lines(source: str) -> int:
    """Count the lines of YAML: without blank lines and comments."""
    return sum(1 for line in source.splitlines() if line.strip() and not line.lstrip().startswith("#"))
