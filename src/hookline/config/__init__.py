"""Configs: YAML read, merged and checked (`load`), built (`build_runner`), and described (`json_schema`).

load         file, `_base_`, overrides, `${...}`  ->  plain data with the place of every value
  parse, tree, merge, override, interpolate         one step each
check        everything that is wrong, in one error
  schema       the shape of a config
  names        what it may name; modules: what it may import
  signature    the parameters of what it names
build        names -> objects -> Runner; optims: optimizers and schedulers
describe     the JSON Schema, for editors
"""

from hookline.common.yaml_file import dump, read
from hookline.config.builder import build_runner
from hookline.config.editor_schema import json_schema
from hookline.config.loading import from_dict, load

__all__ = ["build_runner", "dump", "from_dict", "json_schema", "load", "read"]
