"""The JSON Schema of a config, with every registered hook and writer, so that editors can complete and check YAML.

A file in an editor is not yet a merged config: missing keys may be in its `_base_`, and `${...}` may replace any value.
So sections never require keys. Only list items do, because lists are not merged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hookline.config.annotations import NESTED_SCHEMA
from hookline.config.schema import Config
from hookline.config.signature import signature_of
from hookline.errors import ConfigError
from hookline.plan.hook import Priority
from hookline.plan.registry import DEFAULT_HOOKS, HOOKS, WRITERS, Registry

Schema = dict[str, Any]

_VALUE = {"$ref": "#/$defs/value"}
_OBJECT = {"$ref": "#/$defs/object"}
_REFERENCE = {"$ref": "#/$defs/reference"}
_FULL_NAME = r"^[^\W\d]\w*([.:][^\W\d]\w*)+$"

_SCHEDULE_PARAMETERS: Schema = {
    "length": {
        "anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}],
        "default": "auto",
        "description": "The number of steps, warmup included. 'auto' is the length of training.",
    },
    "end_factor": {
        "type": "number",
        "minimum": 0,
        "default": 0.0,
        "description": "The rate at the end, as a share of the base rate.",
    },
    "decay": {
        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "number", "minimum": 0, "exclusiveMaximum": 1}],
        "default": 0.2,
        "description": "The last steps, in which the rate falls: a number, or a share of the length (below 1).",
    },
    "decay_shape": {
        "enum": ["linear", "cosine", "sqrt"],
        "default": "linear",
        "description": "How the rate falls. 'sqrt' falls fast first.",
    },
}
#: The parameters of the built-in schedules, besides the parameters of all schedulers.
SCHEDULES = {
    "constant": ("length",),
    "cosine": ("length", "end_factor"),
    "linear": ("length", "end_factor"),
    "wsd": ("length", "decay", "end_factor", "decay_shape"),
}


def json_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of a config file.

    It includes the hooks and writers that are registered at this moment. `module:Name` accepts any parameters.
    """
    schema: Schema = _untag_unions(Config.model_json_schema(by_alias=True))
    definitions: Schema = schema["$defs"]
    _relax(schema)
    hooks = _add_definitions(HOOKS, "hook", definitions, _hook_extras())
    writers = _add_definitions(WRITERS, "writer", definitions, {})
    _add_schedules(definitions)
    properties = schema["properties"]
    properties["custom_hooks"]["items"] = {"anyOf": [*hooks, {"enum": list(HOOKS)}, _open_schema(_hook_extras())]}
    properties["writers"]["items"] = {"anyOf": [*writers, {"enum": list(WRITERS)}, _open_schema({})]}
    defaults = definitions["DefaultHooksSection"]["properties"]
    for key, name in DEFAULT_HOOKS.items():
        own = {"$ref": f"#/$defs/hook.{name}.default"}
        kinds = [own, *hooks, {"enum": list(HOOKS)}, _open_schema(_hook_extras()), {"type": "null"}]
        defaults[key] = {"anyOf": kinds, "description": defaults[key].get("description", "")}
    _open_to_objects(definitions)
    definitions["reference"] = {
        "type": "string",
        "pattern": r"\$\{|^\?\?\?$",
        "description": "A reference to another value, ${key.path} or ${oc.env:NAME,default}, or ???: must be set.",
    }
    properties["_base_"] = {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        "description": "Config files that this one is merged over, relative to it. Later files win.",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "hookline config",
        "anyOf": [{"required": ["_base_"]}, {"required": ["model"]}],
    }


def _untag_unions(schema: Any) -> Any:
    """Turn tagged unions into plain ones, because more than one alternative may match once keys are not required.

    A custom loader must keep its `type`, or it would match anything. Mappings by name also accept `_delete_`.
    """
    if isinstance(schema, list):
        return [_untag_unions(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {"anyOf" if key == "oneOf" else key: _untag_unions(item) for key, item in schema.items()}
    if isinstance(result.get("additionalProperties"), dict):
        result["properties"] = {"_delete_": {"type": "boolean"}}
    loader, part = {"$ref": "#/$defs/LoaderSection"}, {"$ref": "#/$defs/Part"}
    if result.get("anyOf") == [loader, part]:
        result["anyOf"] = [loader, {**part, "required": ["type"]}]
    return result


def _relax(schema: Schema) -> None:
    """Let sections omit keys that a base may provide, and let values be references."""
    for section in (schema, *schema["$defs"].values()):
        if "properties" not in section:
            continue
        section.pop("title", None)
        required = section.pop("required", [])
        if required == ["match"]:
            section["required"] = required
        section["properties"] = {key: _allow_reference(value) for key, value in section["properties"].items()}
        section["properties"]["_delete_"] = {
            "type": "boolean",
            "description": "Replace the value of a base instead of merging with it.",
        }


def _allow_reference(schema: Schema) -> Schema:
    """Return the schema of the same value or a reference. The description stays outside, where editors look for it."""
    about: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in about and key != "title"}
    if not inner or "items" in inner:
        return {**inner, **about}
    return {"anyOf": [*inner.pop("anyOf", []), *([inner] if inner else []), _REFERENCE], **about}


def _open_to_objects(definitions: Schema) -> None:
    """Describe the values that parameters can have: among others, objects, which have parameters themselves."""
    about = definitions["Part"]["properties"]["type"]
    inside: Schema = {
        "_plain_": {
            "anyOf": [{"type": "boolean"}, _REFERENCE],
            "description": "true: a mapping, even though it has a type. false: an object, even though it is in a dict.",
        },
        "_delete_": definitions["Part"]["properties"]["_delete_"],
    }
    definitions["value"] = {
        "properties": {"type": {"description": about["description"]}, **inside},
        "additionalProperties": _VALUE,
        "items": _VALUE,
        "if": {"required": ["_plain_"], "properties": {"_plain_": {"const": False}}},
        "then": {"required": ["type"], "properties": {"type": {"type": "string"}}},
    }
    definitions["object"] = {
        **NESTED_SCHEMA,
        "properties": {"type": {**about, "minLength": 1}, **inside},
        "additionalProperties": _VALUE,
    }
    for definition in definitions.values():
        if definition.get("additionalProperties") is True and "properties" in definition:
            definition["additionalProperties"] = _VALUE


def _open_property(schema: Schema) -> Schema:
    """Return the schema of a parameter with `_with_objects`. Its description and default stay as they are."""
    about: Schema = {key: schema[key] for key in ("title", "description", "default") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in about}
    return {**_with_objects(inner), **about}


def _with_objects(schema: Any) -> Any:
    """Return the schema of a parameter with the definitions of objects, and of values that can be anything."""
    if isinstance(schema, list):
        return [_with_objects(item) for item in schema]
    if schema == NESTED_SCHEMA:
        return _OBJECT
    if schema == {}:
        return _VALUE
    return {key: _with_objects(item) for key, item in schema.items()} if isinstance(schema, dict) else schema


def _add_definitions(registry: Registry, prefix: str, definitions: Schema, extras: Schema) -> list[Schema]:
    """Add a definition for every registered class, and return references to them."""
    references = []
    for name in registry:
        title = f"{prefix}.{name}"
        parameters = _parameter_schema(registry, name, title, definitions)
        required = parameters.pop("required", [])
        properties = {"type": {"const": name}, **extras, **parameters["properties"]}
        definitions[title] = {**parameters, "properties": properties, "required": ["type", *required]}
        if name in DEFAULT_HOOKS.values():
            # A default hook is named by its key, and its mapping may be merged with the one of a base.
            properties = {**properties, "_delete_": {"type": "boolean"}}
            definitions[f"{title}.default"] = {**parameters, "properties": properties}
        references.append({"$ref": f"#/$defs/{title}"})
    return references


def _add_schedules(definitions: Schema) -> None:
    """Let each built-in schedule have its parameters, and no others. Other schedulers may have any.

    The parameters are not read from the classes, which would import torch. A test compares them.
    """
    part, section = definitions["SchedulerPart"], definitions["OptimSection"]["properties"]["schedulers"]
    common = {key: part["properties"][key] for key in ("when", "monitor", "warmup")}
    references: list[Schema] = []
    for name, keys in SCHEDULES.items():
        own = {key: _allow_reference(_SCHEDULE_PARAMETERS[key]) for key in keys}
        definitions[f"scheduler.{name}"] = {
            "type": "object",
            "title": name,
            "properties": {"type": {"const": name}, **common, **own},
            "required": ["type"],
            "additionalProperties": False,
        }
        references.append({"$ref": f"#/$defs/scheduler.{name}"})
    part["properties"]["type"] = {**part["properties"]["type"], "not": {"enum": list(SCHEDULES)}}
    part["required"] = ["type"]
    listed = next(each for each in section["anyOf"] if "items" in each)  # the other alternative is null
    listed["items"] = {"anyOf": [*references, listed["items"], _REFERENCE]}


def _parameter_schema(registry: Registry, name: str, title: str, definitions: Schema) -> Schema:
    """Return the schema of a class's parameters. It accepts anything if the class cannot be loaded.

    A plugin cannot be loaded if a package that it needs is missing, for example.
    """
    try:
        factory: Callable[..., Any] = registry.get(name)
    except (ConfigError, ImportError):
        return {"type": "object", "title": name, "properties": {}}
    signature = signature_of(factory)
    schema = signature.json_schema(ref_template=f"#/$defs/{title}.{{model}}")
    for inner, definition in schema.pop("$defs", {}).items():
        definitions[f"{title}.{inner}"] = definition
    properties = schema.get("properties", {}).items()
    schema["properties"] = {key: _allow_reference(_open_property(value)) for key, value in properties}
    return {**schema, "title": name, "description": signature.doc}


def _hook_extras() -> Schema:
    names = [*Priority.__members__, *(name.lower() for name in Priority.__members__)]
    return {
        "priority": {
            "anyOf": [{"enum": names}, {"type": "integer", "minimum": 0, "maximum": 100}, {"type": "null"}, _REFERENCE],
            "description": "The position in the order of hooks: lower runs first, NORMAL is 50.",
        },
        "on_error": {
            "enum": ["raise", "disable"],
            "default": "raise",
            "description": "What happens if the hook fails. Only an observer can be disabled.",
        },
        "ranks": {
            "enum": ["all", "main"],
            "default": "all",
            "description": "The processes that the hook runs in, if there are several.",
        },
        "budget": {
            "anyOf": [
                {"type": "string", "pattern": r"^\s*[0-9]*\.?[0-9]+\s*%?\s*$"},
                {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                {"type": "null"},
                _REFERENCE,
            ],
            "description": "The share of the training time that the hook may take, such as 5%. More is reported.",
        },
    }


def _open_schema(extras: Schema) -> Schema:
    """Return the schema of a user-defined class, given by its full name with any parameters, or of a reference."""
    own = {"type": "string", "pattern": _FULL_NAME, "description": "module:Name, with the module next to the config."}
    properties = {"type": own, **extras}
    named = {"type": "object", "properties": properties, "required": ["type"], "additionalProperties": _VALUE}
    return {"anyOf": [named, own, _REFERENCE]}
