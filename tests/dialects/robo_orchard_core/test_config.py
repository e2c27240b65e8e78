"""Configs: checking them, creating their objects, and writing and reading JSON, YAML and TOML."""

from __future__ import annotations

import math
import sys
from collections import defaultdict, deque, namedtuple
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import pytest
from pydantic import Field, SkipValidation, ValidationError

from hookline.dialects.robo_orchard_core.utils.cli import SettingConfig
from hookline.dialects.robo_orchard_core.utils.config import (
    CallableConfig,
    ClassConfig,
    ClassInitFromConfigMixin,
    ClassType,
    Config,
    load_config_class,
    load_from,
)
from hookline.dialects.robo_orchard_core.utils.config_text import FORMATS
from hookline.errors import ConfigError

CHOSEN = "tests.dialects.robo_orchard_core.chosen"


class Fruit(ClassInitFromConfigMixin):
    def __init__(self, cfg: FruitConfig, place: str = "basket") -> None:
        self.cfg = cfg
        self.place = place


class Apple(Fruit): ...


class FruitConfig(ClassConfig[Fruit]):
    class_type: type[Fruit] = Fruit
    weight: int = 5
    colour: str | None = None
    ripe: bool = True

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise ValueError("a weight is not negative")


class AppleConfig(FruitConfig):
    class_type: ClassType[Fruit] = Apple
    kind: Literal["red", "green"] = "red"


class Tree(Config):
    fruit: FruitConfig
    more: tuple[FruitConfig, ...] = ()
    name: str = "oak"


class Pair:
    def __init__(self, left: int, right: int) -> None:
        self.sum = left + right


class PairConfig(ClassConfig[Pair]):
    class_type: type[Pair] = Pair
    left: int
    right: int = 2


T = TypeVar("T", bound=Fruit)


class OfAnyFruit(ClassConfig[T], Generic[T]):
    pass


# -- fields


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weight": "much"}, r"weight\n  Input should be a valid integer"),
        ({"bogus": 1}, r"bogus\n  Extra inputs are not permitted"),
        ({"wieght": 1}, r"FruitConfig has no field 'wieght'; did you mean 'weight'\?"),
        ({"class_type": int}, r"class_type\n  Input should be a subclass of Fruit"),
        ({"weight": -1}, "a weight is not negative"),
    ],
)
def test_wrong_and_unknown_fields_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        FruitConfig(**fields)


def test_a_missing_field_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"left\n  Field required"):
        PairConfig()  # type: ignore[call-arg]


# -- creating the object


def test_a_class_that_takes_its_config_gets_a_copy_of_it() -> None:
    cfg = AppleConfig(weight=3)
    made = cfg(weight=4, place="table")
    assert type(made) is Apple
    assert (made.cfg.weight, made.place, cfg.weight) == (4, "table", 3)
    assert cfg().cfg == cfg
    assert cfg().cfg is not cfg
    with pytest.raises(ValidationError, match="valid integer"):
        cfg(weight="much")


def test_another_class_gets_the_fields() -> None:
    assert PairConfig(left=1)().sum == 3
    assert PairConfig(left=1)(right=10).sum == 11


def test_a_function_is_called_with_the_fields() -> None:
    class Add(CallableConfig[int]):
        func: Callable[..., int] = lambda left, right: left + right
        left: int = 1
        right: int = 2

    assert (Add()(), Add()(right=5)) == (3, 6)


# -- to and from text


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "config",
    [
        FruitConfig(),
        AppleConfig(weight=0, colour="red: yes", kind="green"),
        Tree(fruit=AppleConfig(), more=(FruitConfig(ripe=False), AppleConfig(colour="no"))),
        PairConfig(left=-3),
    ],
    ids=["plain", "subclass", "nested", "other"],
)
def test_a_written_config_is_read_back(config: Config, format: Any) -> None:
    text = config.to_str(format=format)
    for reader in (type(config), Config):
        found = reader.from_str(text, format=format)
        assert found == config
        assert type(found) is type(config)
        assert found.content_equal(config)


class Numbers(Config):
    limit: float | None = 1.0
    any: Any = None
    more: dict[str, list[float]] | None = None


class NumberSettings(SettingConfig):
    limit: float | None = 1.0


@pytest.mark.parametrize("format", FORMATS)
def test_numbers_without_digits_are_read_back(format: Any) -> None:
    numbers = Numbers(limit=math.inf, any=-math.inf, more={"a": [math.inf, -math.inf, 0.5]})
    assert Numbers.from_str(numbers.to_str(format), format) == numbers
    settings = NumberSettings(limit=-math.inf)
    assert NumberSettings.from_str(settings.to_str(format), format) == settings
    nan = Numbers.from_str(Numbers(limit=math.nan, any=math.nan).to_str(format), format)
    assert (str(nan.limit), str(nan.any)) == ("nan", "nan")


class Classes(Config):
    many: list[type[Fruit]] = []  # noqa: RUF012  # pydantic copies it
    by_name: dict[str, type[Fruit]] | None = None
    pair: tuple[str, type[Fruit]] = ("tests:Fruit", Fruit)
    row: tuple[type[Fruit], ...] = ()
    deep: dict[str, list[type[Fruit] | None]] | None = None
    texts: list[str] = []  # noqa: RUF012


@pytest.mark.parametrize("format", FORMATS)
def test_classes_in_lists_and_dicts_are_read_back(format: Any) -> None:
    name = "tests.dialects.robo_orchard_core.test_config:Apple"
    config = Classes(
        many=[Apple, Fruit],
        by_name={"a": Apple},
        pair=(name, Apple),
        row=(Fruit, Apple),
        deep={"a": [None, Apple]},
        texts=[name],
    )
    assert Classes.from_str(config.to_str(format), format) == config
    with pytest.raises(ValidationError, match="'tests:Pear' is not an imported Fruit or subclass of it"):
        Classes.from_dict({"deep": {"a": ["tests:Pear"]}})
    with pytest.raises(ValidationError, match="many.0\n  Input should be a subclass of Fruit"):
        Classes.from_dict({"many": [3]})


def test_a_container_without_names_remains_the_same_object() -> None:
    class Kept(Config):
        items: Sequence[float]
        others: SkipValidation[dict[str, int]]

    others = defaultdict(int, a=3)
    kept = Kept(items=deque([1.0], maxlen=2), others=others)
    assert (kept.items, kept.others is others) == (deque([1.0], maxlen=2), True)
    point = namedtuple("point", "x y")
    assert Classes.from_dict({"row": point(Fruit, f"{__name__}:Apple")}).row == (Fruit, Apple)


class Called(ClassConfig[Fruit]):
    class_type: type[Fruit] = Field(default=Fruit, alias="class")
    weight: int = Field(default=1, alias="heavy")
    size: int = Field(default=1, validation_alias="big")


@pytest.mark.parametrize("format", FORMATS)
def test_a_field_with_another_name_is_read_back_and_replaced(format: Any) -> None:
    called = Called.model_validate({"class": Apple, "heavy": 3, "big": 4})
    assert Called.from_str(called.to_str(format), format) == called
    assert Called.from_str(called.to_str(format, by_alias=True), format) == called
    assert called.replace() == called
    for changed in (called.replace(weight=5), called.replace(heavy=5)):
        assert changed.to_dict() == {"class_type": Apple, "weight": 5, "size": 4}
    made = called(heavy=6, place="tree")
    assert (type(made), made.cfg.to_dict()["weight"], made.place) == (Apple, 6, "tree")


def test_the_three_forms_of_a_config() -> None:
    config = FruitConfig(weight=7)
    assert config.to_str() == (
        '{"__config_type__":"tests.dialects.robo_orchard_core.test_config:FruitConfig",'
        '"class_type":"tests.dialects.robo_orchard_core.test_config:Fruit","weight":7,"colour":null,"ripe":true}'
    )
    assert config.to_str("yaml", include_config_type=False) == (
        "class_type: tests.dialects.robo_orchard_core.test_config:Fruit\nweight: 7\ncolour:\nripe: true\n"
    )
    assert config.to_str("toml", include_config_type=False) == (
        'class_type = "tests.dialects.robo_orchard_core.test_config:Fruit"\nweight = 7\ncolour = "null"\nripe = true\n'
    )
    assert config.to_dict() == {"class_type": Fruit, "weight": 7, "colour": None, "ripe": True}


def test_reading_a_dict_does_not_change_it() -> None:
    data = FruitConfig().to_dict("json", include_config_type=True)
    before = dict(data)
    assert FruitConfig.from_dict(data) == FruitConfig()
    assert data == before


@pytest.mark.parametrize("ending", ["json", "yaml", "yml", "toml"])
def test_files_are_of_the_format_of_their_ending(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"fruit.{ending}"
    AppleConfig(weight=2).save(str(path))
    assert Config.load(str(path)) == AppleConfig(weight=2)
    assert load_from(path, ensure_type=FruitConfig) == AppleConfig(weight=2)
    with pytest.raises(TypeError, match="contains a AppleConfig, but a Tree is expected$"):
        Config.load(path, ensure_type=Tree)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: FruitConfig().save("fruit.txt"), r"^fruit.txt: a config must be a .json, .yaml, .yml or .toml file$"),
        (lambda: FruitConfig().to_str("xml"), "^unknown config format 'xml'; "),  # type: ignore[arg-type]
        (lambda: FruitConfig.from_str("{", "json"), "^not valid JSON: "),
        (lambda: FruitConfig.from_str("a = ", "toml"), "^not valid TOML: "),
        (lambda: FruitConfig.from_str("a: [", "yaml"), "^config:1:5: invalid YAML: "),
        (lambda: FruitConfig(colour="null").to_str("toml"), "^the text 'null' cannot be written as TOML"),
        (lambda: load_config_class("{}"), "^the data names no class under '__config_type__'; "),
    ],
)
def test_values_that_are_not_configs_are_refused(action: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        action()
    assert isinstance(caught.value, ConfigError)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.json", b"{", "bad.json: not valid JSON: Expecting property name enclosed in double quotes: line 1"),
        ("bad.toml", b"a=", "bad.toml: not valid TOML: Invalid value (at "),
        ("bad.yaml", b"a: [", "bad.yaml:1:5: invalid YAML: "),
        ("bad.json", b"\xff", "bad.json: not valid UTF-8 text: "),
        (
            "twice.json",
            b'{"__config_type__": "x", "more": {"left": 1, "right": 2, "left": 3}}',
            "twice.json: not valid JSON: the key 'left' is given twice, as 1 and as 3",
        ),
    ],
)
def test_a_broken_file_is_named(
    name: str, content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        Config.load(name)
    assert str(caught.value).startswith(message)


def test_a_file_with_wrong_fields_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fruit.json"
    path.write_text(FruitConfig(weight=7).to_str().replace("7", '"heavy"'), encoding="utf-8")
    with pytest.raises(ValidationError) as caught:
        Config.load(path)
    assert caught.value.__notes__ == [f"in {path}"]
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="^the data names no class under '__config_type__'; ") as refused:
        Config.load(path)
    assert refused.value.__notes__ == [f"in {path}"]


def test_yaml_makes_no_objects() -> None:
    with pytest.raises(ConfigError, match="tag"):
        FruitConfig.from_str("weight: !!python/object/apply:os.system ['true']\n", "yaml")


# -- the classes that a text may choose


def text_for(config_type: str, **fields: str) -> dict[str, Any]:
    return {"__config_type__": config_type, **fields}


@pytest.mark.parametrize(
    "data",
    [
        text_for("subprocess:Popen"),
        text_for("os:system"),
        text_for("tests.dialects.robo_orchard_core.test_config:PairConfig"),
        {"class_type": "subprocess:Popen"},
        {"class_type": "builtins:object"},
        {"class_type": "tests.dialects.robo_orchard_core.test_config:Pair"},
        {"class_type": "tests.dialects.robo_orchard_core.test_config:Apple.__init__"},
    ],
    ids=lambda data: next(iter(data.values())),
)
def test_a_text_chooses_only_among_subclasses_of_what_is_expected(data: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="is not an imported "):
        FruitConfig.from_dict(data)


def test_a_text_imports_nothing() -> None:
    sys.modules.pop(CHOSEN, None)
    for data in (text_for(f"{CHOSEN}:Loud"), {"class_type": f"{CHOSEN}:Loud"}):
        with pytest.raises(ValidationError, match=rf"import {CHOSEN} first, or pass allow=\['{CHOSEN}'\]"):
            FruitConfig.from_dict(data)
    assert CHOSEN not in sys.modules


def test_a_subclass_that_is_imported_is_found() -> None:
    name = "tests.dialects.robo_orchard_core.test_config:Apple"
    assert FruitConfig.from_dict({"class_type": name}).class_type is Apple
    assert FruitConfig(class_type=name).class_type is Apple  # type: ignore[arg-type]
    assert OfAnyFruit[Fruit].from_dict({"class_type": name}).class_type is Apple


def test_a_class_inside_a_function_is_found_as_well() -> None:
    class Local(Fruit): ...

    class LocalConfig(FruitConfig):
        class_type: type[Fruit] = Local

    assert Config.from_str(LocalConfig().to_str()) == LocalConfig()


class Anything(Config):
    what: type = int
    callback: Callable[..., Any] | None = None


@pytest.mark.parametrize("field", ["what", "callback"])
def test_where_anything_would_do_the_caller_says_which_modules_are_trusted(field: str) -> None:
    wanted = f"{CHOSEN}:{'Loud.Inner' if field == 'what' else 'evaluate'}"
    sys.modules.pop(CHOSEN, None)
    with pytest.raises(ValidationError, match="would decide which code is executed, which a file may not do"):
        Anything.from_dict({field: wanted})
    with pytest.raises(ValidationError, match="would decide which code is executed, which a file may not do"):
        Anything.from_dict({field: wanted}, allow=["os"])
    assert CHOSEN not in sys.modules
    found = Anything.from_dict({field: wanted}, allow=[CHOSEN])
    assert getattr(found, field) is (
        sys.modules[CHOSEN].Loud.Inner if field == "what" else sys.modules[CHOSEN].evaluate
    )
    assert Anything.from_str(found.to_str("yaml"), "yaml", allow=[CHOSEN, "builtins"]) == found
    with pytest.raises(ValidationError, match=f"{CHOSEN} has no 'nothing'"):
        Anything.from_dict({field: f"{CHOSEN}:nothing"}, allow=[CHOSEN])


@pytest.mark.parametrize("field", ["what", "callback"])
def test_one_module_that_is_trusted_may_be_given_as_text(field: str, tmp_path: Path) -> None:
    found = Anything.from_dict({"what": object, field: f"{CHOSEN}:Loud"}, allow=CHOSEN)
    assert getattr(found, field) is sys.modules[CHOSEN].Loud
    path, text = tmp_path / "anything.json", found.to_str().replace('"what":"builtins:object",', "")
    path.write_text(text, encoding="utf-8")
    loaded = Config.load(path, allow=CHOSEN)
    assert getattr(loaded, field) is sys.modules[CHOSEN].Loud


def test_an_object_without_a_name_in_a_module_is_not_written() -> None:
    with pytest.raises(ValueError, match="only a function at the top level of a module has a name to write"):
        Anything(callback=lambda: None).to_str()


def test_a_text_for_another_class_is_refused_with_a_suggestion() -> None:
    from hookline.dialects.robo_orchard_lab.pipeline.hooks import ClearCacheHookConfig, OptimizerHookConfig

    with pytest.raises(ValidationError) as refused:
        OptimizerHookConfig.from_str(ClearCacheHookConfig().to_str())
    assert (
        "'robo_orchard_lab.pipeline.hooks.memory:ClearCacheHookConfig' is not an imported OptimizerHookConfig or "
        "subclass of it; did you mean 'robo_orchard_lab.pipeline.hooks.optimizer:OptimizerHookConfig'?"
    ) in str(refused.value)


def test_names_of_the_original_mean_the_classes_here() -> None:
    text = '{"__config_type__": "robo_orchard_lab.pipeline.hooks.memory:ClearCacheHookConfig", "empty_cache_freq": 3}'
    found = Config.from_str(text)
    assert (type(found).__module__, type(found).__name__) == (
        "hookline.dialects.robo_orchard_lab.pipeline.hooks.memory",
        "ClearCacheHookConfig",
    )
    assert found.to_str().startswith(
        '{"__config_type__":"robo_orchard_lab.pipeline.hooks.memory:ClearCacheHookConfig",'
        '"class_type":"robo_orchard_lab.pipeline.hooks.memory:ClearCacheHook",'
    )
