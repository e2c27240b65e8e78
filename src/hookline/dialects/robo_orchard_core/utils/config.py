"""Configs: pydantic models that make the object they describe, and go to and from JSON, YAML and TOML.

    class MyHookConfig(ClassConfig[MyHook]):
        class_type: type[MyHook] = MyHook
        log_step_freq: int = 5

    hook = MyHookConfig(log_step_freq=10)()
    MyHookConfig.from_str(MyHookConfig().to_str(format="toml"), format="toml")

A text has its class under `__config_type__`. What a text can choose is said in `class_names.py`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationInfo, model_serializer, model_validator
from pydantic_core.core_schema import SerializationInfo, SerializerFunctionWrapHandler  # noqa: TC002  # pydantic looks

from hookline.dialects.robo_orchard_core.refusals import SettingTypeError, SettingValueError
from hookline.dialects.robo_orchard_core.utils import config_text
from hookline.dialects.robo_orchard_core.utils.class_fields import found_in
from hookline.dialects.robo_orchard_core.utils.class_names import find_class, name_of
from hookline.errors import nearest

__all__ = [
    "CallableConfig",
    "CallableType",
    "ClassConfig",
    "ClassInitFromConfigMixin",
    "ClassType",
    "ClassType_co",
    "Config",
    "ConfigInstanceOf",
    "load_config_class",
    "load_from",
]

T_co = TypeVar("T_co", covariant=True)
ConfigT = TypeVar("ConfigT", bound="Config")
Format = Literal["json", "toml", "yaml"]

#: `ClassType[MyHook]` is `type[MyHook]`: every field that holds a class is written as its name.
ClassType = type[T_co]
ClassType_co = type[T_co]
CallableType = Callable[..., Any]
#: `ConfigInstanceOf[MyConfig]` is `MyConfig`: a subclass is written, and read back, as what it is.
ConfigInstanceOf = typing.Annotated[ConfigT, "any subclass"]

TYPE_KEY = "__config_type__"
#: What validators are told by those who read a text: the modules that the caller trusts.
ALLOW = "hookline_allow"
TYPED = "hookline_types"


class Config(BaseModel):
    """A config. Wrong, missing and unknown fields are refused; `__post_init__` may check what fields mean together."""

    model_config = ConfigDict(
        arbitrary_types_allowed=True,
        protected_namespaces=(),
        extra="forbid",
        ser_json_inf_nan="constants",
        populate_by_name=True,
    )
    #: Whether its texts have no `__config_type__`.
    __exclude_config_type__: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Called when all fields are there."""

    def model_post_init(self, context: Any, /) -> None:
        """What pydantic calls it."""
        self.__post_init__()

    @model_validator(mode="wrap")
    @classmethod
    def _choose_class(cls, data: Any, make: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if not isinstance(data, dict):
            return make(data)
        allow = (info.context or {}).get(ALLOW, ())
        if TYPE_KEY in data:
            data = dict(data)
            named = find_class(str(data.pop(TYPE_KEY)), cls, allow)
            if named is not cls:
                return typing.cast("Self", named.model_validate(data, context=info.context))  # type: ignore[attr-defined]
        _refuse_misspelt(cls, data)
        return make(_with_classes(cls, data, allow))

    @model_serializer(mode="wrap")
    def _with_type(self, write: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        data: dict[str, Any] = write(self)
        if self.__exclude_config_type__ or not (info.context or {}).get(TYPED):
            return data
        return {TYPE_KEY: name_of(type(self)), **data}

    # -- as data and as text

    def to_dict(
        self, mode: Literal["python", "json"] = "python", include_config_type: bool = False, **options: Any
    ) -> dict[str, Any]:
        """The fields as a dict; in mode `json`, of plain data."""
        return typing.cast(
            "dict[str, Any]",
            self.__pydantic_serializer__.to_python(
                self,
                mode=mode,
                context={TYPED: include_config_type},
                fallback=name_of if mode == "json" else None,
                serialize_as_any=True,
                **options,
            ),
        )

    def to_str(
        self, format: Format = "json", indent: int | None = None, include_config_type: bool = True, **options: Any
    ) -> str:
        """The config as JSON, YAML or TOML, with its class under `__config_type__`."""
        return config_text.write(self.to_dict("json", include_config_type, **options), format, indent)

    @classmethod
    def from_dict(cls, data: dict[str, Any], allow: str | Iterable[str] = ()) -> Self:
        """A config out of a dict; the dict stays as it is."""
        trusted = (allow,) if isinstance(allow, str) else tuple(allow)
        return cls.model_validate(data, context={ALLOW: trusted})

    @classmethod
    def from_str(cls, data: str, format: Format = "json", allow: str | Iterable[str] = ()) -> Self:
        """A config out of a text: of this class, or of the subclass that the text names.

        Args:
            data: The text.
            format: `json`, `yaml` or `toml`.
            allow: Modules (or one) that the text may name functions, or classes of any kind, from; they are imported.
        """
        return cls.from_dict(config_text.read(data, format), allow)

    def save(self, path: str | Path, indent: int = 2, **options: Any) -> None:
        """Write it to a file, in the format of its ending."""
        text = self.to_str(typing.cast("Format", config_text.format_of(path)), indent, **options)
        Path(path).write_text(text, encoding="utf-8")

    @staticmethod
    def load(path: str | Path, ensure_type: type[ConfigT] | None = None, allow: str | Iterable[str] = ()) -> Any:
        """Read a file that `save` has written; of this type, if one is given, or a subclass."""
        return load_from(path, ensure_type, allow)

    # -- copies

    def replace(self, **fields: Any) -> Self:
        """A copy with other values, checked as all values are."""
        names = _names(type(self))
        given = {names.get(name, name): value for name, value in fields.items()}
        return type(self).model_validate({name: getattr(self, name) for name in type(self).model_fields} | given)

    def content_equal(self, other: Config) -> bool:
        """Whether the other one would be written as the same text."""
        return self.to_str() == other.to_str()


class ClassInitFromConfigMixin:
    """Marks a class whose constructor takes the config itself, and not its fields one by one."""

    InitFromConfig: bool = True


class ClassConfig(Config, Generic[T_co]):
    """A config that makes an object: calling it does."""

    class_type: type[T_co]

    def __call__(self, *args: Any, **kwargs: Any) -> T_co:
        """Make the object; keywords take the place of fields."""
        if inspect.isabstract(self.class_type):
            raise SettingTypeError(_about_abstract(type(self).__name__, self.class_type))
        if getattr(self.class_type, "InitFromConfig", False):
            return self.create_instance_by_cfg(*args, **kwargs)
        return self.create_instance_by_kwargs(*args, **kwargs)

    def create_instance_by_kwargs(self, *args: Any, **kwargs: Any) -> T_co:
        """With the fields as keywords."""
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "class_type"}
        return self.class_type(*args, **(fields | kwargs))

    def create_instance_by_cfg(self, *args: Any, **kwargs: Any) -> T_co:
        """With a copy of this config as the first argument."""
        own = {name: value for name, value in kwargs.items() if name in _names(type(self))}
        rest = {name: value for name, value in kwargs.items() if name not in own}
        make: Callable[..., T_co] = self.class_type
        return make(self.replace(**own), *args, **rest)


def _about_abstract(config: str, cls: Any) -> str:
    missing = " and ".join(sorted(cls.__abstractmethods__))
    return (
        f"{config} cannot make a {cls.__name__}, which leaves {missing} to classes that are derived from it; write one "
        f"that has {missing}, and name it: {config}(class_type=My{cls.__name__}, ...)"
    )


class CallableConfig(Config, Generic[T_co]):
    """A config that calls a function with its fields."""

    func: Callable[..., T_co]

    def __call__(self, **kwargs: Any) -> T_co:
        """Call it; keywords take the place of fields."""
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "func"}
        return self.func(**(fields | kwargs))


def load_config_class(data: str | dict[str, Any], format: Format = "json", allow: str | Iterable[str] = ()) -> Any:
    """A config of whatever class the data names."""
    return _of_named_class(config_text.read(data, format) if isinstance(data, str) else data, allow)


def load_from(path: str | Path, ensure_type: type[ConfigT] | None = None, allow: str | Iterable[str] = ()) -> Any:
    """A config from a file, of whatever class it names; of this type, if one is given, or a subclass."""
    data = config_text.read_file(path)
    try:
        found = _of_named_class(data, allow)
    except ValueError as error:
        error.add_note(f"in {path}")
        raise
    if ensure_type is not None and not isinstance(found, ensure_type):
        raise SettingTypeError(f"{path} holds a {type(found).__name__}, and a {ensure_type.__name__} is expected")
    return found


def _of_named_class(data: Any, allow: str | Iterable[str]) -> Any:
    if not isinstance(data, dict) or TYPE_KEY not in data:
        raise SettingValueError(f"this says no class under '{TYPE_KEY}'; read it with the from_str of its class")
    return Config.from_dict(data, allow)


def _refuse_misspelt(cls: type[Config], data: dict[str, Any]) -> None:
    """Say which field an unknown one nearly is; pydantic refuses it, too, but only says that it is not permitted."""
    if cls.model_config.get("extra") != "forbid":
        return
    known = _names(cls)
    for name in data:
        best = nearest(name, known, 0.8) if isinstance(name, str) and name not in known else None
        if best is not None:
            raise SettingValueError(f"{cls.__name__} has no field '{name}'; did you mean '{best}'?")


def _names(cls: type[Config]) -> dict[str, str]:
    """The fields by all their names: their own ones, and other ones that they have for those who write a config."""
    found: dict[str, str] = {}
    for own, field in cls.model_fields.items():
        found |= {name: own for name in (field.alias, field.validation_alias) if isinstance(name, str)}
    return found | {own: own for own in cls.model_fields}


def _with_classes(cls: type[Config], data: dict[str, Any], allow: Iterable[str]) -> dict[str, Any]:
    """The data with classes and functions in the place of their names, where a field holds such."""
    names = _names(cls)
    return {
        name: found_in(value, cls.model_fields[names[name]].annotation, allow) if name in names else value
        for name, value in data.items()
    }
