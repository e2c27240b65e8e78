"""Configs: pydantic models that create the object they describe, and that JSON, YAML and TOML can store.

    class MyHookConfig(ClassConfig[MyHook]):
        class_type: type[MyHook] = MyHook
        log_step_freq: int = 5

    hook = MyHookConfig(log_step_freq=10)()
    MyHookConfig.from_str(MyHookConfig().to_str(format="toml"), format="toml")

A text names its class under `__config_type__`. `class_names.py` explains which classes a text may choose.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationInfo, model_serializer, model_validator
from pydantic_core.core_schema import SerializationInfo, SerializerFunctionWrapHandler  # noqa: TC002  # used by pydantic

from hookline.dialects.errors import SettingTypeError, SettingValueError
from hookline.dialects.robo_orchard_core.utils import config_text
from hookline.dialects.robo_orchard_core.utils.class_fields import resolve_names
from hookline.dialects.robo_orchard_core.utils.class_names import find_class, qualified_name
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

#: `ClassType[MyHook]` is `type[MyHook]`. A class is written to a text as its name.
ClassType = type[T_co]
ClassType_co = type[T_co]
CallableType = Callable[..., Any]
#: `ConfigInstanceOf[MyConfig]` is `MyConfig`. A subclass keeps its own type when it is written and read back.
ConfigInstanceOf = typing.Annotated[ConfigT, "any subclass"]

TYPE_KEY = "__config_type__"
#: Keys of the pydantic context: the modules that the caller trusts, and whether to write `__config_type__`.
ALLOW = "hookline_allow"
TYPED = "hookline_types"


class Config(BaseModel):
    """A config. Wrong, missing and unknown fields are refused. `__post_init__` may check several fields together."""

    model_config = ConfigDict(
        arbitrary_types_allowed=True,
        protected_namespaces=(),
        extra="forbid",
        ser_json_inf_nan="constants",
        populate_by_name=True,
    )
    #: Whether to leave `__config_type__` out of its texts.
    __exclude_config_type__: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check or complete the config. Called when all fields are set."""

    def model_post_init(self, context: Any, /) -> None:
        """Call `__post_init__`; this is the method that pydantic calls."""
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
        _refuse_misspelled(cls, data)
        return make(_resolve_classes(cls, data, allow))

    @model_serializer(mode="wrap")
    def _with_type(self, write: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        data: dict[str, Any] = write(self)
        if self.__exclude_config_type__ or not (info.context or {}).get(TYPED):
            return data
        return {TYPE_KEY: qualified_name(type(self)), **data}

    # -- to and from data and text

    def to_dict(
        self, mode: Literal["python", "json"] = "python", include_config_type: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Return the fields as a dict; with mode `json`, as plain data."""
        return typing.cast(
            "dict[str, Any]",
            self.__pydantic_serializer__.to_python(
                self,
                mode=mode,
                context={TYPED: include_config_type},
                fallback=qualified_name if mode == "json" else None,
                serialize_as_any=True,
                **options,
            ),
        )

    def to_str(
        self, format: Format = "json", indent: int | None = None, include_config_type: bool = True, **options: Any
    ) -> str:
        """Return the config as JSON, YAML or TOML, with its class under `__config_type__`."""
        return config_text.write(self.to_dict("json", include_config_type, **options), format, indent)

    @classmethod
    def from_dict(cls, data: dict[str, Any], allow: str | Iterable[str] = ()) -> Self:
        """Create a config from a dict. The dict is not changed."""
        trusted = (allow,) if isinstance(allow, str) else tuple(allow)
        return cls.model_validate(data, context={ALLOW: trusted})

    @classmethod
    def from_str(cls, data: str, format: Format = "json", allow: str | Iterable[str] = ()) -> Self:
        """Create a config from a text, of this class or of the subclass that the text names.

        Args:
            data: The text.
            format: `json`, `yaml` or `toml`.
            allow: One or more modules from which the text may name functions and any classes. They are imported.
        """
        return cls.from_dict(config_text.read(data, format), allow)

    def save(self, path: str | Path, indent: int = 2, **options: Any) -> None:
        """Write the config to a file, in the format of the file extension."""
        text = self.to_str(typing.cast("Format", config_text.format_of(path)), indent, **options)
        Path(path).write_text(text, encoding="utf-8")

    @staticmethod
    def load(path: str | Path, ensure_type: type[ConfigT] | None = None, allow: str | Iterable[str] = ()) -> Any:
        """Read a file that `save` has written. With `ensure_type`, refuse a config that is not of this type."""
        return load_from(path, ensure_type, allow)

    # -- copies

    def replace(self, **fields: Any) -> Self:
        """Return a copy with other values, which are checked."""
        names = _field_names(type(self))
        given = {names.get(name, name): value for name, value in fields.items()}
        return type(self).model_validate({name: getattr(self, name) for name in type(self).model_fields} | given)

    def content_equal(self, other: Config) -> bool:
        """Return whether the other config would be written as the same text."""
        return self.to_str() == other.to_str()


class ClassInitFromConfigMixin:
    """A mixin for classes whose constructor takes the config itself, instead of its fields one by one."""

    InitFromConfig: bool = True


class ClassConfig(Config, Generic[T_co]):
    """A config that creates an object when it is called."""

    class_type: type[T_co]

    def __call__(self, *args: Any, **kwargs: Any) -> T_co:
        """Create the object. Keywords override fields."""
        if inspect.isabstract(self.class_type):
            raise SettingTypeError(_explain_abstract(type(self).__name__, self.class_type))
        if getattr(self.class_type, "InitFromConfig", False):
            return self.create_instance_by_cfg(*args, **kwargs)
        return self.create_instance_by_kwargs(*args, **kwargs)

    def create_instance_by_kwargs(self, *args: Any, **kwargs: Any) -> T_co:
        """Create the object with the fields as keywords."""
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "class_type"}
        return self.class_type(*args, **(fields | kwargs))

    def create_instance_by_cfg(self, *args: Any, **kwargs: Any) -> T_co:
        """Create the object with a copy of this config as the first argument."""
        own = {name: value for name, value in kwargs.items() if name in _field_names(type(self))}
        rest = {name: value for name, value in kwargs.items() if name not in own}
        make: Callable[..., T_co] = self.class_type
        return make(self.replace(**own), *args, **rest)


def _explain_abstract(config: str, cls: Any) -> str:
    missing = " and ".join(sorted(cls.__abstractmethods__))
    return (
        f"{config} cannot create a {cls.__name__}, because that is an abstract class without {missing}; write a "
        f"subclass that defines {missing}, and use it: {config}(class_type=My{cls.__name__}, ...)"
    )


class CallableConfig(Config, Generic[T_co]):
    """A config that calls a function with its fields."""

    func: Callable[..., T_co]

    def __call__(self, **kwargs: Any) -> T_co:
        """Call the function. Keywords override fields."""
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "func"}
        return self.func(**(fields | kwargs))


def load_config_class(data: str | dict[str, Any], format: Format = "json", allow: str | Iterable[str] = ()) -> Any:
    """Create a config of the class that the data names."""
    return _load_named_class(config_text.read(data, format) if isinstance(data, str) else data, allow)


def load_from(path: str | Path, ensure_type: type[ConfigT] | None = None, allow: str | Iterable[str] = ()) -> Any:
    """Read a config of the class that a file names. With `ensure_type`, refuse a config that is not of this type."""
    data = config_text.read_file(path)
    try:
        found = _load_named_class(data, allow)
    except ValueError as error:
        error.add_note(f"in {path}")
        raise
    if ensure_type is not None and not isinstance(found, ensure_type):
        raise SettingTypeError(f"{path} contains a {type(found).__name__}, but a {ensure_type.__name__} is expected")
    return found


def _load_named_class(data: Any, allow: str | Iterable[str]) -> Any:
    if not isinstance(data, dict) or TYPE_KEY not in data:
        raise SettingValueError(f"the data names no class under '{TYPE_KEY}'; read it with from_str of its class")
    return Config.from_dict(data, allow)


def _refuse_misspelled(cls: type[Config], data: dict[str, Any]) -> None:
    """Suggest the right name for a misspelled field. Pydantic would only say that it is not permitted."""
    if cls.model_config.get("extra") != "forbid":
        return
    known = _field_names(cls)
    for name in data:
        best = nearest(name, known, 0.8) if isinstance(name, str) and name not in known else None
        if best is not None:
            raise SettingValueError(f"{cls.__name__} has no field '{name}'; did you mean '{best}'?")


def _field_names(cls: type[Config]) -> dict[str, str]:
    """Map every name of a field, its own and its aliases, to the field."""
    found: dict[str, str] = {}
    for own, field in cls.model_fields.items():
        found |= {name: own for name in (field.alias, field.validation_alias) if isinstance(name, str)}
    return found | {own: own for own in cls.model_fields}


def _resolve_classes(cls: type[Config], data: dict[str, Any], allow: Iterable[str]) -> dict[str, Any]:
    """Return the data with names replaced by classes and functions, where a field expects these."""
    names = _field_names(cls)
    return {
        name: resolve_names(value, cls.model_fields[names[name]].annotation, allow) if name in names else value
        for name, value in data.items()
    }
