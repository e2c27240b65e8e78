"""Run a page like a reader does: write its files, type its commands in one shell, and compare or rewrite the outputs.

    python -m tests.transcripts docs/tutorial.md      run the page, and write the real outputs into it

In a page, a block that begins with ```` ```python title="name.py" ```` is a file, in any language. A console block has
commands after `$ `, and below each the output. A line `...` stands for lines that are left out. A new
output keeps as many lines before the first and after the last gap as there were.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = re.compile(r'^```(?:console|(\w+) title="([^"]+)")\n(.*?)^```$', re.DOTALL | re.MULTILINE)
END = "--- end of the output ---"
#: A page may take this many seconds.
LIMIT = 1800
#: Lines of the shell itself about the process that a page kills.
OF_THE_SHELL = re.compile(r"line \d+: +\d+ Killed ")


@dataclass
class Command:
    """A command of a page, and the output below it."""

    text: str
    shown: list[str] = field(default_factory=list)

    def parts(self) -> list[list[str]]:
        """Return the shown lines, cut at each `...`."""
        found: list[list[str]] = [[]]
        for line in self.shown:
            if line == "...":
                found.append([])
            else:
                found[-1].append(line)
        return found

    def rewritten(self, output: list[str]) -> list[str] | None:
        """Return the lines to show for a new output; None if it has nothing like a line between two gaps."""
        parts = self.parts()
        if len(parts) == 1:
            return output
        shown = output[: len(parts[0])]
        rest = output[len(parts[0]) :]
        for part in parts[1:-1]:
            shown.append("...")
            for line in part:
                close = difflib.get_close_matches(normal(line), [normal(real) for real in rest], n=1)
                if not close:
                    return None
                position = [normal(real) for real in rest].index(close[0])
                shown.append(rest[position])
                rest = rest[position + 1 :]
        return [*shown, "...", *rest[len(rest) - len(parts[-1]) :]]

    def matches(self, output: list[str]) -> bool:
        """Return whether the output is the one that is shown, apart from numbers and the widths of tables."""
        new = self.rewritten(output)
        return new is not None and [normal(line) for line in new] == [normal(line) for line in self.shown]


def normal(line: str) -> str:
    """Return a line without what differs between machines: numbers, and the widths of tables.

    A run that is killed may or may not have saved its best checkpoint of that epoch, which is then the newest.
    """
    line = line.replace("best_accuracy_epoch_", "epoch_") if "resume" in line else line
    line = re.sub(r"\d+(?:[.:]\d+)*(?:e-?\d+)?", "0", line)
    return re.sub(r"\s+", " ", re.sub("─+", "─", line)).strip()


def commands_of(block: str) -> list[Command]:
    """Read the commands of a console block."""
    found: list[Command] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Command(line.removeprefix("$ ")))
        else:
            found[-1].shown.append(line)
    return found


class Shell:
    """One bash in a folder, to which commands are typed one by one."""

    def __init__(self, folder: Path) -> None:
        scripts = str(Path(sys.executable).parent)
        source = str(Path(__file__).parent.parent / "src")
        environment = {
            **os.environ,
            "PATH": scripts + os.pathsep + os.environ["PATH"],
            "PYTHONPATH": source,
            "COLUMNS": "80",
            "OMP_NUM_THREADS": "1",
        }
        self.folder = folder
        self.process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        #: Ends a page whose command waits for something that never comes.
        self.watchdog = threading.Timer(LIMIT, os.killpg, (self.process.pid, signal.SIGKILL))
        self.watchdog.start()

    def run(self, command: str) -> list[str]:
        """Type one command, and return the lines of its output."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\necho\necho '{END}' \"$PWD\"\n")
        self.process.stdin.flush()
        output = []
        for line in self.process.stdout:
            if line.startswith(END):
                self.folder = Path(line.removeprefix(END).strip())
                break
            if not OF_THE_SHELL.search(line):
                output.append(line.rstrip())
        while output and not output[-1]:
            output.pop()
        return output

    def close(self) -> None:
        """End the shell."""
        self.process.communicate()
        self.watchdog.cancel()


def run(page: str, folder: Path) -> Iterator[tuple[Command, list[str]]]:
    """Follow the page in the folder; yield every command with its real output."""
    shell = Shell(folder)
    try:
        for _language, title, text in BLOCK.findall(page):
            if title:
                (shell.folder / title).write_text(text, encoding="utf-8")
                continue
            for command in commands_of(text):
                yield command, shell.run(command.text)
    finally:
        shell.close()


def rewritten(page: str, outputs: Iterator[tuple[Command, list[str]]]) -> str:
    """Return the page with the real outputs."""

    def block(found: re.Match[str]) -> str:
        if found[2]:
            return found[0]
        lines = []
        for _ in commands_of(found[3]):
            command, output = next(outputs)
            new = command.rewritten(output)
            assert new is not None, f"the output of `{command.text}` has changed: {output}"
            lines += [f"$ {command.text}", *new]
        return "\n".join(["```console", *lines, "```"])

    return BLOCK.sub(block, page)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as temporary:
        text = path.read_text(encoding="utf-8")
        path.write_text(rewritten(text, run(text, Path(temporary))), encoding="utf-8")
