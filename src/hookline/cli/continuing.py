"""The command that continues a run, for its last line: the command as it was given, with `--resume`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import fields

from hookline.common import launched
from hookline.launching.options import Options


def continuing_command(
    words: Sequence[str], keep: Sequence[str], allow: Sequence[str], options: Options, program: str = "hookline train"
) -> str:
    """Return the command line that continues this run, quoted for a shell.

    >>> continuing_command(["my run.yaml", "train.max_epochs=20"], [], [], Options(nproc=2))
    "hookline train 'my run.yaml' train.max_epochs=20 --nproc 2 --resume"
    """
    if command := launched.command():
        return command
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "the same command with --resume"  # torchrun started this process
    parts = list(words)
    parts += [part for choice in keep for part in ("--keep", choice)]
    parts += [part for module in allow for part in ("--allow", module)]
    for option in fields(Options):
        value = getattr(options, option.name)
        if value != option.default:
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            parts += [f"--{option.name.replace('_', '-')}", shown]
    return f"{program} {shlex.join([*parts, '--resume'])}"
