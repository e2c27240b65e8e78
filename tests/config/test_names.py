"""The names that a config may use. A refused name never runs anything."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torchmetrics

from hookline.config.names import Resolver
from hookline.config.suggestions import suggest
from hookline.errors import ConfigError
from hookline.plan.registry import HOOKS, MODELS
from hookline.runner.hook import Hook

Write = Callable[[str, str], Path]


def refused(slot: str, name: str, resolver: Resolver | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        (resolver or Resolver()).resolve(slot, name)
    return str(caught.value)


@pytest.mark.parametrize(
    ("slot", "name", "found"),
    [
        ("optimizer", "AdamW", torch.optim.AdamW),
        ("optimizer", "torch.optim:SGD", torch.optim.SGD),
        ("optimizer", "torch.optim.SGD", torch.optim.SGD),
        ("scheduler", "ReduceLROnPlateau", torch.optim.lr_scheduler.ReduceLROnPlateau),
        ("scheduler", "SequentialLR", torch.optim.lr_scheduler.SequentialLR),
        ("model", "Linear", torch.nn.Linear),
        ("dataset", "TensorDataset", torch.utils.data.TensorDataset),
        ("dataloader", "DataLoader", torch.utils.data.DataLoader),
        ("metric", "MulticlassAccuracy", torchmetrics.classification.MulticlassAccuracy),
        ("metric", "torchmetrics.regression:MeanSquaredError", torchmetrics.MeanSquaredError),
        ("hook", "hookline.runner.hook:Hook", Hook),
    ],
)
def test_a_slot_finds_classes_of_torch_and_hookline(slot: str, name: str, found: object) -> None:
    assert Resolver().resolve(slot, name) is found


def test_registered_names_come_first(write: Write) -> None:
    @MODELS.register("Linear", force=True)
    class Mine(torch.nn.Module):
        pass

    assert Resolver().resolve("model", "Linear") is Mine


def test_modules_next_to_the_config_and_under_the_working_directory(write: Write) -> None:
    write("conf/beside.py", "class Net:\n    class Inner: pass\n")
    write("conf/package/__init__.py", "")
    write("conf/package/part.py", "def f(): return 1\n")
    write("under.py", "g = lambda: 2\n")
    write("plain_folder/inside.py", "def h(): return 3\n")
    resolver = Resolver(Path("conf/run.yaml"))
    found = [
        resolver.resolve("model", name)
        for name in (
            "beside:Net",
            "beside.Net",
            "beside:Net.Inner",
            "package.part:f",
            "under:g",
            "plain_folder.inside:h",
        )
    ]
    assert [thing.__name__ for thing in found] == ["Net", "Net", "Inner", "f", "<lambda>", "h"]
    assert sys.path[:2] == [str(Path("conf").absolute()), str(Path.cwd())]


MODULE = "it is neither next to the config nor under the working directory; if you trust it, add --allow"
WALK = "is inside something that is neither this module nor a class"
TORCH = "the model must be a subclass of torch.nn.Module if it comes from torch; if you trust it, add --allow"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("os:system", f"the module 'os' is refused: {MODULE} os"),
        ("os.system", f"the module 'os' is refused: {MODULE} os"),
        ("posix:system", f"the module 'posix' is refused: {MODULE} posix"),
        ("subprocess:run", f"the module 'subprocess' is refused: {MODULE} subprocess"),
        ("builtins:eval", f"the module 'builtins' is refused: {MODULE} builtins"),
        ("sys:exit", f"the module 'sys' is refused: {MODULE} sys"),
        ("pickle.loads", f"the module 'pickle' is refused: {MODULE} pickle"),
        ("numpy:fromfile", f"the module 'numpy' is refused: {MODULE} numpy"),
        ("numpy.lib.npyio:load", f"the module 'numpy.lib.npyio' is refused: {MODULE} numpy.lib.npyio"),
        ("torch.hub:load", f"'torch.hub:load' is refused: {TORCH} torch.hub"),
        ("torch.load", f"'torch.load' is refused: {TORCH} torch"),
        (
            "torch.utils.cpp_extension:load",
            f"'torch.utils.cpp_extension:load' is refused: {TORCH} torch.utils.cpp_extension",
        ),
        ("torch.optim:SGD", f"'torch.optim:SGD' is refused: {TORCH} torch.optim"),
        ("torch.nn:functional.torch.hub.load", f"'torch.nn:functional.torch.hub.load' is refused: 'torch' {WALK}"),
        ("torch.nn:functional.os.system", f"'torch.nn:functional.os.system' is refused: 'os' {WALK}"),
        ("torch.nn.functional.os.system", "the module 'torch.nn.functional.os' was not found"),
        ("torch.nn:Module.load_state_dict", f"'torch.nn:Module.load_state_dict' is refused: {TORCH} torch.nn"),
        ("torch._C:Generator", "'torch._C' is refused: a config cannot use names that begin with an underscore"),
        (
            "torch.nn:_reduction",
            "'torch.nn:_reduction' is refused: a config cannot use names that begin with an underscore",
        ),
        (
            "torch.nn:Module.__init__.__globals__",
            "'torch.nn:Module.__init__.__globals__' is refused: a config cannot use names that begin with an "
            "underscore",
        ),
        ("__main__:x", "'__main__' is refused: a config cannot use names that begin with an underscore"),
        ("../evil:Net", "'../evil:Net' is not a valid name; write 'module:Name', with the module next to the config"),
        (
            "/tmp/evil:Net",
            "'/tmp/evil:Net' is not a valid name; write 'module:Name', with the module next to the config",
        ),
        ("a:b:c", "'a:b:c' is not a valid name; write 'module:Name', with the module next to the config"),
        ("..evil:Net", "'..evil:Net' is not a valid name; write 'module:Name', with the module next to the config"),
        ("evil:Net()", "'evil:Net()' is not a valid name; write 'module:Name', with the module next to the config"),
        ("Linaer", "unknown model 'Linaer'; did you mean 'Linear', which needs in_features and out_features?"),
        ("Xqzwv", "unknown model 'Xqzwv'; to use your own, write 'module:Name'"),
        ("torch.nn:Linaer", "the module 'torch.nn' has no 'Linaer'; did you mean 'Linear'?"),
        ("functional", "unknown model 'functional'; did you mean 'Sequential'?"),
    ],
)
def test_everything_else_is_refused(write: Write, name: str, message: str) -> None:
    assert refused("model", name) == message


@pytest.mark.parametrize(
    ("slot", "name", "message"),
    [
        ("optimizer", "AdmaW", "unknown optimizer 'AdmaW'; did you mean 'AdamW'?"),
        ("scheduler", "StepLr", "unknown scheduler 'StepLr'; did you mean 'StepLR', which needs step_size?"),
        ("metric", "acuracy", "unknown metric 'acuracy'; did you mean 'accuracy'?"),
        ("metric", "Acuracy", "unknown metric 'Acuracy'; did you mean 'accuracy'?"),
        ("metric", "HingeLos", "unknown metric 'HingeLos'; did you mean 'HingeLoss', which needs task?"),
        ("metric", "MulticlasAccuracy", "unknown metric 'MulticlasAccuracy'; did you mean 'MulticlassAccuracy'?"),
        (
            "step",
            "torch.nn.functional:cross_entropy",
            "'torch.nn.functional:cross_entropy' is refused: the step cannot come from torch; "
            "if you trust it, add --allow torch.nn.functional",
        ),
        (
            "writer",
            "hookline.runner.hook:Hook",
            "'hookline.runner.hook:Hook' is refused: the writer must be a subclass of hookline.writers.base.Writer if "
            "it comes from hookline; if you trust it, add --allow hookline.runner.hook",
        ),
    ],
)
def test_a_slot_accepts_only_classes_of_its_kind(write: Write, slot: str, name: str, message: str) -> None:
    assert refused(slot, name) == message


def test_a_suggestion_accepts_the_parameters_that_are_given(write: Write) -> None:
    def hint(slot: str, name: str, *given: str) -> str:
        with pytest.raises(ConfigError) as caught:
            Resolver().resolve(slot, name, given)
        return str(caught.value).partition("; ")[2]

    assert hint("metric", "acuracy", "task", "num_classes") == "did you mean 'Accuracy'?"
    assert hint("model", "Linaer", "in_features", "out_features") == "did you mean 'Linear'?"
    assert hint("model", "Linaer", "in_features") == "did you mean 'Linear', which needs out_features?"
    assert hint("scheduler", "StepLr", "step_size") == "did you mean 'StepLR'?"
    assert hint("model", "Linaer", "widht") == "did you mean 'Linear'?"
    assert hint("optimizer", "AdmaW", "type", "lr", "fused") == "did you mean 'AdamW'?"


def test_a_suggestion_that_works_as_written_comes_first() -> None:
    class Accuracies:
        def __init__(self, task: str, top: int) -> None: ...

    def accuracy(preds: object, target: object) -> None: ...

    hint = suggest("accuracie", {"accuracy": lambda name: accuracy}, {"Accuracies": Accuracies})
    assert hint == "did you mean 'accuracy', or Accuracies, which needs task and top?"
    assert suggest("accuracie", {"accuracy": lambda name: accuracy}, {"Accuracies": Accuracies}, ["task", "top"]) == (
        "did you mean 'Accuracies'?"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mynet:os.system", f"'mynet:os.system' is refused: 'system' {WALK}"),
        (
            "mynet:system",
            "'mynet:system' is refused: it is posix.system, which is not defined in one of your own modules; "
            "if you trust it, add --allow posix",
        ),
        (
            "mynet:SGD",
            "'mynet:SGD' is refused: it is torch.optim.sgd.SGD, which is not defined in one of your own modules; "
            "if you trust it, add --allow torch.optim.sgd",
        ),
        ("mynet:os", "'mynet:os' cannot be the model: it is a module, which is not callable"),
        (
            "mynet:__builtins__",
            "'mynet:__builtins__' is refused: a config cannot use names that begin with an underscore",
        ),
        ("mynet:Nte", "the module 'mynet' has no 'Nte'; did you mean 'Net'?"),
        ("mynet:Net.Iner", "the class 'Net' has no 'Iner'; did you mean 'Inner'?"),
        (
            "mynt:Net",
            "the module 'mynt' was not found next to the config or under the working directory; did you mean 'mynet'?",
        ),
    ],
)
def test_your_own_module_provides_only_what_it_defines(mynet: Write, name: str, message: str) -> None:
    assert refused("model", name) == message


def test_a_class_of_the_right_kind_may_be_imported_by_your_own_module(mynet: Write) -> None:
    assert Resolver().resolve("optimizer", "mynet:SGD") is torch.optim.SGD


def test_a_refused_module_is_not_run(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("outside/evil/__init__.py", "raise SystemError('it ran')\n")
    write("outside/evil/deep.py", "raise SystemError('it ran')\n")
    write("work/run.yaml", "")
    sys.path.append(str(tmp_path / "outside"))
    monkeypatch.chdir("work")
    assert refused("model", "evil.deep:Net") == f"the module 'evil.deep' is refused: {MODULE} evil.deep"
    assert "evil" not in sys.modules


def test_a_package_around_the_working_directory_is_not_run(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("around/__init__.py", "raise SystemError('it ran')\n")
    write("around/inner/__init__.py", "")
    write("around/inner/part.py", "def f(): ...\n")
    sys.path.append(str(tmp_path))
    monkeypatch.chdir("around/inner")
    name = "around.work.part"
    assert refused("model", f"{name}:f") == f"the module '{name}' is refused: {MODULE} {name}"


def test_a_foreign_class_inside_torch_does_not_count_as_torch(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = type("Foreign", (torch.nn.Module,), {"__module__": "evil"})
    monkeypatch.setattr(torch.nn, "Foreign", foreign, raising=False)
    assert refused("model", "torch.nn:Foreign") == f"'torch.nn:Foreign' is refused: {TORCH} torch.nn"
    assert refused("model", "Foreign").startswith("unknown model 'Foreign'")


def test_installed_packages_under_the_working_directory_are_not_your_own(write: Write) -> None:
    write(".venv/lib/python3.11/site-packages/installed.py", "raise SystemError('it ran')\n")
    sys.path.append(str(Path(".venv/lib/python3.11/site-packages").absolute()))
    assert refused("model", "installed:Net") == f"the module 'installed' is refused: {MODULE} installed"


def test_a_module_with_the_name_of_an_imported_one_is_explained(write: Write) -> None:
    file = write("random.py", "def Net(): ...\n").absolute()
    import random

    assert refused("model", "random:Net") == (
        f"the module 'random' ({file}) cannot be imported, because Python has already imported another 'random' "
        f"({random.__file__}); rename yours"
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("1 +", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("import not_there_at_all", "ModuleNotFoundError: No module named 'not_there_at_all' (broken.py:1)"),
        ("raise RuntimeError('no')", "RuntimeError: no (broken.py:1)"),
        ("import sys; sys.exit(0)", "SystemExit: 0 (broken.py:1)"),
    ],
)
def test_a_module_that_fails_says_why(write: Write, body: str, reason: str) -> None:
    write("broken.py", body + "\n")
    assert refused("model", "broken:Net") == f"the module 'broken' cannot be imported: {reason}"


def test_allow_opens_a_module_and_what_is_below_it(write: Write) -> None:
    resolver = Resolver(allow=["posixpath", "torch.nn.init"])
    assert resolver.resolve("step", "posixpath:join").__name__ == "join"
    assert resolver.resolve("step", "torch.nn.init:zeros_") is torch.nn.init.zeros_
    assert refused("step", "posixpath:os.system", resolver) == f"'posixpath:os.system' is refused: 'system' {WALK}"
    assert refused("step", "posixpathx:join", resolver).startswith("the module 'posixpathx' was not found")
    assert refused("step", "torch.nn:Linear", resolver).startswith("'torch.nn:Linear' is refused")


def test_imports_follow_the_same_rules(mynet: Write) -> None:
    resolver = Resolver()
    resolver.import_modules(["mynet"])
    assert "ToyHook" in HOOKS
    with pytest.raises(ConfigError, match="the module 'antigravity' is refused"):
        resolver.import_modules(["antigravity"])
    with pytest.raises(ConfigError, match=r"^'../x' is not a valid module name; write package.module, not a path$"):
        resolver.import_modules(["../x"])


def test_a_missing_torchmetrics_names_the_extra(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchmetrics"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    message = "torchmetrics, which this metric needs, is not installed: pip install 'hookline[metrics]'"
    assert refused("metric", "MulticlassAccuracy") == message
    assert refused("metric", "torchmetrics:Accuracy") == message


def test_hooks_are_found_without_torch() -> None:
    code = (
        "import sys; from hookline.config.names import Resolver; "
        "Resolver().resolve('hook', 'hookline.runner.hook:Hook'); print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
