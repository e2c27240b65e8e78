"""`hookline run-as`: scripts written for other systems, unchanged, each in its own process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hookline.dialects.imports import PACKAGES
from tests.faults.children import command

SCRIPTS = Path(__file__).parent / "scripts"


def run_text(folder: Path, text: str, *arguments: str, system: str = "mmengine") -> tuple[int, list[str]]:
    """Run a script with this text in its folder; return its exit code and the lines that it printed."""
    (folder / "script.py").write_text(textwrap.dedent(text), encoding="utf-8")
    code, printed = command("run-as", system, "script.py", *arguments, cwd=folder)
    return code, printed.splitlines()


# -- one script per system, as written for the original


WHOLE = {
    "mmengine": (
        ["mmengine", "mmengine_train.py", "--work-dir", "out"],
        ["epoch 1/3", "epoch 2/3", "epoch 3/3", "good True"],
        ["best_mse_epoch_3.pth", "epoch_1.pth", "epoch_2.pth", "epoch_3.pth"],
    ),
    "imix": (
        ["imix", "imix_train.py", "out"],
        ["epoch 0 of 3", "epoch 1 of 3", "epoch 2 of 3", "good True"],
        [*(f"Linear_epoch{epoch}_model.pth" for epoch in range(3)), "Linear_model_final.pth"],
    ),
    "pointrix": (
        ["pointrix", "pointrix_train.py", "out"],
        ["after 40 steps: close False", "after 80 steps: close True"],
        ["chkpnt00040.pth", "chkpnt00080.pth"],
    ),
    "robo_orchard_lab": (
        ["robo_orchard_lab", "robo_orchard_train.py", "--workspace=out", "--max_epoch=3"],
        ["epoch 0: good False", "epoch 1: good True", "epoch 2: good True"],
        [f"checkpoints/checkpoint_{number}" for number in range(4)],
    ),
}


@pytest.mark.parametrize("system", WHOLE)
def test_a_script_for_the_original_runs_unchanged(system: str, tmp_path: Path) -> None:
    (name, script, *arguments), lines, files = WHOLE[system]
    code, printed = command("run-as", name, str(SCRIPTS / script), *arguments, cwd=tmp_path)
    assert code == 0, printed
    assert [line for line in printed.splitlines() if line.startswith(("epoch ", "good ", "after "))] == lines
    out = tmp_path / "out"
    found = [*out.glob("*.pth"), *out.glob("checkpoints/*")]
    assert sorted(path.relative_to(out).as_posix() for path in found) == files


def test_the_script_for_mmengine_prints_the_same_with_the_real_package(tmp_path: Path) -> None:
    words = [sys.executable, str(SCRIPTS / "mmengine_train.py"), "--work-dir", "out"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert [line for line in ended.stdout.splitlines() if line.startswith(("epoch ", "good "))] == WHOLE["mmengine"][1]


# -- as Python runs a script


def test_a_script_sees_the_same_names_and_paths_as_under_python(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("from mmengine.hooks import Hook\n", encoding="utf-8")
    code, printed = run_text(
        tmp_path,
        """
        import sys
        import beside
        import hookline.dialects.mmengine.hooks as ours
        from mmengine.hooks import Hook
        print(__name__, __file__, __package__ or None, sys.argv)
        print(sys.path[0], beside.Hook is Hook is ours.Hook)
        print(sys.modules["__main__"].Hook is Hook)
        """,
        *("--config", "c.py", "-x", "--", "--help", "key=1"),
    )
    assert code == 0, printed
    assert printed == [
        f"__main__ {tmp_path / 'script.py'} None ['script.py', '--config', 'c.py', '-x', '--', '--help', 'key=1']",
        f"{tmp_path} True",
        "True",
    ]


def test_a_script_may_have_its_own_encoding_and_be_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "real.py").write_bytes(
        "# coding: latin-1\nimport sys\nprint(ascii('é'), sys.path[0])\n".encode("latin-1")
    )
    (tmp_path / "link.py").symlink_to(elsewhere / "real.py")
    assert command("run-as", "imix", "link.py", cwd=tmp_path) == (0, f"'\\xe9' {elsewhere}\n")


# -- how it ends


@pytest.mark.parametrize(
    ("ending", "code", "lines"),
    [
        ("sys.exit(3)", 3, []),
        ("sys.exit()", 0, []),
        ("sys.exit('no data')", 1, ["no data"]),
        ("raise KeyboardInterrupt", 130, ["hookline: interrupted"]),
    ],
)
def test_the_script_sets_the_exit_code(ending: str, code: int, lines: list[str], tmp_path: Path) -> None:
    assert run_text(tmp_path, f"import sys, mmengine.hooks\n{ending}\n") == (code, lines)


def test_an_error_is_shown_with_the_traceback_of_the_script(tmp_path: Path) -> None:
    code, printed = run_text(tmp_path, "def fail():\n    raise EOFError('x')\n\nfail()\n")
    assert code == 1
    path = tmp_path / "script.py"
    assert printed == [
        "Traceback (most recent call last):",
        "  (the frames of hookline are left out; to see them, add --traceback)",
        f'  File "{path}", line 4, in <module>',
        "    fail()",
        f'  File "{path}", line 2, in fail',
        "    raise EOFError('x')",
        "EOFError: x",
    ]


def test_a_syntax_error_is_shown_with_its_line(tmp_path: Path) -> None:
    code, printed = run_text(tmp_path, "import sys\nprint('never'\n")
    assert code == 1
    assert printed[0].strip() == f'File "{tmp_path / "script.py"}", line 2'
    assert printed[-1] == "SyntaxError: '(' was never closed"


def test_an_error_of_hookline_is_one_message_with_its_code_and_the_line_of_the_script(tmp_path: Path) -> None:
    code, printed = run_text(
        tmp_path,
        """\
        from mmengine.registry import HOOKS
        HOOKS.build(dict(type="EMAHok"))
        """,
    )
    assert code == 2
    assert printed[0].startswith("hookline: ")
    assert "EMAHook" in printed[0]
    assert printed[-1] == "  in script.py, line 2"
    assert "Traceback" not in "\n".join(printed)


def test_a_module_that_the_dialect_lacks_is_named(tmp_path: Path) -> None:
    code, printed = run_text(tmp_path, "import mmengine.onnx\n")
    assert code == 1
    assert (
        printed[-1]
        == "ModuleNotFoundError: hookline's dialect has no module 'mmengine.onnx'; see docs/coming-from/mmengine.md"
    )


def test_a_wrong_system_and_a_missing_script_are_refused(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('never')\n", encoding="utf-8")
    assert command("run-as", "mmengin", "script.py", cwd=tmp_path) == (
        2,
        "hookline: unknown dialect 'mmengin'; did you mean 'mmengine'?\n",
    )
    assert command("run-as", "mmengine", "absent.py", cwd=tmp_path) == (
        2,
        "hookline: script absent.py does not exist\n",
    )
    assert command("run-as", "mmengine", ".", cwd=tmp_path) == (2, "hookline: script . does not exist\n")


def test_the_help_shows_the_order_of_the_arguments(tmp_path: Path) -> None:
    code, printed = command("run-as", "--help", cwd=tmp_path)
    assert code == 0
    assert printed.startswith("Usage: hookline run-as [OPTIONS] {SYSTEM} {SCRIPT} [ARGUMENT]...\n")
    assert f"One of {', '.join(PACKAGES)}." in " ".join(printed.split())
    assert (
        "hookline run-as mmengine train.py --work-dir work     words after SCRIPT are passed to the script" in printed
    )


def test_options_go_before_the_system_and_all_later_words_to_the_script(tmp_path: Path) -> None:
    assert run_text(tmp_path, "import sys; print(sys.argv[1:])", "--help", "--allow-python-config") == (
        0,
        ["['--help', '--allow-python-config']"],
    )
    assert command("run-as", "mmengine", "--allow-python-config", "script.py", cwd=tmp_path) == (
        2,
        "hookline: script --allow-python-config does not exist; put the options of run-as first: "
        "hookline run-as --allow-python-config mmengine SCRIPT\n",
    )
    code, printed = command("run-as", "--allow-python-cfg", "mmengine", "script.py", cwd=tmp_path)
    assert code == 2
    assert "No such option: --allow-python-cfg" in printed


# -- configs in Python


READS = {
    "mmengine": "from mmengine.config import Config",
    "imix": "from imix.utils.config import Config",
}
REFUSED = {
    "mmengine": "is Python code, so reading it would run it.",
    "imix": "is Python code, which would be executed.",
}


@pytest.mark.parametrize("system", READS)
def test_a_python_config_is_run_only_if_the_user_allows_it(system: str, tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("open('ran', 'w').close()\nlr = 3\n", encoding="utf-8")
    path = tmp_path / "config.py" if system == "mmengine" else "config.py"
    text = f"{READS[system]}\nprint(Config.fromfile('config.py').lr)\n"
    assert run_text(tmp_path, text, system=system) == (
        2,
        [
            f"hookline: {path} {REFUSED[system]} If you trust it, say so: "
            f"hookline run-as --allow-python-config {system} script.py ...",
            "  in script.py, line 2",
        ],
    )
    assert not (tmp_path / "ran").exists()
    assert command("run-as", "--allow-python-config", system, "script.py", cwd=tmp_path) == (0, "3\n")


def test_a_system_without_python_configs_refuses_the_option(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('never')\n", encoding="utf-8")
    assert command("run-as", "--allow-python-config", "pointrix", "script.py", cwd=tmp_path) == (
        2,
        "hookline: --allow-python-config is for mmengine and imix; pointrix has no Python configs\n",
    )


IN_A_PROCESS = """
import multiprocessing
from mmengine.config import Config

def read(path):
    return Config.fromfile(path).lr

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(*pool.map(read, ["config.py"]))
"""


def test_child_processes_of_the_script_may_also_read_python_configs(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("lr = 3\n", encoding="utf-8")
    code, printed = run_text(tmp_path, IN_A_PROCESS)
    assert code == 2
    assert printed[-2].endswith("say so: hookline run-as --allow-python-config mmengine script.py ...")
    assert command("run-as", "--allow-python-config", "mmengine", "script.py", cwd=tmp_path) == (0, "3\n")


# -- other processes


PROCESSES = """
import multiprocessing, pickle, sys
from pathlib import Path
from mmengine.hooks import Hook
from torch.utils.data import DataLoader

class Mine(Hook):
    pass

class Data:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return f"{index} {Hook.__module__} {Path(__file__).name}"

def look(hook):
    return isinstance(hook, Mine), Hook.__module__, Path(__file__).name

if __name__ == "__main__":
    assert type(pickle.loads(pickle.dumps(Mine()))) is Mine
    method = sys.argv[1]
    with multiprocessing.get_context(method).Pool(1) as pool:
        print(*pool.map(look, [Mine()]))
    loader = DataLoader(Data(), batch_size=None, num_workers=1, multiprocessing_context=method)
    print(*loader, sep="\\n")
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_child_processes_of_the_script_know_its_classes_and_the_dialect(method: str, tmp_path: Path) -> None:
    home = "hookline.dialects.mmengine.hooks.hook"
    assert run_text(tmp_path, PROCESSES, method) == (
        0,
        [f"(True, '{home}', 'script.py')", f"0 {home} script.py", f"1 {home} script.py"],
    )
