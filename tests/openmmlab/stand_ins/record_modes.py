"""A hook that writes the modes of all modules at every point to a file, which an environment variable names."""

import json
import os

from mmengine.hooks import Hook
from mmengine.registry import HOOKS


def record(point):
    def method(self, runner, *args, **kwargs):
        path = os.environ.get("MODES_TO")
        if path:
            model = getattr(runner.model, "module", runner.model)
            modes = "".join("T" if module.training else "e" for module in model.modules())
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps([point, runner.iter, modes]) + "\n")

    return method


RecordModes = HOOKS.register_module()(
    type("RecordModes", (Hook,), {"priority": "LOWEST", **{point: record(point) for point in Hook.stages}})
)
