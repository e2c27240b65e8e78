"""The JSON Schema of a config, with every registered hook and writer in it, so that editors complete and check YAML.

A file in an editor is not a merged config: what it leaves out may stand in its `_base_`, and `${...}` may stand for any
value. So keys are never required of sections, only of list items, which are not merged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hookline.config.schema import Config
from hookline.config.signature import signature_of
from hookline.errors import ConfigError
from hookline.plan.hook import Priority
from hookline.plan.registry import DEFAULT_HOOKS, HOOKS, WRITERS, Registry

Schema = dict[str, Any]

_REFERENCE = {"$ref": "#/$defs/reference"}
_OWN_NAME = r"^[^\W\d]\w*([.:][^\W\d]\w*)+$"


def json_schema() -> Schema:
    """The JSON Schema (draft 2020-12) of a config file.

    It knows the hooks and writers that are registered when it is made; `module:Name` is open to any parameters.
    """
    schema: Schema = _unions_open(Config.model_json_schema(by_alias=True))
    definitions: Schema = schema["$defs"]
    _relax(schema)
    hooks = _define(HOOKS, "hook", definitions, _hook_extras())
    writers = _define(WRITERS, "writer", definitions, {})
    properties = schema["properties"]
    properties["custom_hooks"]["items"] = {"anyOf": [*hooks, {"enum": list(HOOKS)}, _open(_hook_extras())]}
    properties["writers"]["items"] = {"anyOf": [*writers, {"enum": list(WRITERS)}, _open({})]}
    defaults = definitions["DefaultHooksSection"]["properties"]
    for key, name in DEFAULT_HOOKS.items():
        own = {"$ref": f"#/$defs/hook.{name}.default"}
        kinds = [own, *hooks, {"enum": list(HOOKS)}, _open(_hook_extras()), {"type": "null"}]
        defaults[key] = {"anyOf": kinds, "description": defaults[key].get("description", "")}
    definitions["reference"] = {
        "type": "string",
        "pattern": r"\$\{|^\?\?\?$",
        "description": "A reference to another value, ${key.path} or ${oc.env:NAME,default}, or ???: to be given.",
    }
    properties["_base_"] = {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        "description": "Config files that this one goes over, relative to it; the later one wins.",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "hookline config",
        "anyOf": [{"required": ["_base_"]}, {"required": ["model"]}],
    }


def _unions_open(schema: Any) -> Any:
    """Tagged unions as plain ones: without their required keys, more than one alternative may fit.

    A loader of the user's own must keep its `type`, or it would fit anything. Mappings by name take `_delete_` too.
    """
    if isinstance(schema, list):
        return [_unions_open(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {"anyOf" if key == "oneOf" else key: _unions_open(item) for key, item in schema.items()}
    if isinstance(result.get("additionalProperties"), dict):
        result["properties"] = {"_delete_": {"type": "boolean"}}
    loader, part = {"$ref": "#/$defs/LoaderSection"}, {"$ref": "#/$defs/Part"}
    if result.get("anyOf") == [loader, part]:
        result["anyOf"] = [loader, {**part, "required": ["type"]}]
    return result


def _relax(schema: Schema) -> None:
    """Let sections leave out what a base may give, and values be references."""
    for section in (schema, *schema["$defs"].values()):
        if "properties" not in section:
            continue
        section.pop("title", None)
        required = section.pop("required", [])
        if required == ["match"]:
            section["required"] = required
        section["properties"] = {key: _or_reference(value) for key, value in section["properties"].items()}
        section["properties"]["_delete_"] = {"type": "boolean", "description": "Replace what a base has here."}


def _or_reference(schema: Schema) -> Schema:
    """The same, or a reference; what is said about the value stays outside, where editors look for it."""
    about: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in about and key != "title"}
    if not inner or "items" in inner:
        return {**inner, **about}
    return {"anyOf": [*inner.pop("anyOf", []), *([inner] if inner else []), _REFERENCE], **about}


def _define(registry: Registry, prefix: str, definitions: Schema, extras: Schema) -> list[Schema]:
    """Add a definition for everything that is registered; gives references to them."""
    references = []
    for name in registry:
        title = f"{prefix}.{name}"
        parameters = _parameters(registry, name, title, definitions)
        required = parameters.pop("required", [])
        properties = {"type": {"const": name}, **extras, **parameters["properties"]}
        definitions[title] = {**parameters, "properties": properties, "required": ["type", *required]}
        if name in DEFAULT_HOOKS.values():
            # A default hook is named by its key, and its mapping may be merged with that of a base.
            properties = {**properties, "_delete_": {"type": "boolean"}}
            definitions[f"{title}.default"] = {**parameters, "properties": properties}
        references.append({"$ref": f"#/$defs/{title}"})
    return references


def _parameters(registry: Registry, name: str, title: str, definitions: Schema) -> Schema:
    """The parameters of one registered class; open where it cannot be loaded, as a plugin with a missing package."""
    try:
        factory: Callable[..., Any] = registry.get(name)
    except (ConfigError, ImportError):
        return {"type": "object", "title": name, "properties": {}}
    signature = signature_of(factory)
    schema = signature.json_schema(ref_template=f"#/$defs/{title}.{{model}}")
    for inner, definition in schema.pop("$defs", {}).items():
        definitions[f"{title}.{inner}"] = definition
    schema["properties"] = {key: _or_reference(value) for key, value in schema.get("properties", {}).items()}
    return {**schema, "title": name, "description": signature.doc}


def _hook_extras() -> Schema:
    names = [*Priority.__members__, *(name.lower() for name in Priority.__members__)]
    return {
        "priority": {
            "anyOf": [{"enum": names}, {"type": "integer", "minimum": 0, "maximum": 100}, {"type": "null"}, _REFERENCE],
            "description": "Where in the order: lower runs first, NORMAL is 50.",
        },
        "on_error": {
            "enum": ["raise", "disable"],
            "default": "raise",
            "description": "What a failure of the hook does; only an observer can be disabled.",
        },
    }


def _open(extras: Schema) -> Schema:
    """Something of the user's own, or a reference: by its full name, with any parameters."""
    own = {"type": "string", "pattern": _OWN_NAME, "description": "module:Name, with the module beside the config."}
    named = {"type": "object", "properties": {"type": own, **extras}, "required": ["type"]}
    return {"anyOf": [named, own, _REFERENCE]}
