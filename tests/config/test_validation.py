"""All errors of a config are reported at once, each on one line with its position."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hookline.config.loading import from_dict, load
from hookline.config.names import Resolver
from hookline.config.sections import DefaultHooksSection
from hookline.config.validation import check
from hookline.errors import ConfigError
from hookline.plan.registry import DEFAULT_HOOKS

Write = Callable[[str, str], Path]

GOOD = """
imports: [mynet]
model: {type: "mynet:Net", hidden: 16}
train:
  dataloader: {dataset: {type: "mynet:Data"}, batch_size: 8, shuffle: true, collate_fn: "mynet:stack"}
  step: mynet:loss_of
  max_epochs: 2
val:
  first:
    dataloader: {dataset: {type: "mynet:Data"}}
    step: mynet:predict
    metrics: {errors: "mynet:error_rate", scaled: {type: "mynet:error_rate", factor: 2}}
  second: {dataloader: {type: "mynet:endless", batch_size: 3}, loss: "mynet:loss_of", limit_batches: 2}
optim:
  optimizer: {type: AdamW, lr: 1e-3, betas: [0.9, 0.99]}
  schedulers:
    - {type: CosineAnnealingLR, T_max: auto, when: iter}
    - type: SequentialLR
      schedulers: [{type: ConstantLR}, {type: StepLR, step_size: auto}]
      milestones: [1]
    - {type: ChainedScheduler, schedulers: [{type: ConstantLR}]}
    - {type: ReduceLROnPlateau, monitor: errors}
  param_groups: [{match: "*.bias", weight_decay: 0}]
default_hooks: {timer: null, logger: {priority: 80}}
custom_hooks:
  - {type: ToyHook, momentum: 1, priority: LOW, on_error: disable}
  - ActorHook
writers: [jsonl]
points: {after_render: [image]}
resume: false
"""


@pytest.fixture
def run(mynet: Write) -> Callable[..., str]:
    """Check the good config with some overrides, and return the error or an empty text."""
    mynet("run.yaml", GOOD)

    def checked(*overrides: str) -> str:
        loaded = load("run.yaml", overrides)
        try:
            check(loaded, Resolver(loaded.file))
        except ConfigError as error:
            return str(error)
        return ""

    return checked


def test_a_good_config_passes(run: Callable[..., str]) -> None:
    assert run() == ""


def test_all_errors_are_reported_at_once_sorted_by_position(mynet: Write) -> None:
    mynet(
        "run.yaml",
        """\
        model: {type: "mynet:Net", hiden: 3}
        custom_hooks:
          - {type: ToyHook, momentum: fast}
          - type: ToyHook
            momentun: 1
        imports: [mynet]
        train:
          datalaoder: {}
          max_epochs: 0
        sed: 1
        """,
    )
    loaded = load("run.yaml", ["optim.optimizer.type=AdmaW"])
    with pytest.raises(ConfigError) as caught:
        check(loaded, Resolver(loaded.file))
    assert str(caught.value).splitlines() == [
        "run.yaml: 7 errors",
        "  run.yaml:1:28  model.hiden: Net has no parameter 'hiden'; did you mean 'hidden'?",
        "  run.yaml:3:21  custom_hooks[0].momentum: expected a number, found 'fast'",
        "  run.yaml:5:5  custom_hooks[1].momentun: ToyHook has no parameter 'momentun'; did you mean 'momentum'?",
        "  run.yaml:8:3  train.datalaoder: unknown key 'datalaoder'; did you mean 'dataloader'?",
        "  run.yaml:9:3  train.max_epochs: expected a number of at least 1, found 0",
        "  run.yaml:10:1  sed: unknown key 'sed'; did you mean 'seed'?",
        "  override 'optim.optimizer.type=AdmaW'  optim.optimizer.type: unknown optimizer 'AdmaW'; "
        "did you mean 'AdamW'?",
    ]


KEYS = (
    "model, train, val, test, optim, default_hooks, custom_hooks, budget, writers, work_dir, "
    "experiment_name, seed, device, strategy, precision, load_from, resume, trial_batch, compile, channels_last, "
    "threads, prefetch, keep, points, imports, sweep"
)
NAME = "this becomes part of file names, so it cannot be '..' or contain '/' or '\\'"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("xyz=1", f"xyz: unknown key 'xyz'; available: {KEYS}"),
        ("lr=0.1", "lr: unknown key 'lr'; did you mean 'optim.optimizer.lr'?"),
        ("max_epochs=3", "max_epochs: unknown key 'max_epochs'; did you mean 'train.max_epochs'?"),
        ("model=null", "model: expected a mapping, found null"),
        ("model={hidden: 3}", "model: the key 'type' is missing"),
        ("model.type=5", "model.type: expected a string, found 5"),
        ("model.type=", "model.type: expected a string, found null"),
        ("model.hidden='5'", "model.hidden: expected an int, found '5'"),
        ("model.hidden=1.5", "model.hidden: expected an int, found 1.5"),
        ("seed=true", "seed: expected an int, found true"),
        ("seed=-1", "seed: expected a number of at least 0, found -1"),
        ("precision=fp8", "precision: expected 'fp32', 'bf16' or 'fp16', found 'fp8'"),
        (
            "precision=16-true",
            "precision: precision '16-true' means weights in float16, but the precision of a run is about its "
            "computations: the weights stay as they are. For mixed precision, write 'fp16'; otherwise, convert the "
            "model yourself, model.to(torch.float16), and leave precision at 'fp32'",
        ),
        ("resume=3", "resume: expected true or false or a string, found 3"),
        ("experiment_name=../x", f"experiment_name: {NAME}"),
        ("experiment_name=/etc", f"experiment_name: {NAME}"),
        ("val.first.metrics={'../m': 'mynet:error_rate'}", f"val.first.metrics.../m: {NAME}"),
        ("train.max_iters=5", "train: expected either max_epochs or max_iters, found both"),
        ("train.max_epochs=null", "train: expected either max_epochs or max_iters, found neither"),
        ("train.dataloader={batch_size: 2}", "train.dataloader: the key 'dataset' is missing"),
        (
            "train.dataloader.batch_sise=2",
            "train.dataloader.batch_sise: unknown key 'batch_sise'; did you mean 'batch_size'?",
        ),
        (
            "train.dataloader.dataset.m=2",
            "train.dataloader.dataset.m: Data has no parameter 'm'; available: n, type",
        ),
        (
            "train.dataloader.collate_fn=mynet:stak",
            "train.dataloader.collate_fn: the module 'mynet' has no 'stak'; did you mean 'stack'?",
        ),
        ("train.step=loss_off", "train.step: unknown step 'loss_off'; available: cross_entropy, predict"),
        ("val={datalaoder: {}}", "val.datalaoder: unknown key 'datalaoder'; did you mean 'dataloader'?"),
        ("val={}", "val: the key 'dataloader' is missing"),
        ("val=3", "val: expected a mapping, found 3"),
        ("val.second.lss=x", "val.second.lss: unknown key 'lss'; did you mean 'loss'?"),
        ("val.third={step: predict}", "val.third: the key 'dataloader' is missing"),
        (
            "val.second.dataloader.batchsize=1",
            "val.second.dataloader.batchsize: endless has no parameter 'batchsize'; did you mean 'batch_size'?",
        ),
        (
            "val.first.metrics.scaled.factr=1",
            "val.first.metrics.scaled.factr: error_rate has no parameter 'factr'; did you mean 'factor'?",
        ),
        (
            "optim.optimizer.params=1",
            "optim.optimizer.params: AdamW has no parameter 'params'; available: lr, betas, eps, weight_decay, "
            "amsgrad, maximize, foreach, capturable, differentiable, type, fused",
        ),
        ("optim.optimizer.betas=[1]", "optim.optimizer.betas: the list is too short: item 1 is missing"),
        ("optim.optimizer.fused=3", "optim.optimizer.fused: expected true or false or 'auto', found 3"),
        ("optim={optimzer: {type: SGD}}", "optim.optimzer: unknown key 'optimzer'; did you mean 'optimizer'?"),
        (
            "optim.param_groups.0.weight_dcay=1",
            "optim.param_groups[0].weight_dcay: AdamW has no parameter 'weight_dcay'; did you mean 'weight_decay'?",
        ),
        ("optim.param_groups.0.match=null", "optim.param_groups[0].match: expected a string or a list, found null"),
        (
            "optim.param_groups.0.match=[]",
            "optim.param_groups[0].match: expected a string or a list that is not empty, found a list",
        ),
        ("optim.clip_norm=0", "optim.clip_norm: expected a number above 0, found 0"),
        (
            "optim.schedulers.0.T_mx=auto",
            "optim.schedulers[0].T_mx: CosineAnnealingLR has no parameter 'T_mx'; did you mean 'T_max'?",
        ),
        ("optim.schedulers.0.T_max=Auto", "optim.schedulers[0].T_max: expected an int, found 'Auto'"),
        (
            "optim.schedulers.0.when=iters",
            "optim.schedulers[0].when: expected 'epoch', 'iter', 'step' or 'val', found 'iters'",
        ),
        (
            "optim.schedulers.3.when=iter",
            "optim.schedulers[3].monitor: a scheduler that monitors a metric needs 'when: val', not 'iter'",
        ),
        (
            "optim.schedulers.1.schedulers.1={type: StepLR}",
            "optim.schedulers[1].schedulers[1]: StepLR needs the parameter 'step_size'",
        ),
        ("custom_hooks.0.type=ToyHok", "custom_hooks[0].type: unknown hook 'ToyHok'; did you mean 'ToyHook'?"),
        ("custom_hooks.1=ToyHook", "custom_hooks[1]: ToyHook needs the parameter 'momentum'"),
        ("custom_hooks.1=3", "custom_hooks[1]: expected a string or a mapping, found 3"),
        ("custom_hooks.1={momentum: 1}", "custom_hooks[1]: the key 'type' is missing"),
        ("custom_hooks={}", "custom_hooks: expected a list, found a mapping"),
        ("custom_hooks.0.paths=[a, 1]", "custom_hooks[0].paths[1]: expected a string, found 1"),
        (
            "default_hooks.loger={}",
            "default_hooks.loger: unknown key 'loger'; did you mean 'logger'?",
        ),
        ("default_hooks.logger=3", "default_hooks.logger: expected a string or a mapping, found 3"),
        ("default_hooks.logger={type: Nope}", "default_hooks.logger.type: unknown hook 'Nope'; "),
        (
            "custom_hooks.1={type: CallingHook, function: loss_of}",
            "custom_hooks[1].function: expected a name such as 'module:name', found 'loss_of'",
        ),
        (
            "custom_hooks.1={type: CallingHook, function: 'mynet:los_of'}",
            "custom_hooks[1].function: the module 'mynet' has no 'los_of'; did you mean 'loss_of'?",
        ),
        (
            "custom_hooks.1={type: CallingHook, function: 'mynet:loss_of', kind: slow}",
            "custom_hooks[1].kind: expected 'fast' or a name such as 'module:name', found 'slow'",
        ),
        (
            "compile={options: {cpp.cxx: [sh]}}",
            "compile.options.cpp.cxx: expected true, false or a number; a text can name a command, so only Python code "
            "may set it",
        ),
        ("writers.1=jsnl", "writers[1]: unknown writer 'jsnl'; did you mean 'jsonl'?"),
        ("points={after_train: [x]}", "points: the point 'after_train' already exists: after_train(runner)"),
        (
            "imports=[mynt]",
            "imports[0]: the module 'mynt' was not found next to the config or under the working directory; ",
        ),
    ],
)
def test_each_kind_of_error(run: Callable[..., str], override: str, message: str) -> None:
    title, *lines = run(override).splitlines()
    place = f"override {override!r}"
    if message.startswith("train: "):
        place = "run.yaml:4:1"
    if message.startswith("optim.schedulers[3].monitor"):
        place = "run.yaml:22:33"
    assert title == "run.yaml: 1 error"
    if message.endswith("; "):
        assert lines[0].startswith(f"  {place}  {message}")
    else:
        assert lines == [f"  {place}  {message}"]


def test_several_optimizers_must_divide_the_parameters(run: Callable[..., str]) -> None:
    assert run("optim={a: {optimizer: {type: SGD}, params: 'x.*'}, b: {optimizer: {type: SGD}}}").splitlines()[1:] == [
        "  override \"optim={a: {optimizer: {type: SGD}, params: 'x.*'}, b: {optimizer: {type: SGD}}}\"  optim.b: "
        "with several optimizers, each one needs 'params', the parameters that it updates"
    ]


def test_a_module_that_cannot_be_imported_is_reported_once(mynet: Write) -> None:
    broken = "from pathlib import Path\n\ndef grow():\n    raise RuntimeError('no')\n\ngrow()\n"
    mynet("broken.py", "with open('runs.txt', 'a') as file:\n    file.write('x')\n" + broken)
    mynet("around.py", "import broken\n")
    mynet(
        "run.yaml",
        """\
        imports: [broken]
        model: {type: "broken:Net", inner: {type: "broken:Net"}}
        train:
          dataloader: {dataset: {type: "broken:Data"}}
          step: around:loss_of
          max_epochs: 1
        custom_hooks: [OwnHook, {type: "mynet:Nets"}]
        """,
    )
    loaded = load("run.yaml")
    with pytest.raises(ConfigError) as caught:
        check(loaded, Resolver(loaded.file))
    assert str(caught.value).splitlines() == [
        "run.yaml: 2 errors",
        "  run.yaml:1:11  imports[0]: the module 'broken' cannot be imported: RuntimeError: no (broken.py:6); also "
        "needed by model.type, train.dataloader.dataset.type, train.step",
        "  run.yaml:7:26  custom_hooks[1].type: the module 'mynet' has no 'Nets'; did you mean 'Net'?",
    ]
    assert Path("runs.txt").read_text() == "xx"  # once by itself, and once by the module that imports it


def test_a_line_break_in_a_key_does_not_break_the_message() -> None:
    with pytest.raises(ConfigError) as caught:
        check(from_dict({"model": {"type": "Linear", "in_features": 1, "out_features": 1}, "a\nb": 1}), Resolver())
    assert len(str(caught.value).splitlines()) == 2


def test_values_in_messages_are_short() -> None:
    config: dict[str, Any] = {"model": {"type": "Linear", "in_features": "x" * 500, "out_features": 1}}
    with pytest.raises(ConfigError) as caught:
        check(from_dict(config), Resolver())
    assert str(caught.value) == (f"config: 1 error\n  config  model.in_features: expected an int, found '{'x' * 56}...")


def test_every_default_hook_has_its_key() -> None:
    assert list(DefaultHooksSection.model_fields) == list(DEFAULT_HOOKS)


@pytest.mark.parametrize("place", ["", "train", "train.dataloader", "model", "default_hooks"])
def test_of_very_many_unknown_keys_the_first_are_listed_and_the_rest_is_counted(place: str) -> None:
    loader: dict[str, Any] = {"dataset": {"type": "Digits"}}
    config: dict[str, Any] = {"train": {"dataloader": loader, "max_epochs": 1}, "model": {"type": "DigitsNet"}}
    config["optim"] = {"optimizer": {"type": "SGD"}}
    section = config
    for key in filter(None, place.split(".")):
        section = section.setdefault(key, {})
    section |= {f"key_{number}": number for number in range(15_000)}
    with pytest.raises(ConfigError) as caught:
        check(from_dict(config), Resolver())
    lines = str(caught.value).splitlines()
    assert lines[0] == "config: 11 errors"
    assert ["key_9" in line for line in lines].index(True) == 10
    assert lines[11].endswith("'key_10', and 14,989 more")
    assert len(str(caught.value)) < 10_000


def test_of_very_many_errors_the_first_are_listed_and_the_rest_is_counted() -> None:
    config = {"model": {"type": "DigitsNet"}, "custom_hooks": [{"type": f"No{number}"} for number in range(9_000)]}
    with pytest.raises(ConfigError) as caught:
        check(from_dict(config), Resolver())
    lines = str(caught.value).splitlines()
    assert (lines[0], len(lines), lines[-1]) == ("config: 9,000 errors", 52, "  and 8,950 more")


def test_names_that_are_far_too_long_are_not_compared() -> None:
    long = "x" * 500_000
    with pytest.raises(ConfigError) as caught:
        check(from_dict({"model": {"type": long}, long[1:]: 1, "writers": [long[2:]]}), Resolver())
    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_far_more_workers_than_cores_are_refused(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    most = {1: 64, 2: 64, 64: 512}[cores]
    machine = "one core" if cores == 1 else f"{cores} cores"
    loader: dict[str, Any] = {"dataset": {"type": "Digits"}, "num_workers": most}
    config: dict[str, Any] = {"train": {"dataloader": loader, "max_epochs": 1}, "model": {"type": "DigitsNet"}}
    check(from_dict(config), Resolver())
    loader["num_workers"] = most + 1
    with pytest.raises(ConfigError) as caught:
        check(from_dict(config), Resolver())
    assert str(caught.value) == (
        f"config: 1 error\n  config  train.dataloader.num_workers: num_workers must be at most {most}, not {most + 1}: "
        f"each worker is a process, and this process can use {machine}"
    )


@pytest.mark.parametrize("section", ["train", "val"])
def test_a_step_that_cannot_be_called_with_a_model_and_a_batch_is_refused(section: str, mynet: Write) -> None:
    loader = {"dataset": {"type": "Digits"}}
    sections: dict[str, Any] = {"train": {"dataloader": loader, "max_epochs": 1}, "val": {"dataloader": loader}}
    sections[section]["step"] = "mynet:Data"
    with pytest.raises(ConfigError) as caught:
        check(from_dict({"model": {"type": "DigitsNet"}, **sections}), Resolver())
    assert str(caught.value) == (
        f"config: 1 error\n  config  {section}.step: a step is called with (model, batch), which Data does not accept"
    )
