"""Train the real OpenMMLab projects with the real mmengine and with hookline, and print what is the same as a table.

    python -m tests.openmmlab.run --environment .venv-openmmlab [--folder FOLDER] [--no-configs] [--projects mmdet ...]

The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.openmmlab import comparison, data
from tests.openmmlab.environment import PROJECTS, STAND_INS, packages_of
from tests.openmmlab.outcomes import EXPECTED

HERE = Path(__file__).parent
#: The project, the iteration at which a run is killed, and the last checkpoint of a run in one process and in two.
RUNS = {
    "mmpretrain": (5, "epoch_3.pth", "epoch_3.pth"),
    "mmseg": (5, "iter_9.pth", "iter_9.pth"),
    "mmdet": (11, "iter_18.pth", "iter_9.pth"),
}
#: Projects whose training, resume and test are compared, and nothing else.
MORE_RUNS = dict.fromkeys(("mmpose", "mmyolo", "mmaction", "mmocr"), (5, "epoch_3.pth"))
#: Projects whose modules are imported.
IMPORTED = ("mmagic", "mmdet3d", "mmrotate", "mmrazor")
#: An image for the inferencer of each project, in the folder of `data`.
IMAGES = {"mmpretrain": "classes/val/left/02.png", "mmseg": "masks/images/val/02.png", "mmdet": "boxes/val/02.png"}
#: The configs that mmengine cannot read either, and why. All others must be read.
UNREADABLE = {
    "swin_transformer_v2/swinv2-base-w12_8xb128_in21k-192px.py": "no base has the test_pipeline that it reads",
    "swin_transformer_v2/swinv2-large-w12_8xb128_in21k-192px.py": "no base has the test_pipeline that it reads",
    "bytetrack/bytetrack_yolox_x_8xb4-amp-80e_crowdhuman-mot17halftrain_test-mot17test.py": "its base does not exist",
    "sort/faster-rcnn_r50_fpn_8xb2-4e_mot17train_test-mot17train.py": "the name of its base has no ending",
    "sort/faster-rcnn_r50_fpn_8xb2-8e_mot20halftrain_test-mot20halfval.py": "the name of its base has no ending",
    "sort/faster-rcnn_r50_fpn_8xb2-8e_mot20train_test-mot20train.py": "the name of its base has no ending",
    "textdet/dbnet/dbnet_resnet50-dcnv2_fpnc_100k_synthtext.py": "no base has the dataset that it reads",
    "body_2d_keypoint/edpose/coco/edpose_res50_8xb2-50e_coco-800x1333.py": "it imports a base that does not exist",
    "gwd/rotated-retinanet-rbox-le135_r50_fpn_gwd_1x_dota.py": "its base does not exist",
    "mvfcos3d/multiview-fcos3d_r101-dcn_centerhead_16xb2_waymoD5-3d-3class.py": "its base does not exist",
    "nas/mmcls/spos/faster-rcnn_nas_backbone_fpn_1x_coco.py": "its base does not exist",
    "nas/mmdet/detnas/detnas_shufflenet_subnet_8xb128_in1k.py": "its base does not exist",
    "nas/mmdet/detnas/detnas_shufflenet_supernet_8xb128_in1k.py": "its base does not exist",
    "pruning/base/group_fisher/group_fisher_deploy_template.py": "a template: its base is a folder",
    "pruning/base/group_fisher/group_fisher_finetune_template.py": "a template: its base is a folder",
    "pruning/base/group_fisher/group_fisher_prune_template.py": "a template: its base is a folder",
}
#: The error of the others that mmengine cannot read: the package of their base is the predecessor of mmpretrain.
PREDECESSOR = "mmcls is not installed"
#: Two processes without a GPU: the real mmengine needs to be told.
WITHOUT_GPU = (
    *("--launcher", "pytorch", "--cfg-options", "env_cfg.dist_cfg.backend=gloo", "model_wrapper_cfg.device_ids=None"),
    *("model_wrapper_cfg.type=MMDistributedDataParallel", "model_wrapper_cfg.broadcast_buffers=False"),
)
#: Without this, the real mmengine cannot read its own checkpoints with today's torch.
READS_ITS_OWN: dict[str, Any] = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}


@dataclass
class Project:
    """The commands of one project."""

    name: str
    environment: Path
    folder: Path
    more: dict[str, str] = field(default_factory=dict)

    @property
    def mim(self) -> Path:
        return packages_of(self.environment) / self.name / ".mim"

    def run(
        self,
        tool: str,
        log: str,
        *arguments: str,
        hookline: bool,
        expected: int = 0,
        processes: int = 1,
        **more: Any,
    ) -> None:
        """Run a tool of the project, and fail with the end of its log if it ends with another exit code."""
        python = [str(self.environment / "bin" / "python")]
        if processes > 1:
            python += ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
        if hookline:
            python += ["-m", "hookline", "run-as", "--allow-python-config", "mmengine"]
        config = str(HERE / "configs" / f"{self.name}.py")
        variables = {"PYTHONPATH": str(STAND_INS), "MIM": str(self.mim), "OMP_NUM_THREADS": "1"}
        path = self.folder / f"{self.name}-{log}.log"
        with path.open("w", encoding="utf-8") as file:
            done = subprocess.run(
                [*python, str(self.mim / "tools" / f"{tool}.py"), config, *arguments],
                cwd=self.folder,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **variables, "PYTHONWARNINGS": "ignore", **more},
                check=False,
            )
        if done.returncode != expected:
            end = "\n".join(path.read_text(encoding="utf-8").splitlines()[-30:])
            raise SystemExit(f"{self.name}: {log} ended with {done.returncode}, not with {expected}:\n{end}")

    def work_dir(self, kind: str) -> str:
        return str(self.folder / f"{self.name}-{kind}")


def try_training(project: Project, kill_at: int, last: str, show: bool = False) -> dict[str, str]:
    """Train, kill, resume and test, and return the cells of the table."""
    real, ours, killed, tested = map(project.work_dir, ("mmengine", "hookline", "killed", "tested"))
    modes = [str(project.folder / f"{project.name}-modes-{kind}.jsonl") for kind in ("mmengine", "hookline")]
    project.run("train", "train-mmengine", "--work-dir", real, hookline=False, MODES_TO=modes[0])
    project.run("train", "train-hookline", "--work-dir", ours, hookline=True, MODES_TO=modes[1])
    expected, found = comparison.losses_of_mmengine(real), comparison.losses_of_hookline(ours)
    project.run(*("train", "killed", "--work-dir", killed), hookline=True, expected=-9, KILL_AT=str(kill_at))
    project.run("train", "resumed", "--work-dir", killed, "--resume", hookline=True)
    pictures = ["--show-dir", str(project.folder / f"{project.name}-pictures-hookline")] if show else []
    for folder, checkpoint, more in ((tested, Path(real, last), pictures), (f"{tested}-own", Path(ours, last), [])):
        log = Path(folder).name.removeprefix(f"{project.name}-")
        project.run("test", log, str(checkpoint), "--work-dir", folder, *more, hookline=True)
    results = [comparison.metrics_of(folder, "test") for folder in (tested, f"{tested}-own")]
    return {
        "trains": f"{len(found)} iterations",
        "losses": f"equal, {sum(map(len, found.values()))} numbers" if found == expected else "DIFFERENT",
        "modes": comparison.same_modes(*modes),
        "resumes": "same bits" if comparison.same_bits(Path(ours, last), Path(killed, last)) else "DIFFERENT",
        "tests": "same metrics, both checkpoints"
        if results == [comparison.metrics_of_mmengine(real)] * 2
        else f"DIFFERENT: {results}",
    }


def compare_pictures(project: Project, checkpoint: str) -> str:
    """Test with the real mmengine, too, and compare the pictures that both draw."""
    pictures = [project.folder / f"{project.name}-pictures-{kind}" for kind in ("mmengine", "hookline")]
    arguments = [checkpoint, "--work-dir", project.work_dir("tested-mmengine"), "--show-dir", str(pictures[0])]
    project.run("test", "tested-mmengine", *arguments, hookline=False, **READS_ITS_OWN)
    return comparison.same_pictures(*pictures)


def try_all(project: Project, kill_at: int, last: str, last_of_two: str) -> dict[str, str]:
    """Compare all that a project can do, and return the cells of the table."""
    cells = try_training(project, kill_at, last, show=True)
    checkpoint = str(Path(project.work_dir("mmengine"), last))
    cells["pictures"] = compare_pictures(project, checkpoint)
    cells["with --tta"] = compare_tta(project, checkpoint)
    cells["two processes"] = compare_two_processes(project, last_of_two)
    cells["inferencer"] = compare_inferencers(project, last)
    cells["samplers"] = compare_batches(project)
    return cells


def compare_tta(project: Project, checkpoint: str) -> str:
    """Test with test-time augmentation with both, and compare the metrics."""
    folders = [project.work_dir(f"tta-{kind}") for kind in ("mmengine", "hookline")]
    for folder, hookline in zip(folders, (False, True), strict=True):
        more = {} if hookline else READS_ITS_OWN
        log = Path(folder).name.removeprefix(f"{project.name}-")
        project.run("test", log, checkpoint, "--work-dir", folder, "--tta", hookline=hookline, **more)
    same = comparison.metrics_of_mmengine(folders[0]) == comparison.metrics_of(folders[1], "test")
    return "same metrics" if same else "DIFFERENT"


def read_with_both(project: Project, script: str, **more: str) -> list[Path]:
    """Run a script of this folder with the real mmengine and with hookline, and return the files it wrote."""
    python, path = str(project.environment / "bin" / "python"), str(HERE / f"{script}.py")
    outs = [project.folder / f"{project.name}-{script}-{package}.json" for package in ("mmengine", "hookline")]
    variables = {**os.environ, "PYTHONPATH": str(STAND_INS), "MIM": str(project.mim), "OMP_NUM_THREADS": "1", **more}
    started = [
        subprocess.Popen(
            [python, path, package, project.name, str(out)],
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for package, out in zip(("mmengine", "hookline"), outs, strict=True)
    ]
    errors = [process.communicate()[1].decode() for process in started]
    for process, error in zip(started, errors, strict=True):
        if process.returncode:
            raise SystemExit(f"{project.name}: {script} ended with {process.returncode}:\n{error[-3000:]}")
    return outs


def compare_batches(project: Project) -> str:
    """Train with all samplers of a project with both, and return what is equal."""
    theirs, ours = (json.loads(out.read_text(encoding="utf-8")) for out in read_with_both(project, "read_batches"))
    different = [case for case, batches in theirs["batches"].items() if ours["batches"].get(case) != batches]
    if different or theirs["samplers"] != ours["samplers"]:
        return f"DIFFERENT: {', '.join(different)}"
    batches = sum(map(len, ours["batches"].values()))
    return f"equal, {len(ours['samplers'])} samplers in {len(ours['batches'])} runs, {batches} batches"


def compare_two_processes(project: Project, checkpoint: str) -> str:
    """Train in two processes with both, and return whether the weights are the same."""
    kinds = ("mmengine", "hookline")
    folders = [Path(project.work_dir(f"two-{kind}")) for kind in kinds]
    for kind, folder in zip(kinds, folders, strict=True):
        arguments = ("--work-dir", str(folder), *WITHOUT_GPU)
        project.run("train", f"two-{kind}", *arguments, hookline=kind == "hookline", processes=2)
    return "same bits" if comparison.same_weights(*(folder / checkpoint for folder in folders)) else "DIFFERENT"


def compare_inferencers(project: Project, checkpoint: str) -> str:
    """Let the inferencer of a project predict and draw an image with both, and return whether all is equal."""
    config = str(HERE / "configs" / f"{project.name}.py")
    work = {"CONFIG": config, "CHECKPOINT": str(Path(project.work_dir("mmengine"), checkpoint))}
    work["IMAGE"] = str(project.folder / IMAGES[project.name])
    outs = read_with_both(project, "use_inferencer", **work, **READS_ITS_OWN)
    theirs, ours = (json.loads(out.read_text(encoding="utf-8")) for out in outs)
    same = theirs["predictions"] == ours["predictions"] and comparison.same_pictures(
        *(out.with_suffix(".pictures") for out in outs)
    ).startswith("equal")
    return "same prediction and picture" if same else "DIFFERENT"


def compare_names(project: Project) -> str:
    """Look up the names of mmengine that a project uses with both, and return whether hookline has those that exist."""
    theirs, ours = (json.loads(out.read_text(encoding="utf-8")) for out in read_with_both(project, "read_names"))
    missing = [name for name, known in theirs.items() if known and not ours[name]]
    return f"DIFFERENT: no {', '.join(missing)}" if missing else f"all {sum(theirs.values())}"


def compare_imports(project: Project) -> str:
    """Import all modules of a project with both, and return whether hookline's can import those that mmengine's can."""
    theirs, ours = (json.loads(out.read_text(encoding="utf-8")) for out in read_with_both(project, "read_imports"))
    missing = {name: ours[name] for name, error in theirs.items() if not error and ours[name]}
    count = sum(not error for error in theirs.values())
    return f"DIFFERENT: {missing}" if missing else f"all {count} of {len(theirs)} that mmengine imports"


def compare_configs(project: Project) -> str:
    """Read all configs of a project with both, and return what is equal."""
    outs = read_with_both(project, "read_configs")
    theirs, ours = ([json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] for out in outs)
    both = list(zip(theirs, ours, strict=True))
    neither = {one[0].removeprefix(".mim/configs/"): one[3] for one, other in both if one[3] and other[3]}
    known = {name for name in UNREADABLE if (project.mim / "configs" / name).is_file()}
    known |= {name for name, error in neither.items() if PREDECESSOR in error}
    equal = sum(one[2] == other[2] for one, other in both if not one[3])
    alone = sum(bool(one[3]) and not other[3] for one, other in both)
    text = f"{equal} of {sum(not one[3] for one, _ in both)} equal; {alone} only hookline reads, {len(neither)} neither"
    different = [one[0] for one, other in both if not one[3] and one[2] != other[2]]
    return (
        text
        if not different and neither.keys() == known
        else f"DIFFERENT: {text} {different[:9]} {neither.keys() ^ known}"
    )


def main() -> int:
    """Try all projects, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, required=True)
    parser.add_argument("--folder", type=Path, help="keep all runs and logs here")
    parser.add_argument("--no-configs", action="store_true", help="do not read all configs, which takes minutes")
    known = [*RUNS, *MORE_RUNS, *IMPORTED]
    parser.add_argument("--projects", nargs="+", default=known, choices=known, help="try only these")
    given = parser.parse_args()
    folder = given.folder.absolute() if given.folder else Path(tempfile.mkdtemp(prefix="openmmlab-"))
    folder.mkdir(parents=True, exist_ok=True)
    data.make_all(folder)
    tables: dict[tuple[str, ...], list[dict[str, str]]] = {}
    outs = read_with_both(Project("complaints", given.environment.absolute(), folder), "complaints")
    found = [json.loads(out.read_text(encoding="utf-8")) for out in outs]
    if list(zip(*(each.values() for each in found), strict=True)) != list(EXPECTED.values()):
        raise SystemExit(f"DIFFERENT: complaints: {found}")
    for name, version in zip(known, PROJECTS, strict=False):
        if name not in given.projects:
            continue
        project = Project(name, given.environment.absolute(), folder)
        print(f"== {version}", file=sys.stderr, flush=True)
        row = {"project": version.replace("==", " ")}
        row |= try_all(project, *RUNS[name]) if name in RUNS else {}
        row |= try_training(project, *MORE_RUNS[name]) if name in MORE_RUNS else {}
        row["modules"] = compare_imports(project)
        row["names"] = compare_names(project)
        if not given.no_configs:
            row["configs"] = compare_configs(project)
        tables.setdefault(tuple(row), []).append(row)
    for columns, rows in tables.items():
        print("| " + " | ".join(columns) + " |\n| " + " | ".join("---" for _ in columns) + " |")
        for row in rows:
            print("| " + " | ".join(row.values()) + " |")
    if not given.folder:
        shutil.rmtree(folder)
    return int("DIFFERENT" in str(tables))


if __name__ == "__main__":
    raise SystemExit(main())
