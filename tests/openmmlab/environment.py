"""Create the environment of the tests of the OpenMMLab projects.

    python -m tests.openmmlab.environment .venv-openmmlab

It has the projects' wheels, installed without their dependencies, and sees the packages of the environment that creates
it, among them torch, hookline and the real mmengine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

PROJECTS = (
    *("mmpretrain==1.2.0", "mmsegmentation==1.2.2", "mmdet==3.3.0", "mmpose==1.3.2", "mmyolo==0.6.0"),
    *("mmaction2==1.2.0", "mmocr==1.0.1", "mmagic==1.2.0", "mmdet3d==1.4.0", "mmrotate==1.0.0rc1", "mmrazor==1.0.0"),
    "mmcv-lite==2.1.0",
)
#: What the projects import, besides the packages that the tests of hookline need anyway. mmengine reads configs with
#: bases in other projects only with `pkg_resources`, which newer versions of setuptools do not have.
NEEDED = (
    *("einops", "ftfy", "mat4py", "matplotlib", "modelindex", "model-index", "opencv-python", "ordered-set"),
    *("prettytable", "pycocotools", "scipy", "setuptools<81", "shapely", "six", "terminaltables"),
    *("json-tricks", "lmdb", "munkres", "numba", "llvmlite", "pyclipper", "rapidfuzz"),
    *("scikit-image", "imageio", "lazy-loader", "tifffile", "networkx", "decord", "plyfile", "trimesh"),
    *(
        "nuscenes-devkit",
        "lyft-dataset-sdk",
        "pyquaternion",
        "scikit-learn",
        "joblib",
        "threadpoolctl",
        "cachetools",
        "narwhals",
    ),
)
STAND_INS = Path(__file__).parent / "stand_ins"


def packages_of(environment: Path) -> Path:
    """Return the folder of packages of an environment."""
    return environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def create(environment: Path) -> None:
    """Create the environment, unless it is there and complete."""
    ready = environment / ".ready"
    wanted = "\n".join((*PROJECTS, *NEEDED))
    if not ready.is_file() or ready.read_text(encoding="utf-8") != wanted:
        venv.create(environment, with_pip=False, clear=True)
        seen = [path for path in sys.path if path.endswith("site-packages") or Path(path, "hookline").is_dir()]
        packages = packages_of(environment)
        (packages / "shared.pth").write_text("\n".join(seen) + "\n", encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--disable-pip-version-check", *PROJECTS, *NEEDED], check=True)
        ready.write_text(wanted, encoding="utf-8")
    packages = packages_of(environment)
    shutil.copy(STAND_INS / "mmcv_ext.py", packages / "mmcv" / "_ext.py")
    # The wheel of mmaction2 lacks a module that it imports.
    drn = packages / "mmaction" / "models" / "localizers" / "drn"
    drn.mkdir(exist_ok=True)
    (drn / "drn.py").write_text("class DRN:\n    pass\n", encoding="utf-8")
    # The projects are of different years, and refuse each other's newer versions.
    for file in packages.glob("mm*/__init__.py"):
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(r"(_maximum_version = )'.*'", r"\1'99'", text), encoding="utf-8")


if __name__ == "__main__":
    create(Path(sys.argv[1]).absolute())
