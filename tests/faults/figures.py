"""Measure the published figures about faults: `python -m tests.faults.figures --kills 200`.

    KILL    the resumes after kill -9 that are bit-exact: all
    LOOPS   the same of loops of the user, in five shapes, one of them in two processes; only with `--loops 200`
    CODE    the hostile inputs that executed code, or wrote outside the run's folder: none
    SILENT  the bad inputs that ended with exit code 0: none
    RANKS   the kills of one of two ranks after which the restarted run ended in the same bits: all
    NAMED   the seconds until a rank that was killed, was stopped or hangs is named
    AGREE   the cost per step of the agreement between ranks
    REPLAY  the injected failures that were repeated elsewhere with the same error, step and loss bits: all
    TRIAGE  the planted causes of NaN or Inf that were found: the step, the pass, the module and the samples: all
    MEDDLER the observers that change a training and were named, with the point, the step and the change: all; and the
            built-in hooks that were blamed: none
    RAW     the inputs of any kind that hang, take much memory, end with a traceback of ours, or print control
            characters: none

The exit code is 1 if a figure is wrong. The inputs that caused it are listed below the figure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.distributed import figures as ranks
from tests.faults import hostile, raw_inputs, replays, silent, triages
from tests.faults.cases import Case, Outcome, run
from tests.faults.kills import KINDS, OWN_LOOPS, Kills, kill_and_resume
from tests.faults.project import trained_run

# The number of children that run at the same time, each on one core.
AT_ONCE = 2


@dataclass(frozen=True)
class Figure:
    """One printed line: the number of inputs, and the inputs that did what no input should do, with the reason."""

    name: str
    what: str
    total: int
    culprits: list[str]

    def __str__(self) -> str:
        line = f"{self.name:<7} {len(self.culprits)} of {self.total} {self.what}"
        return "\n".join([line, *(f"          {culprit}" for culprit in self.culprits)])


def measure_inputs() -> list[Figure]:
    """Run every input once, and return the figures about them."""
    code, silence, more = hostile.cases(), silent.cases(), raw_inputs.cases()
    outcomes = _outcomes([*code, *silence, *more])
    return [
        Figure(
            "CODE",
            "hostile inputs executed code",
            len(code),
            [case.id for case in code if outcomes[case.id].ran_code],
        ),
        Figure(
            "SILENT",
            "bad inputs ended with exit code 0",
            len(silence),
            [case.id for case in silence if outcomes[case.id].silent],
        ),
        Figure(
            "RAW",
            "inputs caused a hang, a traceback or control characters",
            len(outcomes),
            [f"{name}: {'; '.join(outcome.raw)}" for name, outcome in outcomes.items() if outcome.raw],
        ),
    ]


def _outcomes(cases: Sequence[Case]) -> Mapping[str, Outcome]:
    trained_run()  # trained once, before several threads need it
    with TemporaryDirectory(prefix="hookline-faults-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:

        def outcome_of(case: Case) -> Outcome:
            root = Path(folder, case.id)
            root.mkdir()
            return run(case, root)

        return dict(zip([case.id for case in cases], pool.map(outcome_of, cases), strict=True))


def measure_kills(times: int, kinds: Sequence[str] = KINDS) -> Kills:
    """Kill runs of some kinds, `times` kills in total, and resume them."""
    shares = [times // len(kinds) + (number < times % len(kinds)) for number in range(len(kinds))]
    with TemporaryDirectory(prefix="hookline-kills-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:

        def kill_share(kind: str, share: int) -> Kills:
            root = Path(folder, kind)
            root.mkdir()
            return kill_and_resume(root, kind, share, seed=times) if share else Kills()

        found = list(pool.map(kill_share, kinds, shares))
    total = Kills()
    for each in found:
        total.kills += each.kills
        total.identical += each.identical
        total.failures += each.failures
    return total


def print_loops(times: int) -> bool:
    """Measure and print the figure about loops of the user. Return whether it is wrong."""
    in_ranks = times // 5
    killed = measure_kills(times - in_ranks, OWN_LOOPS)
    with TemporaryDirectory(prefix="hookline-loops-") as folder:
        fine, failures = ranks.measure_rank_kills(in_ranks, Path(folder), own_loops=(True,))
    identical, kills = killed.identical + fine, killed.kills + in_ranks
    print(f"LOOPS   {identical} of {kills} resumes of loops of the user after kill -9 were bit-exact")
    print("".join(f"          {failure}\n" for failure in [*killed.failures, *failures]), end="", flush=True)
    return identical != kills or bool(killed.failures or failures)


def print_ranks(kills: int) -> bool:
    """Measure and print the figures about several processes. Return whether one is wrong."""
    with TemporaryDirectory(prefix="hookline-ranks-") as folder:
        fine, failures = ranks.measure_rank_kills(kills, Path(folder, "kills"))
        named = ranks.measure_naming(Path(folder, "named"))
    print(f"RANKS   {fine} of {kills} kills of one of two ranks left no trace in the bits of the restarted run")
    print("".join(f"          {failure}\n" for failure in failures), end="")
    how = {"die": "a dead rank", "stop": "a stopped one", "loop": "a hanging one"}
    print("NAMED   " + ", ".join(f"{who} after {named[what]:.1f} s" for what, who in how.items()))
    print(f"AGREE   {ranks.measure_agreement()}", flush=True)
    return bool(failures)


def print_replays() -> bool:
    """Measure and print the figure about replays. Return whether all failures were repeated."""
    total, wrong = replays.measure()
    print(f"REPLAY  {total - len(wrong)} of {total} failures were repeated with the same error, step and loss bits")
    print("".join(f"          {each}\n" for each in wrong), end="", flush=True)
    return not wrong


def print_triages() -> bool:
    """Measure and print the figures about causes of NaN and about observers. Return whether all were found."""
    total, missed = triages.measure(triages.CAUSES, triages.fail_and_find)
    print(f"TRIAGE  {total - len(missed)} of {total} causes of NaN or Inf were found: step, pass, module and samples")
    print("".join(f"          {each}\n" for each in missed), end="", flush=True)
    total, unnamed = triages.measure(triages.MEDDLERS, triages.meddle_and_verify)
    of_ours, blamed = triages.measure(triages.BUILT_IN, triages.verify_built_in)
    print(
        f"MEDDLER {total - len(unnamed)} of {total} observers that change a training were named, and {len(blamed)} of "
        f"{of_ours} built-in hooks were blamed"
    )
    print("".join(f"          {each}\n" for each in (*unnamed, *blamed)), end="", flush=True)
    return not (missed or unnamed or blamed)


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print the figures; return 1 if one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.figures")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="also measure KILL, with N kills")
    parser.add_argument("--loops", type=int, default=0, metavar="N", help="only measure LOOPS, with N kills")
    given = parser.parse_args(words)
    if given.loops:
        return int(print_loops(given.loops))
    kills: int = given.kills
    killed = measure_kills(kills) if kills else Kills()
    if kills:
        print(f"KILL    {killed.identical} of {killed.kills} resumes after kill -9 were bit-exact")
        print("".join(f"          {failure}\n" for failure in killed.failures), end="", flush=True)
    lost = print_ranks(max(20, kills // 10)) if kills else False
    repeated = print_replays()
    found = print_triages()
    figures = measure_inputs()
    print("\n".join(map(str, figures)))
    wrong = killed.identical != killed.kills or killed.failures or lost or not (repeated and found)
    wrong = wrong or any(figure.culprits for figure in figures)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
