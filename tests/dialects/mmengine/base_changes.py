"""Python configs that change the values of their bases, for the comparison with the mmengine package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = "extra = dict(a=1)\nmodel = dict(type='Root', keep=1)\n"
#: A base that has a base, and changes it.
BASE = """\
_base_ = 'root.py'
_base_.extra.a = 2
model = dict(_delete_=True, type='Net', depth=10, norm=dict(type='BN', eps=1e-5), heads=[dict(type='A')])
lr = 0.1
stages = [1, 2]
pipeline = [dict(type='Load'), dict(type='Resize', scale=(1, 2))]
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.1))
"""
OTHER = "data = dict(size=3, files=['a'])\nnothing = None\n"
IMPORTED = BASE.replace("_base_ = 'root.py'\n_base_.extra.a = 2\n", "extra = dict(a=2)\n").replace(
    "_delete_=True, ", ""
)

CHANGES = [
    "_base_.optim_wrapper.type = 'AmpOptimWrapper'",
    "_base_['optim_wrapper']['type'] = 'AmpOptimWrapper'",
    "_base_.optim_wrapper.optimizer.lr = 0.5",
    "_base_.lr *= 2",
    "_base_.lr, _base_.width = 1, 2",
    "_base_.new = dict(x=1)\n_base_.new.y = 2",
    "_base_.data.size = 9\n_base_.data.files += ['b']",
    "del _base_.extra",
    "del _base_['extra']",
    "del _base_.model.norm.eps",
    "del _base_.model\nmodel = dict(depth=3)",
    "for name in list(_base_):\n    if name.startswith('s'):\n        del _base_[name]",
    "if _base_.lr < 1:\n    _base_.lr = 8",
    "def change():\n    _base_.lr = 7\nchange()",
    "_base_.stages.append(3)",
    "_base_.pipeline.append(dict(type='X', n=dict(a=1)))",
    "_base_.pipeline.insert(1, dict(type='X'))\n_base_.pipeline[0].type = 'Y'\n_base_.pipeline[2]['scale'] = 3",
    "_base_.pipeline[0] = dict(type='Z')\n_base_.pipeline.pop()",
    "_base_.model.heads[0].n = dict(b=2)\n_base_.model.heads.append(dict(c=1))",
    "_base_.model.update(norm=dict(type='GN'), depth=3)",
    "_base_.model.update(dict(norm=3, depth=dict(a=1)))",
    "_base_.update(dict(model=dict(depth=4)))",
    "_base_ |= dict(lr=3)\n_base_.model |= dict(norm=dict(type='GN'))",
    "_base_.model.merge(dict(norm=dict(_delete_=True, type='GN'), heads=[1]))",
    "_base_.model.merge(dict(norm=dict(type='GN'), depth=dict(_delete_=True, a=1)))",
    "gone = [_base_.pop('extra'), _base_.model.pop('norm'), _base_.model.pop('missing'), _base_.pop('missing', 4)]",
    "_base_.model.setdefault('new', 5)\n_base_.model.setdefault('depth', 6)",
    "_base_.clear()",
    "_base_.model = dict(type='New')",
    "_base_.model = dict(type='New')\nmodel = dict(depth=3)",
    "_base_.model.depth = 7\nmodel = dict(norm=dict(_delete_=True, x=1))",
    "_base_.model._delete_ = True\nmodel = dict(x=1)",
    "model = _base_.model\nmodel.depth = 1\ndel model.norm",
    "model = _base_.model\nmodel.norm = dict(type='GN')",
    "bases = _base_\nbases.lr = 4\ndel bases",
    "steps = _base_.pipeline\nsteps.insert(0, dict(type='First'))\nuses = dict(pipeline=steps)",
    "from copy import deepcopy as clone\nmine = clone(_base_.model)\nmine.depth = 99\ndel clone",
    "mine = _base_.model.copy()\nmine.depth = 99\nmine.norm.eps = 4",
    "mine = _base_.model.deepcopy()\nmine.norm.eps = 4",
    "mine = _base_.model | dict(norm=dict(a=1))\nother = dict(norm=dict(a=1)) | _base_.model",
    "mine = {**_base_.model, 'depth': 3}\nplain = _base_.model.to_dict()\nplain['depth'] = 4",
    "_base_.lr = 5\nsame = {{_base_.lr}}",
    "same = [{{_base_.stages}}, dict(a={{_base_.model}})]\n_base_.stages.append(5)\n_base_.model.depth = 5",
    "_base_.lr = 4\ndel _base_",
]
#: Changes of names that are imported under `with read_base()`.
CHANGES_OF_IMPORTS = [
    "model.update(dict(norm=dict(type='GN')))\noptim_wrapper.type = 'AmpOptimWrapper'",
    "model.merge(dict(norm=dict(_delete_=True, type='GN')))",
    "del model.norm, lr\nstages.append(3)\nmodel.heads.append(dict(c=1))",
    "model |= dict(norm=dict(a=1))\nlr *= 2",
]


def write(folder: Path) -> Iterator[tuple[str, Path]]:
    """Write the configs, and yield what each changes and its path."""
    for name, text in (("root", ROOT), ("base", BASE), ("other", OTHER), ("imported", IMPORTED)):
        (folder / f"{name}.py").write_text(text)
    importing = "from mmengine.config import read_base\nwith read_base():\n    from .imported import *\n"
    cases = [("_base_ = ['base.py', 'other.py']\n", each) for each in CHANGES]
    cases += [(importing, each) for each in CHANGES_OF_IMPORTS]
    for number, (start, change) in enumerate(cases):
        path = folder / f"change_{number}.py"
        path.write_text(f"{start}{change}\n")
        yield change, path
