"""Take the picture of the README, of a real terminal with a real run: `python -m website.picture`. Needs tmux."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "images" / "terminal.svg"
COLUMNS, LINES = 92, 60
COMMAND = "hookline train train.max_epochs=30"
#: What is on the screen when the picture of the running training is taken.
RUNNING = re.compile(r"epoch 2\d/30")
#: The end of the closing table.
OVER = "└─"

BACKGROUND, FOREGROUND = (29, 31, 40), (214, 218, 227)
#: Black, red, green, yellow, blue, magenta, cyan, white.
COLORS = [
    *((70, 75, 90), (240, 113, 120), (143, 206, 122), (232, 200, 110)),
    *((110, 165, 245), (200, 146, 234), (96, 205, 214), FOREGROUND),
]
THEME = TerminalTheme(BACKGROUND, FOREGROUND, COLORS)


def tmux(*arguments: str, socket: str) -> str:
    """Call tmux, with a server of its own."""
    return subprocess.run(["tmux", "-L", socket, *arguments], check=True, capture_output=True, text=True).stdout


def wait_for(pattern: re.Pattern[str] | str, socket: str, seconds: float = 300) -> list[str]:
    """Wait until the screen shows the pattern, and return its lines with their colors."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        screen = tmux("capture-pane", "-p", "-e", "-t", "picture", socket=socket)
        if re.search(pattern, screen):
            return screen.rstrip().splitlines()
        time.sleep(0.05)
    raise SystemExit("the run did not get there:\n" + screen)


def screens() -> tuple[list[str], list[str]]:
    """Run the command in a terminal; return the screen while it trains and at its end."""
    socket = f"hookline-picture-{os.getpid()}"
    path = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        size = ("-x", str(COLUMNS), "-y", str(LINES))
        start = f"cd {folder}; export PATH={path} PYTHONPATH={ROOT / 'src'} OMP_NUM_THREADS=1 PS1='$ '; clear; exec sh"
        tmux("-f", "/dev/null", "new-session", "-d", "-s", "picture", *size, "sh", "-c", start, socket=socket)
        try:
            wait_for(r"\$", socket)
            tmux("send-keys", "-t", "picture", COMMAND, "Enter", socket=socket)
            running = wait_for(RUNNING, socket)
            return running, wait_for(OVER, socket)
        finally:
            tmux("kill-server", socket=socket)


def shortened(running: list[str], over: list[str]) -> list[str]:
    """Return the beginning, the display of the running training, and the closing table in one picture."""
    bar = next(n for n, line in enumerate(running) if RUNNING.search(line) and "━" in line)
    table = next(n for n, line in enumerate(over) if line.lstrip().startswith("┌")) - 1
    return [*running[:4], "...", *running[bar - 2 : bar + 2], "...", *over[table - 2 :]]


def svg(lines: list[str]) -> str:
    """Return the lines as an SVG picture that loads nothing from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for line in lines:
        console.print(Text("...", style="dim") if line == "..." else Text.from_ansi(line), no_wrap=True)
    text = console.export_svg(title="hookline", theme=THEME, unique_id="terminal")
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
    return text.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono") + "\n"


if __name__ == "__main__":
    OUT.write_text(svg(shortened(*screens())), encoding="utf-8")
