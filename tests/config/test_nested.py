"""A mapping with `type` is an object wherever a parameter takes one, at any depth."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from hookline.config import build_runner, from_dict, load
from hookline.errors import ConfigError
from tests.config.nested_parts import PARTS

if TYPE_CHECKING:
    from hookline.runner.runner import Runner

Write = Callable[[str, str], Path]

BASE: dict[str, Any] = {
    "model": {"type": "parts:Wrap"},
    "train": {
        "dataloader": {"dataset": {"type": "parts:Data"}, "batch_size": 4},
        "step": "parts:loss_of",
        "max_epochs": 1,
    },
    "optim": {"optimizer": {"type": "SGD", "lr": 0.1}},
    "work_dir": "out",
}


@pytest.fixture
def parts(write: Write) -> Write:
    """A working directory with the module `parts`."""
    write("parts.py", PARTS)
    return write


def build(*overrides: str, **kwargs: Any) -> Runner:
    return build_runner(from_dict(BASE, overrides), **kwargs)


def refused(*overrides: str) -> list[str]:
    """Return the problems of the base config with these overrides, without their positions."""
    with pytest.raises(ConfigError) as caught:
        build(*overrides)
    title, *lines = str(caught.value).splitlines()
    assert title == f"config: {len(lines)} error{'s' * (len(lines) > 1)}"
    return [line.split("  ")[-1] for line in lines]


def given(name: str, value: str) -> Any:
    """Return what a parameter of `Wrap` gets for a value in YAML."""
    model: Any = build(f"model.{name}={value}").model
    return model.given[name] if name in model.given else model.rest[name]


def described(value: Any) -> Any:
    """Return a value with the objects in it as text."""
    if isinstance(value, dict):
        return {key: described(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(described(item) for item in value)
    if isinstance(value, functools.partial):
        return f"partial({value.func.__name__}, {value.keywords})"
    if hasattr(value, "__name__"):
        return f"{value.__name__} itself"
    inner = {"Net": "width", "Flip": "p", "Size": "width", "Typed": "width"}.get(type(value).__name__)
    if inner == "width" and isinstance(value, nn.Module):
        return f"Net({value.get_parameter('inner.weight').shape[0]})"
    if inner is not None:
        return f"{type(value).__name__}({getattr(value, inner)})"
    return repr(value) if isinstance(value, nn.Module) else value


FLIP = '{type: "parts:Flip", p: 1}'
NET = '{type: "parts:Net", width: 3}'


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        # a class
        ("backbone", NET, "Net(3)"),
        ("backbone", "{type: ReLU}", "ReLU()"),
        ("backbone", "parts:Net", "Net(8)"),
        ("backbone", "ReLU", "ReLU()"),
        ("backbone", '{type: "parts:make_net", width: 5}', "Net(5)"),
        ("backbone", "null", None),
        ("flip", FLIP, "Flip(1.0)"),
        ("flip", "parts:Flip", "Flip(0.5)"),
        ("device", "cpu", "cpu"),
        ("device", "cuda:0", "cuda:0"),
        ("text", "parts:Flip", "parts:Flip"),
        ("text", FLIP, "Flip(1.0)"),
        ("unknown", FLIP, "Flip(1.0)"),
        # a dict
        ("cfg", FLIP, {"type": "parts:Flip", "p": 1}),
        ("cfg", f"{{a: {FLIP}}}", {"a": {"type": "parts:Flip", "p": 1}}),
        ("cfg", f"{{a: [{FLIP}]}}", {"a": [{"type": "parts:Flip", "p": 1}]}),
        ("table", f"{{a: {FLIP}}}", {"a": {"type": "parts:Flip", "p": 1}}),
        ("options", "{type: x}", {"type": "x"}),
        ("either", "{a: 1}", {"a": 1}),
        ("either", FLIP, "Flip(1.0)"),
        ("described", NET, {"type": "parts:Net", "width": 3}),
        ("described", '{_plain_: false, type: "parts:Net"}', "Net(8)"),
        ("metrics", FLIP, "Flip(1.0)"),
        ("metrics", f"{{a: {FLIP}}}", {"a": "Flip(1.0)"}),
        # structures
        ("size", "{width: 3}", "Size(3)"),
        ("size", '{type: "parts:Size", width: 3}', "Size(3)"),
        ("typed", '{type: "parts:Typed", width: 3}', "Typed(3)"),
        # lists and dicts of objects
        ("heads", f"[{NET}, ReLU]", ["Net(3)", "ReLU()"]),
        ("named", f"{{a: {NET}}}", {"a": "Net(3)"}),
        ("pair", f"[{NET}, 2]", ("Net(3)", 2)),
        ("listed", f"[{FLIP}, 1]", ["Flip(1.0)", 1]),
        ("anything", f"{{a: [{{b: {FLIP}}}]}}", {"a": [{"b": "Flip(1.0)"}]}),
        ("anything", "{type: 3}", {"type": 3}),
        ("other", FLIP, "Flip(1.0)"),
        # `_plain_` decides
        ("anything", '{_plain_: true, type: "parts:Flip"}', {"type": "parts:Flip"}),
        (
            "anything",
            f"{{_plain_: true, a: [{{_plain_: true, b: {FLIP}}}]}}",
            {"a": [{"b": {"type": "parts:Flip", "p": 1}}]},
        ),
        ("anything", f"[{{_plain_: true, type: x}}, {FLIP}]", [{"type": "x"}, "Flip(1.0)"]),
        ("either", "{_plain_: true, type: 3}", {"type": 3}),
        ("cfg", '{a: {_plain_: false, type: "parts:Flip"}}', {"a": "Flip(0.5)"}),
        ("other", '{_plain_: true, type: "parts:Flip"}', {"type": "parts:Flip"}),
        # something to call
        ("function", FLIP, "Flip(1.0)"),
        ("function", "parts:scale", "scale itself"),
        ("function", "parts:Flip", "Flip itself"),
        ("function", '{type: "parts:scale", by: 3}', "partial(scale, {'by': 3})"),
        ("function", '{type: "parts:make_flip", p: 3}', "Flip(3)"),
        ("function", "{type: ReLU}", "ReLU()"),
        ("functions", '["parts:scale", {type: "parts:scale", by: 3}]', ["scale itself", "partial(scale, {'by': 3})"]),
        ("protocol", FLIP, "Flip(1.0)"),
        ("protocol", "parts:scale", "scale itself"),
        ("kind", "parts:Net", "Net itself"),
    ],
)
def test_the_annotation_decides_what_a_value_is(parts: Write, name: str, value: str, expected: Any) -> None:
    assert described(given(name, value)) == expected


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("backbone", '{type: "parts:Net", widht: 3}', ".widht: Net has no parameter 'widht'; did you mean 'width'?"),
        ("backbone", '{type: "parts:Net", width: a}', ".width: expected an int, found 'a'"),
        ("backbone", '{type: "parts:Nte"}', ".type: the module 'parts' has no 'Nte'; did you mean 'Net'?"),
        ("backbone", "{type: Rellu}", ".type: unknown model 'Rellu'; did you mean 'ReLU'?"),
        ("backbone", "Rellu", ": unknown model 'Rellu'; did you mean 'ReLU'?"),
        ("backbone", '{type: "parts:Data"}', ".type: expected a Module, but this creates a Data"),
        ("backbone", "{width: 3}", ": expected a mapping with 'type', found a mapping"),
        ("backbone", "3", ": expected a mapping with 'type', found 3"),
        ("backbone", "{_plain_: true, type: x}", ": expected a mapping with 'type', found a mapping"),
        ("flip", NET, ".type: expected a Flip, but this creates a Net"),
        ("heads", '[ReLU, {type: "parts:Net", width: a}]', "[1].width: expected an int, found 'a'"),
        ("named", '{a: {type: "parts:Net", width: 0.5}}', ".a.width: expected an int, found 0.5"),
        ("pair", f"[{NET}]", ": the list is too short: item 1 is missing"),
        ("count", FLIP, ": expected an int, found a mapping"),
        ("anything", '[{a: {type: "parts:Flip", q: 1}}]', "[0].a.q: Flip has no parameter 'q'; available: p, type"),
        ("anything", "{_plain_: 3, type: x}", "._plain_: expected true or false, found 3"),
        ("anything", "{_plain_: false}", "._plain_: _plain_: false builds an object, but the mapping has no 'type'"),
        (
            "anything",
            '{type: "parts:scale", by: 1}',
            ": scale needs the parameter 'x'; a function is called now, unless the parameter that takes it is "
            "annotated as a Callable",
        ),
        ("function", "{type: 'parts:Data'}", ".type: expected something to call, but this creates a Data"),
        (
            "function",
            "{type: 'parts:unclear', q: 1}",
            ".type: unclear can be called now with these parameters, or later with more; annotate what it returns: "
            "'-> Callable' if it creates the function to use, anything else if it is that function",
        ),
        (
            "function",
            "{type: 'parts:add', by: 1}",
            ".type: add is called with 1 argument here, which it does not accept besides these parameters",
        ),
        ("function", "{type: 'parts:scale', bi: 1}", ".bi: scale has no parameter 'bi'; available: x, by, type"),
        ("heads", NET, ".type: expected a list, but this creates a Net; put it into a list"),
        ("functions", FLIP, ".type: expected a list, but this creates a Flip; put it into a list"),
        ("function", "3", ": expected a name such as 'module:name', found 3"),
        ("kind", NET, ": expected a name such as 'module:name', found a mapping"),
    ],
)
def test_a_mistake_inside_an_object_is_reported_with_its_keys(
    parts: Write, name: str, value: str, problem: str
) -> None:
    assert refused(f"model.{name}={value}") == [f"model.{name}{problem}"]


def test_all_mistakes_are_reported_at_once_with_file_and_line(parts: Write) -> None:
    parts(
        "run.yaml",
        """\
        model:
          type: parts:Wrap
          backbone:
            type: parts:Net
            widht: 8
          heads:
            - {type: Linear, in_features: 2}
          anything: {a: [{type: "os:system", command: "touch hacked"}]}
        train:
          dataloader:
            dataset: {type: "parts:Mapped", inner: {type: "parts:Data", m: 3}}
            collate_fn: {type: "parts:Collate", pads: 1}
          step: parts:loss_of
          max_epochs: 1
        custom_hooks: [{type: "parts:Watch", net: {type: Linear}}]
        """,
    )
    with pytest.raises(ConfigError) as caught:
        build_runner(load("run.yaml", ["model.backbone.scale=[1]"]))
    assert str(caught.value).splitlines() == [
        "run.yaml: 8 errors",
        "  run.yaml:5:5  model.backbone.widht: Net has no parameter 'widht'; did you mean 'width'?",
        "  run.yaml:7:7  model.heads[0]: Linear needs the parameter 'out_features'",
        "  run.yaml:8:19  model.anything.a[0].type: the module 'os' is refused: it is neither next to the config nor "
        "under the working directory; if you trust it, add --allow os",
        "  run.yaml:11:65  train.dataloader.dataset.inner.m: Data has no parameter 'm'; available: n, type",
        "  run.yaml:12:41  train.dataloader.collate_fn.pads: Collate has no parameter 'pads'; did you mean 'pad'?",
        "  run.yaml:15:38  custom_hooks[0].net: Linear needs the parameter 'in_features'",
        "  run.yaml:15:38  custom_hooks[0].net: Linear needs the parameter 'out_features'",
        "  override 'model.backbone.scale=[1]'  model.backbone.scale: the list is too short: item 1 is missing",
    ]
    assert not Path("hacked").exists()


def test_objects_are_built_once_and_the_innermost_first(parts: Write) -> None:
    inner = f'{{type: "parts:Wrap", backbone: {NET}, heads: [{{type: "parts:Net", width: 4}}]}}'
    build(f"model.backbone={inner}", 'model.anything={type: "parts:Net", width: 5}')
    assert sys.modules["parts"].MADE == [("Net", 3), ("Net", 4), ("Wrap",), ("Net", 5), ("Wrap",)]


def test_a_nested_model_has_the_weights_of_the_seed(parts: Write) -> None:
    def weight(*overrides: str) -> torch.Tensor:
        return build(f"model.backbone={NET}", *overrides).model.get_parameter("net.inner.weight")

    first = weight()
    torch.rand(5)
    assert torch.equal(weight(), first)
    assert not torch.equal(weight("seed=1"), first)


def test_a_constructor_that_fails_is_reported_with_its_own_keys(parts: Write) -> None:
    def failure(*overrides: str) -> str:
        with pytest.raises(ConfigError) as caught:
            build(*overrides)
        return str(caught.value).rpartition("' ")[2]

    assert failure('model.heads=[ReLU, {type: "parts:Net", width: 0}]') == (
        "model.heads[1]: Net(...) failed: ValueError: width must be positive"
    )
    assert failure('model.backbone={type: "parts:not_a_net"}') == (
        "model.backbone: expected a Module, but this creates a int"
    )
    hook = f"custom_hooks=[{{type: 'parts:Watch', net: {NET}}}]"
    assert failure(hook, "custom_hooks.0.net.width=0") == (
        "custom_hooks[0].net: Net(...) failed: ValueError: width must be positive "
        "(override 'custom_hooks.0.net.width=0')"
    )


def test_bases_references_and_overrides_reach_nested_objects(parts: Write) -> None:
    parts(
        "base.yaml",
        """\
        model: {type: "parts:Wrap", backbone: {type: "parts:Net", width: 4}, flip: {type: "parts:Flip", p: 0.1}}
        train: {dataloader: {dataset: {type: "parts:Data"}}, step: "parts:loss_of", max_epochs: 1}
        optim: {optimizer: {type: SGD}}
        """,
    )
    parts(
        "run.yaml",
        """\
        _base_: base.yaml
        model:
          backbone: {_delete_: true, type: Linear, in_features: 4, out_features: "${model.count}"}
          flip: {p: 0.2}
          anything: ${model.flip}
          count: 3
        """,
    )
    model: Any = build_runner(load("run.yaml", ["model.flip.p=0.3"])).model
    assert repr(model.net) == "Linear(in_features=4, out_features=3, bias=True)"
    assert (model.given["flip"].p, model.given["anything"].p) == (0.3, 0.3)
    assert model.given["flip"] is not model.given["anything"]  # two places, two objects


def test_datasets_wrap_datasets_and_take_transforms(parts: Write) -> None:
    dataset = (
        '{type: "parts:Mapped", inner: {type: "parts:Mapped", inner: "parts:Data"}, transform: {type: "parts:Flip"}, '
        'more: [{type: "parts:Data", n: 3}]}'
    )
    loader: Any = build(f"train.dataloader.dataset={dataset}").train_loop.dataloader
    assert loader.dataset[2][0].tolist() == [-2.0] * 4
    assert (len(loader.dataset.inner.inner), [len(each) for each in loader.dataset.more]) == (8, [3])


@pytest.mark.parametrize("kind", ["", "type: DataLoader, ", "type: ResumableLoader, "])
@pytest.mark.parametrize(
    ("value", "made"),
    [
        ("{type: 'parts:Collate', pad: 1}", "Collate"),
        ("{type: 'parts:collate', pad: 1}", "partial"),
        ("'parts:collate'", "function"),
    ],
)
def test_a_collate_function_is_an_object_or_a_function_with_parameters(
    parts: Write, kind: str, value: str, made: str
) -> None:
    dataset = "dataset: {type: 'parts:Data'}"
    loader: Any = build(f"train.dataloader={{{kind}{dataset}, collate_fn: {value}}}").train_loop.dataloader
    found = loader.collate_fn if kind == "type: DataLoader, " else loader.inner.dataset.collate
    assert type(found).__name__ == made


def test_a_collate_function_is_not_a_plain_mapping(parts: Write) -> None:
    override = "train.dataloader.collate_fn={_plain_: true, type: x}"
    assert refused(override) == [
        "train.dataloader.collate_fn._plain_: a collate_fn must be something to call, not a mapping"
    ]


def test_samplers_get_the_dataset_of_their_loader(parts: Write) -> None:
    def batches(sampler: str) -> list[list[float]]:
        loader = f"train.dataloader={{type: DataLoader, dataset: {{type: 'parts:Data'}}, {sampler}}}"
        return [x[:, 0].tolist() for x, _ in build(loader).train_loop.dataloader]

    every = "{type: 'parts:Every', step: 3}"
    assert batches(f"sampler: {every}, batch_size: 2") == [[0, 3], [6]]
    assert batches(f"batch_sampler: {{type: BatchSampler, sampler: {every}, batch_size: 2, drop_last: true}}") == [
        [0, 3]
    ]
    assert batches("sampler: {type: SubsetRandomSampler, indices: [5]}") == [[5]]
    assert batches("sampler: SequentialSampler, batch_size: 8") == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert batches("sampler: {type: SequentialSampler, data_source: {type: 'parts:Data', n: 2}}") == [[0], [1]]


def test_metrics_contain_metrics(parts: Write) -> None:
    accuracy = "{type: MulticlassAccuracy, num_classes: 3}"
    runner = build(
        "val={dataloader: {dataset: {type: 'parts:Data'}}, step: 'parts:predict'}",
        f"val.metrics.all={{type: MetricCollection, metrics: {{acc: {accuracy}, f1: {{type: BinaryF1Score}}}}}}",
        f"val.metrics.listed={{type: MetricCollection, metrics: [{accuracy}]}}",
        f"val.metrics.range={{type: MinMaxMetric, base_metric: {accuracy}}}",
    )
    metrics = runner.val_loops[""].metrics
    assert {name: repr(metric).split("(")[0] for name, metric in metrics._metrics.items()} == {
        "all": "MetricCollection",
        "listed": "MetricCollection",
        "range": "MinMaxMetric",
    }
    assert list(metrics._metrics["all"]) == ["acc", "f1"]


def test_hooks_and_writers_take_objects(parts: Write) -> None:
    runner = build(
        f"custom_hooks=[{{type: 'parts:Watch', net: {NET}, transforms: [{FLIP}, 'parts:scale'], priority: LOW}}]",
        "writers=[{type: 'parts:Forward', to: {type: jsonl}}, {type: 'parts:Forward', to: memory}]",
    )
    (hook,) = [entry.hook for entry in runner.plan if entry.name == "Watch"]
    assert described(hook.net) == "Net(3)"
    assert described(hook.transforms) == ["Flip(1.0)", "scale itself"]


def test_the_items_of_a_variadic_parameter_are_a_list(parts: Write) -> None:
    linear = "{type: Linear, in_features: 4, out_features: 3}"
    model = build(f"model={{type: Sequential, args: [{linear}, {{type: ReLU}}]}}").model
    assert [type(layer).__name__ for layer in model.children()] == ["Linear", "ReLU"]
    assert refused("model={type: Sequential, args: 3}") == ["model.args: expected a list, found 3"]


def test_a_nested_object_can_be_trained_and_resumed(parts: Write) -> None:
    changes = (f"model.backbone={NET}", "train.dataloader.dataset={type: 'parts:Mapped', inner: {type: 'parts:Data'}}")
    build(*changes).train()
    resumed = build(*changes, "train.max_epochs=2", resume=True)
    resumed.train()
    assert (resumed.epoch, resumed.iter) == (2, 4)


DOCUMENTED = """
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.utils.data import Dataset


class Net(nn.Module):
    def __init__(self, width: int, head=None):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width))
        self.head = head

    def forward(self, x):
        return self.layers(x)


class Classifier(nn.Module):
    def __init__(self, backbone: nn.Module, heads: Sequence[nn.Module]):
        super().__init__()
        self.layers = nn.Sequential(backbone, *heads)

    def forward(self, x):
        return self.layers(x)


class Augmented(Dataset):
    def __init__(self, inner: Dataset, transform=None):
        self.inner, self.transform = inner, transform

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        image, label = self.inner[index]
        return self.transform(image), label


class Noise:
    def __init__(self, scale: float):
        self.scale = scale

    def __call__(self, image):
        return image + self.scale * torch.randn_like(image)


def stack(samples, pad):
    return torch.stack([image for image, _ in samples]), torch.stack([label for _, label in samples])
"""


def test_the_documented_examples_work(write: Write) -> None:
    write("mynet.py", DOCUMENTED)
    page = (Path(__file__).parents[2] / "docs" / "config.md").read_text(encoding="utf-8")
    whole, plain = [block.partition("```")[0] for block in page.split("```yaml\n") if '"mynet:' in block][1:3]
    assert page.count("```yaml") == 3
    write("run.yaml", whole)
    runner = build_runner(load("run.yaml", ["train.max_epochs=1", "train.limit_batches=2"]), quiet=True)
    runner.train()
    assert (runner.iter, runner.train_loop.length, list(runner.val())) == (
        2,
        2,
        ["range/raw", "range/max", "range/min"],
    )
    write("plain.yaml", plain)
    model: Any = build_runner(load("plain.yaml", ["model.width=3"])).model
    assert model.head == {"type": "linear", "width": 8}


# -- what a config may name


@pytest.mark.parametrize(
    "place", ["backbone={}", "anything={}", "anything=[{}]", "anything={{a: {}}}", "cfg={{a: {}}}", "function={}"]
)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("os:system", "the module 'os' is refused: "),
        ("subprocess:Popen", "the module 'subprocess' is refused: "),
        ("parts:system", "'parts:system' is refused: it is posix.system, which is not defined in "),
        ("torch.utils.collect_env:run", "'torch.utils.collect_env:run' is refused: the "),
        ("torch:load", "'torch:load' is refused: the "),
        ("hookline.common.files:os.system", "'hookline.common.files:os.system' is refused: 'system' is inside "),
        ("parts:Net.__init__", "'parts:Net.__init__' is refused: a config cannot use names that begin with an "),
    ],
)
def test_the_rules_of_names_hold_at_every_depth(parts: Write, place: str, name: str, message: str) -> None:
    forced = ", _plain_: false" if place.startswith("cfg") else ""
    (problem,) = refused("model." + place.format(f"{{type: '{name}', command: touch hacked{forced}}}"))
    assert problem.partition(".type: ")[2].startswith(message)


def test_torch_provides_nested_classes_of_all_kinds_but_nothing_else(parts: Write) -> None:
    assert repr(given("anything", "{type: 'torch.nn:ReLU'}")) == "ReLU()"
    assert type(given("anything", "{type: 'torch.utils.data:RandomSampler', data_source: [1]}")).__name__ == (
        "RandomSampler"
    )
    assert refused("model.anything={type: 'torch.utils.data:default_collate', batch: [1]}") == [
        "model.anything.type: 'torch.utils.data:default_collate' is refused: the object must be a model, a dataset, a "
        "sampler, a metric, ... if it comes from torch; if you trust it, add --allow torch.utils.data"
    ]
    assert refused("model.backbone={type: 'torch.utils.data:RandomSampler', data_source: [1]}") == [
        "model.backbone.type: 'torch.utils.data:RandomSampler' is refused: the model must be a subclass of "
        "torch.nn.Module if it comes from torch; if you trust it, add --allow torch.utils.data"
    ]


def test_the_part_around_decides_about_short_names(parts: Write) -> None:
    assert repr(given("anything", "{type: ReLU}")) == "ReLU()"
    assert refused("train.dataloader.dataset={type: 'parts:Mapped', inner: 'parts:Data', transform: {type: ReLU}}") == [
        "train.dataloader.dataset.transform.type: unknown dataset 'ReLU'; for an object of another kind, write "
        "'module:Name'; for a plain mapping, add _plain_: true"
    ]


def test_objects_inside_one_another_have_a_limit(parts: Write) -> None:
    value = NET
    for _ in range(40):
        value = f'{{type: "parts:Wrap", backbone: {value}}}'
    place = "model" + ".backbone" * 31
    assert refused(f"model={value}") == [f"{place}: more than 30 objects inside one another; this is not a config"]


def test_a_part_with_its_own_place_is_always_built(parts: Write) -> None:
    assert refused("model._plain_=true", "custom_hooks=[{type: 'parts:Watch', net: ReLU, _plain_: true}]") == [
        "custom_hooks[0]._plain_: _plain_ has no effect here: Watch is always built",
        "model._plain_: _plain_ has no effect here: Wrap is always built",
    ]
