"""Let the inferencer of a project predict and draw, with the real mmengine or with hookline's dialect.

    python use_inferencer.py mmengine|hookline PROJECT OUT

The environment names the CONFIG, the CHECKPOINT and the IMAGE. OUT gets the predictions. A folder beside
it, with the ending `.pictures`, gets the picture.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

if sys.argv[1] == "hookline":
    from hookline.dialects import alias

    alias("mmengine")

from mmengine.config import Config


def as_data(value: Any) -> Any:
    """Return predictions as data."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, dict):
        return {str(name): as_data(each) for name, each in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [as_data(each) for each in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return value


def main(project: str, out: Path) -> None:
    """Predict the image, and draw it."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    Config.allow_python_config = True
    config, checkpoint, image = (os.environ[name] for name in ("CONFIG", "CHECKPOINT", "IMAGE"))
    drawn = str(out.with_suffix(".pictures"))
    if project == "mmpretrain":
        from mmpretrain.apis import ImageClassificationInferencer

        found = ImageClassificationInferencer(config, pretrained=checkpoint, classes=["left", "right"])(
            image, show_dir=drawn
        )
    elif project == "mmseg":
        from mmseg.apis import MMSegInferencer

        colors = [[0, 0, 0], [255, 0, 0]]
        found = MMSegInferencer(config, weights=checkpoint, classes=["noise", "square"], palette=colors)(
            image, out_dir=drawn
        )
    else:
        from mmdet.apis import DetInferencer

        found = DetInferencer(config, weights=checkpoint)(image, out_dir=drawn)
    predictions = as_data(found["predictions"] if isinstance(found, dict) else found)
    out.write_text(json.dumps({"predictions": predictions}), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[2], Path(sys.argv[3]))
