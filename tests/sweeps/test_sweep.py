"""The loop: which trials are started, what the study is told, and who owns a trial."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hookline.common import studies
from hookline.errors import StorageError
from hookline.hooks.pruning import PRUNED, UNFINISHED
from hookline.sweeps import sweep as sweeps
from hookline.sweeps.claims import Claims, read_home
from hookline.sweeps.studies import HOME, REASON
from hookline.sweeps.sweep import SweepError
from tests.sweeps.fakes import End, FakeProcess, Runs, Starter, request, write_config


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(request(write_config(tmp_path), trials=4))


def test_all_trials_are_run_once_with_their_best_value_in_a_folder_each(runs: Runs) -> None:
    values = {0: (0.5, 0.7, 0.6), 1: (0.2,), 2: (0.9, 0.1), 3: (0.3,)}
    starter = Starter(lambda job, _: End(values=values[job.number]))
    assert runs.sweep(starter).run() == 0
    assert starter.started == [(0, False), (1, False), (2, False), (3, False)]
    assert [str(job.folder) for job in starter.jobs] == [f"runs/tiny-sweep/{n}" for n in range(4)]
    assert runs.values() == [0.7, 0.2, 0.9, 0.3]
    assert [(number, outcome.state, outcome.value) for number, outcome in runs.ended] == [
        (0, "complete", 0.7),
        (1, "complete", 0.2),
        (2, "complete", 0.9),
        (3, "complete", 0.3),
    ]


def test_a_finished_sweep_starts_nothing_and_more_trials_continue_it(runs: Runs) -> None:
    starter = Starter(lambda job, _: End(values=(0.1,)))
    runs.sweep(starter).run()
    runs.sweep(starter).run()
    assert len(starter.jobs) == 4
    runs.sweep(starter, trials=6).run()
    assert starter.started[4:] == [(4, False), (5, False)]


def test_the_least_value_counts_if_less_is_better(tmp_path: Path) -> None:
    runs = Runs(request(write_config(tmp_path), trials=1, metric="val/loss"))
    runs.sweep(Starter(lambda job, _: End(values=(0.5, 0.2, float("nan"), 0.3)))).run()
    assert runs.values() == [0.2]
    assert runs.study.direction.name == "MINIMIZE"


def test_jobs_is_the_number_of_trials_at_a_time(runs: Runs) -> None:
    most: list[int] = []

    def ends(job: Any, labels: Any) -> End:
        most.append(len(sweep.running))
        return End(values=(0.1,))

    sweep = runs.sweep(Starter(ends), jobs=3)
    sweep.run()
    assert most == [0, 1, 2, 0]


def test_a_pruned_trial_is_pruned_in_the_study(runs: Runs) -> None:
    starter = Starter(lambda job, _: End(values=(0.5, 0.4), end=PRUNED if job.number == 1 else "finished"))
    runs.sweep(starter).run()
    assert runs.states() == ["COMPLETE", "PRUNED", "COMPLETE", "COMPLETE"]
    assert runs.ended[1][1].state == "pruned"


def test_a_failed_trial_is_marked_with_its_reason_and_the_sweep_continues(runs: Runs) -> None:
    failed = End(4, (), None, "epoch 1\nhookline: the loss became NaN at iteration 7\n")
    starter = Starter(lambda job, _: failed if job.number == 1 else End(values=(0.5,)))
    assert runs.sweep(starter).run() == 0
    assert runs.states() == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert runs.study.trials[1].user_attrs[REASON] == "exit code 4: the loss became NaN at iteration 7"


def test_a_trial_without_a_finite_value_has_failed(runs: Runs) -> None:
    starter = Starter(lambda job, _: End(values=(float("nan"),) if job.number == 2 else (0.5,)))
    runs.sweep(starter).run()
    assert runs.states() == ["COMPLETE", "COMPLETE", "FAIL", "COMPLETE"]
    expected = "exit code 4: no validation returned a finite value of val/accuracy"
    assert runs.study.trials[2].user_attrs[REASON] == expected


def test_the_sweep_ends_if_the_first_three_trials_fail_in_the_same_way_and_can_repeat_them(runs: Runs) -> None:
    broken = Starter(lambda job, _: End(1, (), None, f"Traceback (most recent call last):\nKeyError: {job.number}\n"))
    with pytest.raises(SweepError) as refused:
        runs.sweep(broken).run()
    assert str(refused.value) == (
        "the first 3 trials failed in the same way, so the sweep ends. Trial 2 ended with exit code 1: KeyError: 2\n"
        "  its output is in runs/tiny-sweep/2/output.log; the same command continues the sweep and repeats these trials"
    )
    assert refused.value.exit_code == 1
    assert runs.states() == ["RUNNING"] * 3
    mended = Starter(lambda job, _: End(values=(0.5,)))
    runs.sweep(mended).run()
    assert mended.started == [(0, True), (1, True), (2, True), (3, False)]
    assert runs.states() == ["COMPLETE"] * 4


def test_failures_of_different_kinds_do_not_end_the_sweep(runs: Runs) -> None:
    runs.sweep(Starter(lambda job, _: End(1, (), None, f"hookline: {'abcd'[job.number]}"))).run()
    assert runs.states() == ["FAIL"] * 4


def test_nan_has_to_come_ten_times(runs: Runs) -> None:
    nan = Starter(lambda job, _: End(4, (), None, "hookline: NaN"))
    runs.sweep(nan).run()
    assert runs.states() == ["FAIL"] * 4
    with pytest.raises(SweepError, match="the first 10 trials failed"):
        runs.sweep(nan, trials=20).run()


def test_an_error_of_the_storage_ends_the_sweep_and_lets_the_others_save(runs: Runs) -> None:
    full = End(5, (), None, "hookline: x.pth cannot be written: No space left on device\n")
    waiting = FakeProcess(End(), waits=True)
    starter = Starter(lambda job, _: full if job.number else waiting)
    with pytest.raises(
        SweepError, match="Trial 1 ended with exit code 5: x.pth cannot be written: No space"
    ) as refused:
        runs.sweep(starter, jobs=2).run()
    assert refused.value.exit_code == 5
    assert (waiting.signals, waiting.killed) == ([signal.SIGTERM], False)
    assert runs.states() == ["RUNNING", "RUNNING"]


# ------------------------------------------------------------------------------------------------------ unfinished


def test_a_killed_process_is_started_again_and_resumes(runs: Runs) -> None:
    ends = iter([End(-9, (0.1,), None), End(values=(0.1, 0.5))])
    starter = Starter(lambda job, _: next(ends) if job.number == 0 else End(values=(0.2,)))
    runs.sweep(starter).run()
    assert starter.started == [(0, False), (0, True), (1, False), (2, False), (3, False)]
    assert runs.values()[0] == 0.5
    assert starter.jobs[0].labels == starter.jobs[1].labels


def test_a_process_that_is_killed_three_times_without_progress_has_failed(runs: Runs) -> None:
    starter = Starter(lambda job, _: End(-9, (), None) if job.number == 1 else End(values=(0.2,)))
    runs.sweep(starter, trials=2).run()
    assert starter.started == [(0, False), (1, False), (1, True), (1, True)]
    assert runs.study.trials[1].user_attrs[REASON] == (
        "exit code 1: its process was ended by signal 9 3 times in a row without progress; is there enough memory?"
    )


def test_a_run_that_was_stopped_for_now_is_continued(runs: Runs) -> None:
    ends = iter([End(0, (0.1,), UNFINISHED), End(values=(0.1, 0.5))])
    starter = Starter(lambda job, _: next(ends))
    runs.sweep(starter, trials=1).run()
    assert (starter.started, runs.values()) == ([(0, False), (0, True)], [0.5])


def test_after_a_signal_trials_are_left_to_be_continued(runs: Runs) -> None:
    waiting = FakeProcess(End(), waits=True)

    def ends(job: Any, labels: Any) -> FakeProcess:
        os.kill(os.getpid(), signal.SIGTERM)  # comes while the process is being started
        return waiting

    starter = Starter(ends)
    assert runs.sweep(starter).run() == signal.SIGTERM
    assert waiting.signals == [signal.SIGTERM]
    assert (runs.states(), runs.ended[0][1].state) == (["RUNNING"], "unfinished")
    again = Starter(lambda job, _: End(values=(0.5,)))
    runs.sweep(again).run()
    assert again.started == [(0, True), (1, False), (2, False), (3, False)]
    assert again.jobs[0].labels == starter.jobs[0].labels


def test_a_process_that_ignores_the_signal_is_killed_after_the_grace_time(runs: Runs) -> None:
    class Deaf(FakeProcess):
        def send(self, number: int) -> None:
            self.signals.append(number)

    deaf = Deaf(End(), waits=True)

    def ends(job: Any, labels: Any) -> FakeProcess:
        os.kill(os.getpid(), signal.SIGTERM)
        return deaf

    assert runs.sweep(Starter(ends), grace=0.0).run() == signal.SIGTERM
    assert deaf.killed


# -------------------------------------------------------------------------------------------------------- ownership


def test_trials_of_a_dead_sweep_are_taken_over_but_not_of_a_living_one(runs: Runs) -> None:
    alive = runs.sweep(Starter(lambda job, _: FakeProcess(End(), waits=True)))
    alive._fill()
    # A lock keeps other processes away, so this test asks as another process would.
    code = os.waitstatus_to_exitcode(_in_a_child(lambda: int(Claims().take(Path("runs/tiny-sweep/0")))))
    assert code == 0
    alive.claims.release_all()  # as the system does it when a process dies
    dead = Starter(lambda job, _: End(values=(0.5,)))
    runs.sweep(dead).run()
    assert dead.started[0] == (0, True)


def _in_a_child(function: Any) -> int:
    pid = os.fork()
    if not pid:
        os._exit(function())
    return os.waitpid(pid, 0)[1]


def test_a_trial_whose_run_is_still_in_progress_is_left_alone(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    first = runs.sweep(Starter(lambda job, _: FakeProcess(End(), waits=True)))
    first._fill()
    first.claims.release_all()
    monkeypatch.setattr(sweeps, "RESCAN", 0.0)
    monkeypatch.setattr("hookline.rundir.ownership.is_in_use", lambda folder: folder.name == "0")
    starter = Starter(lambda job, _: End(values=(0.5,)))
    runs.sweep(starter).run()
    assert starter.started == [(1, False), (2, False), (3, False)]


def test_a_trial_of_another_machine_is_left_alone_unless_the_disk_is_shared(tmp_path: Path) -> None:
    config, storage = write_config(tmp_path), f"sqlite:///{tmp_path}/shared.db"
    here = Runs(request(config, trials=3, storage=storage, folder=Path("here/s"), study="s"))
    there = Runs(request(config, trials=3, storage=storage, folder=Path("there/s"), study="s"))
    interrupted = here.sweep(Starter(lambda job, _: FakeProcess(End(), waits=True)))
    interrupted._fill()
    interrupted.claims.release_all()
    other = Starter(lambda job, _: End(values=(0.5,)))
    there.sweep(other).run()
    assert other.started == [(1, False), (2, False)]
    assert there.states() == ["RUNNING", "COMPLETE", "COMPLETE"]
    own = Starter(lambda job, _: End(values=(0.5,)))
    here.sweep(own).run()
    assert own.started == [(0, True)]


def test_two_sweeps_that_ask_at_the_same_time_run_no_trial_too_many(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    surplus = runs.study.ask  # as if another sweep had asked between our look at the study and our own question

    def ask(distributions: Any) -> Any:
        if len(runs.study.trials) == 3:
            surplus(distributions).set_user_attr(HOME, "another machine")
        return surplus(distributions)

    monkeypatch.setattr(runs.study, "ask", ask)
    starter = Starter(lambda job, _: End(values=(0.5,)))
    runs.sweep(starter).run()
    assert [number for number, _ in starter.started] == [0, 1, 2]
    monkeypatch.setattr(runs.study, "ask", surplus)
    runs.sweep(starter, trials=5).run()
    assert starter.started[3:] == [(4, True)], "the one too many is used when it is needed"


def test_a_trial_whose_sweep_was_killed_before_it_had_an_owner_is_taken_over(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned = runs.study.ask()  # and not even its values were chosen
    monkeypatch.setattr(sweeps, "RESCAN", 0.0)
    monkeypatch.setattr(sweeps, "ABANDONED", 0.2)
    starter = Starter(lambda job, _: End(values=(0.5,)))
    runs.sweep(starter).run()
    assert starter.started[0] == (1, False), "its owner may still be about to claim it"
    assert sorted(starter.started) == [(abandoned.number, True), (1, False), (2, False), (3, False)]
    assert all(set(job.labels) == {"optim.optimizer.lr"} for job in starter.jobs)


def test_a_trial_that_was_put_into_the_queue_is_run(runs: Runs) -> None:
    runs.study.enqueue_trial({"optim.optimizer.lr": 0.25})
    starter = Starter(lambda job, _: End(values=(0.5,)))
    runs.sweep(starter).run()
    assert starter.jobs[0].labels == {"optim.optimizer.lr": 0.25}
    assert len(starter.jobs) == 4


def test_the_folder_of_a_study_has_one_identity(tmp_path: Path) -> None:
    first, second = read_home(tmp_path / "a"), read_home(tmp_path / "a")
    assert first == second != read_home(tmp_path / "b")
    assert [path.name for path in (tmp_path / "a").iterdir()] == [".home"]


def test_a_storage_that_fails_in_the_middle_is_reported(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise OSError("the server has gone away")

    monkeypatch.setattr(runs.study, "get_trials", fail)
    with pytest.raises(StorageError) as refused:
        runs.sweep(Starter(lambda job, _: End())).run()
    assert str(refused.value) == "the storage journal:study.log cannot be used: the server has gone away"


# ---------------------------------------------------------------------------------------------------------- samplers


def choices(runs: Runs, **changes: Any) -> list[Any]:
    starter = Starter(lambda job, _: End(values=(0.5,)))
    runs.sweep(starter, **changes).run()
    return [job.labels["optim.optimizer.lr"] for job in starter.jobs]


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_the_values_depend_on_the_seed_and_the_number_and_not_on_an_interruption(tmp_path: Path, sampler: str) -> None:
    config = write_config(tmp_path)
    whole = choices(Runs(request(config, trials=4, sampler=sampler, study="whole")))
    first = choices(Runs(request(config, trials=2, sampler=sampler, study="parts")))
    rest = choices(Runs(request(config, trials=4, sampler=sampler, study="parts")))
    assert [*first, *rest] == whole
    assert len(set(whole)) == 4
    other = choices(Runs(request(config, trials=4, sampler=sampler, study="other", seed=1)))
    assert not set(other) & set(whole)


def test_a_grid_runs_every_combination_once_and_no_more(tmp_path: Path) -> None:
    words = ("model.width=2,4", "optim.optimizer.lr=0.1..0.3:0.1")
    runs = Runs(request(write_config(tmp_path), *words, sampler="grid", trials=100))
    starter = Starter(lambda job, _: End(values=(0.5,)))
    runs.sweep(starter).run()
    found = [(job.labels["model.width"], round(job.labels["optim.optimizer.lr"], 6)) for job in starter.jobs]
    assert found == [(2, 0.1), (2, 0.2), (2, 0.3), (4, 0.1), (4, 0.2), (4, 0.3)]


@pytest.mark.parametrize("storage", [None, "sqlite:///sub/folder/study.db", "journal:sub/journal.log"])
def test_a_study_is_in_sqlite_or_in_another_storage(tmp_path: Path, storage: str | None) -> None:
    given = request(write_config(tmp_path), trials=3, storage=storage)
    runs = Runs(given)
    interrupted = runs.sweep(Starter(lambda job, _: FakeProcess(End(), waits=True)))
    interrupted._fill()
    interrupted.claims.release_all()
    ends = {0: End(values=(0.5,)), 1: End(values=(0.2,), end=PRUNED), 2: End(1, (), None, "hookline: x")}
    starter = Starter(lambda job, _: ends[job.number])
    again = Runs(given)
    again.sweep(starter).run()
    assert starter.started == [(0, True), (1, False), (2, False)]
    assert again.states() == ["COMPLETE", "PRUNED", "FAIL"]
    url = storage or "sqlite:///runs/tiny-sweep/study.db"
    assert studies.find_study("tiny-sweep", studies.open_storage(url)) is not None
