"""The command line of `tools/run.py`: its arguments, and what happens before an engine is built."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hookline.common import rng
from hookline.dialects.imix.utils.config import read


def default_argument_parser(epilog: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the arguments of iMIX's scripts."""
    parser = argparse.ArgumentParser(epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config-file", metavar="FILE", required=True, help="the config")
    parser.add_argument("--resume-from", help="resume the run of this checkpoint")
    parser.add_argument("--load-from", help="start with the weights of this checkpoint")
    parser.add_argument("--eval-only", action="store_true", help="evaluate, and do not train")
    parser.add_argument("--build-submit", action="store_true", help="not supported")
    parser.add_argument("--gpus", type=int, default=1, help="the number of processes of this machine")
    parser.add_argument("--machines", type=int, default=1, help="the number of machines")
    parser.add_argument("--node-rank", type=int, default=0, help="the number of this machine")
    parser.add_argument("--work-dir", help="the folder of the run")
    parser.add_argument("--seed", type=int, help="the seed of all random generators")
    parser.add_argument("--master-port", type=int, default=29500, help="the port of the first machine")
    parser.add_argument("--master-addr", default="tcp://127.0.0.1", help="the address of the first machine")
    return parser


def default_setup(args: Any, cfg: Any) -> None:
    """Create the folder of the run, and seed all random generators before anything is built."""
    Path(read(cfg, "work_dir") or "./work_dirs").mkdir(parents=True, exist_ok=True)
    rng.seed_everything(read(cfg, "seed") or 0)
