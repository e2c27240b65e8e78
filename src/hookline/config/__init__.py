"""Configs: load them from YAML (`load`), build a Runner from them (`build_runner`), describe them (`json_schema`).

loading        file, `_base_`, overrides, `${...}`  ->  plain data with the position of every value
  merging, overrides, interpolation                 one step each
validation     checks everything, and reports all problems in one error
  schema         the sections and keys of a config
  blueprints     what is at each place: an object, a function, or plain data
  names          what a config may name; slots: kinds of objects; modules: what it may import; suggestions
  signature      the parameters of the classes and functions that it names; annotations: their types
  functions      whether a function is called now or later
builder        blueprints  ->  objects  ->  Runner; assembly, factory and optims do the work
editor_schema  the JSON Schema, for editors
"""

from hookline.common.yaml_file import dump, read
from hookline.config.builder import build_runner
from hookline.config.editor_schema import json_schema
from hookline.config.loading import from_dict, load

__all__ = ["build_runner", "dump", "from_dict", "json_schema", "load", "read"]
