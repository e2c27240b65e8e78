"""Import all modules of a project, with the real mmengine or with hookline's dialect.

    python read_imports.py mmengine|hookline PROJECT OUT

OUT gets the names of the modules, with the error of each; an empty text if it can be imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import sys
import warnings
from pathlib import Path


def main(package: str, project: str, out: Path) -> None:
    if package == "hookline":
        from hookline.dialects import alias

        alias("mmengine")
        importlib.import_module("mmengine.config").Config.allow_python_config = True
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    spec = importlib.util.find_spec(project)
    assert spec is not None and spec.origin is not None  # noqa: PT018
    root = Path(spec.origin).parent
    errors: dict[str, str] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        if ".mim" in parts or parts[-1] == "__main__":
            continue
        name = ".".join(parts).removesuffix(".__init__")
        try:
            importlib.import_module(name)
            errors[name] = ""
        except (Exception, SystemExit) as error:
            errors[name] = f"{type(error).__name__}: {error}"
    out.write_text(json.dumps(errors), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
