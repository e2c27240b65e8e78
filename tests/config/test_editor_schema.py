"""The JSON Schema accepts valid configs and rejects misspelled ones, as an editor would use it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hookline.config import from_dict, json_schema, load
from hookline.config.names import Resolver
from hookline.plan.registry import HOOKS

Write = Callable[[str, str], Path]

GOOD: dict[str, Any] = {
    "_base_": ["common.yaml"],
    "model": {"type": "mynet:Net", "hidden": 3},
    "train": {"dataloader": {"dataset": {"type": "mynet:Data"}, "batch_size": 8}, "max_epochs": 2},
    "val": {"a": {"dataloader": {"type": "mynet:loader", "x": 1}, "metrics": {"acc": "accuracy", "f": {"type": "F1"}}}},
    "test": {"dataloader": {"dataset": {"type": "mynet:Data"}}, "step": "predict"},
    "optim": {
        "optimizer": {"type": "SGD", "lr": 0.1, "fused": "auto"},
        "schedulers": [
            {"type": "StepLR", "step_size": "auto", "when": "iter", "warmup": 0.05},
            {"type": "wsd", "warmup": 500, "length": "auto", "decay": 0.1, "decay_shape": "sqrt", "when": "step"},
            {"type": "mine:Schedule", "whatever": 1},
        ],
        "param_groups": [{"match": "*.bias", "weight_decay": 0}],
    },
    "custom_hooks": [
        {"type": "ToyHook", "momentum": 1, "mode": "x", "paths": ["a"], "priority": "low", "on_error": "disable"},
        {"type": "mine:Hook", "whatever": 1, "priority": 30, "budget": "5%"},
        "ActorHook",
        "mine.Hook",
    ],
    "default_hooks": {"timer": None, "logger": {"priority": 80}, "checkpoint": {"type": "mine:Saver", "x": 1}},
    "writers": ["jsonl", {"type": "jsonl"}, {"type": "mine:Writer", "x": 1}],
    "seed": 1,
    "budget": 0.05,
    "resume": "some/file.pth",
    "points": {"after_render": ["image"]},
    "sweep": {
        "space": {
            "optim.optimizer.lr": {"low": 1e-4, "high": 0.1, "log": True},
            "model.width": {"low": 8, "high": 32, "step": 8},
            "model.kind": {"values": ["a", None]},
            "model.depth": [1, 2],
            "seed": "0..5",
        },
        "metric": "val/accuracy",
        "sampler": "random",
    },
}


@pytest.fixture
def validator(mynet: Write) -> Draft202012Validator:
    Resolver().import_modules(["mynet"])
    return Draft202012Validator(json_schema())


def test_the_schema_itself_is_valid(validator: Draft202012Validator) -> None:
    Draft202012Validator.check_schema(validator.schema)


def test_a_good_config_is_valid(validator: Draft202012Validator) -> None:
    assert [error.message for error in validator.iter_errors(GOOD)] == []


@pytest.mark.parametrize(
    "override",
    [
        "custom_hooks.0.momentun=1",
        "custom_hooks.0.momentum=fast",
        "custom_hooks.0={type: ToyHook}",
        "custom_hooks.0.priority=LOWW",
        "custom_hooks.0.priority=101",
        "custom_hooks.0.on_error=ignore",
        "custom_hooks.0.budget=5",
        "custom_hooks.0.budget=a lot",
        "custom_hooks.0.budget=stop",
        "custom_hooks.0.type=ToyHok",
        "custom_hooks.2=ActorHok",
        "default_hooks.loger={}",
        "default_hooks.logger={priorty: 1}",
        "writers.0=jsnl",
        "train.dataloader.batch_sise=2",
        "train.dataloader.batch_size=0",
        "train.max_epoch=2",
        "val.a.step=3",
        "test.datalaoder={}",
        "optim.optimizer.fused=3",
        "optim.schedulers.0.when=sometimes",
        "optim.schedulers.0.warmup=1.5",
        "optim.schedulers.0.warmup=-1",
        "optim.schedulers.1.warmup=1.5",
        "optim.schedulers.1.min_lr=0.1",
        "optim.schedulers.1.length=0",
        "optim.schedulers.1.decay=2.5",
        "optim.schedulers.1.decay_shape=cos",
        "optim.param_groups.0={weight_decay: 0}",
        "optim.clip_norm=0",
        "precision=fp8",
        "precision=bf16-true",
        "precision=64",
        "seed='1'",
        "sed=1",
        "sweep.spce={}",
        "sweep.space.seed={low: 1, hihg: 2}",
        "sweep.space.seed=3",
        "sweep.sampler=gird",
    ],
)
def test_a_mistake_makes_a_config_invalid(validator: Draft202012Validator, override: str) -> None:
    good = {key: value for key, value in GOOD.items() if key != "_base_"}
    assert validator.is_valid(from_dict(good).data)
    assert not validator.is_valid(from_dict(good, [override]).data)


NESTED = [
    ("model.backbone={type: 'mynet:Net', layers: [{type: Linear, in: {_plain_: true, type: x}}]}", True),
    ("model.backbone={_plain_: 3, type: x}", False),
    ("model.backbone={a: [{_plain_: 'yes', type: x}]}", False),
    ("model.backbone={_plain_: false}", False),
    ("model.backbone={_plain_: true, type: '${seed}'}", True),
    ("train.dataloader.collate_fn={type: 'mynet:Collate', pad: 1}", True),
    ("train.dataloader.collate_fn={pad: 1}", True),
    ("optim.param_groups.0.match=['*.bias', 'a.*']", True),
    ("optim.param_groups.0.match=[]", False),
    ("custom_hooks.1.net={_plain_: 3}", False),
    ("custom_hooks.0={type: NestingHook, net: {type: Linear, in_features: {_plain_: 1}}}", False),
    ("custom_hooks.0={type: NestingHook, net: {type: Linear, in_features: 1}}", True),
    ("custom_hooks.0={type: NestingHook, net: Linear, calls: ['mynet:stack', {type: 'mynet:stack'}]}", True),
    ("custom_hooks.0={type: NestingHook, net: 3}", False),
    ("custom_hooks.0={type: NestingHook, net: {in_features: 1}}", False),
    ("custom_hooks.0={type: NestingHook, net: Linear, calls: [stack]}", False),
    ("custom_hooks.0={type: NestingHook, net: Linear, anything: {_plain_: 1}}", False),
    ("custom_hooks.0={type: NestingHook, net: Linear, anything: [{type: x, _plain_: true}]}", True),
]


@pytest.mark.parametrize(("override", "valid"), NESTED)
def test_nested_objects_are_checked(mynet: Write, override: str, valid: bool) -> None:
    Resolver().import_modules(["mynet"])
    good = {key: value for key, value in GOOD.items() if key != "_base_"}
    assert Draft202012Validator(json_schema()).is_valid(from_dict(good, [override]).data) == valid


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "bf16-mixed", "16-mixed", "32-true", "32", 32, 16])
def test_known_names_of_precisions_are_valid(validator: Draft202012Validator, precision: str | int) -> None:
    assert validator.is_valid({**GOOD, "precision": precision})


@pytest.mark.parametrize(
    "text",
    [
        "_base_: common.yaml\ntrain: {max_epochs: 5}",
        "_base_: common.yaml\noptim: {_delete_: true, optimizer: {type: SGD}}\nval: {_delete_: true, a: {}}",
        "_base_: common.yaml\ndefault_hooks: {logger: {_delete_: true}}",
        "model: {type: Net}\nseed: ${x}\ntrain: {max_epochs: '???', dataloader: '${data}'}\nval: ${val2}",
        "model: {type: Net}\ncustom_hooks: [{type: ToyHook, momentum: '${x}'}, '${hook}']",
    ],
)
def test_files_may_omit_what_a_base_provides_and_use_references(validator: Draft202012Validator, text: str) -> None:
    from hookline.common.marks import Mark
    from hookline.common.nodes import plain
    from hookline.common.yaml_text import parse

    data = plain(parse(text, lambda line, column: Mark("x", line, column)))
    assert [error.message for error in validator.iter_errors(data)] == []


def test_a_file_without_base_needs_a_model(validator: Draft202012Validator) -> None:
    assert not validator.is_valid({"seed": 1})


def test_hooks_have_their_types_defaults_and_descriptions(validator: Draft202012Validator) -> None:
    schema: Any = validator.schema
    hook = schema["$defs"]["hook.ToyHook"]
    assert hook["description"] == "Watches."
    assert hook["required"] == ["type", "momentum"]
    assert hook["additionalProperties"] is False
    extras = ("priority", "on_error", "ranks", "budget")
    properties = {name: value for name, value in hook["properties"].items() if name not in extras}
    reference = {"$ref": "#/$defs/reference"}
    assert properties == {
        "type": {"const": "ToyHook"},
        "momentum": {"anyOf": [{"type": "number"}, reference], "description": "How fast it forgets."},
        "mode": {
            "anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}, reference],
            "default": None,
            "description": "What to watch.",
        },
        "paths": {"type": "array", "items": {"type": "string"}, "default": []},
    }


def test_every_key_is_described(validator: Draft202012Validator) -> None:
    schema: Any = validator.schema
    lacking = [
        f"{title}.{name}"
        for title, section in [("Config", schema), *schema["$defs"].items()]
        if title.endswith(("Section", "Part", "Config"))
        for name, value in section.get("properties", {}).items()
        if not value.get("description")
    ]
    assert lacking == []


def test_a_hook_that_cannot_be_loaded_accepts_any_parameters(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HOOKS.builtin, "LostHook", "hookline.not_there:LostHook")
    config = {"model": {"type": "x"}, "custom_hooks": [{"type": "LostHook", "x": 1}]}
    assert Draft202012Validator(json_schema()).is_valid(config)


def test_a_file_on_disk_is_valid(mynet: Write, validator: Draft202012Validator) -> None:
    mynet("run.yaml", "model: {type: 'mynet:Net'}\ncustom_hooks: [{type: ToyHook, momentum: 0.5}]\n")
    assert validator.is_valid(load("run.yaml").data)


def test_the_schema_is_created_without_torch() -> None:
    code = "import sys; from hookline.config import json_schema; json_schema(); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
