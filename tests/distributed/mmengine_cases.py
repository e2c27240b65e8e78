"""A small project for MMEngine, on several processes, with the real package or with hookline's dialect."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import pickle
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.utils.data import DataLoader, TensorDataset

from hookline.dialects.mmengine.dist import get_default_group, master_only
from hookline.dialects.mmengine.evaluator import DumpResults
from hookline.dialects.mmengine.model import MMDistributedDataParallel, is_model_wrapper
from hookline.dialects.mmengine.optim import OptimWrapper, OptimWrapperDict
from hookline.dialects.mmengine.registry import MODEL_WRAPPERS
from tests.distributed.cases import main

OURS = "hookline.dialects.mmengine"


@functools.cache
def project(package: str) -> Any:
    """Return the model, the metric and a hook, on top of the package."""
    names = {"evaluator": "BaseMetric", "hooks": "Hook", "model": "BaseModel"}
    found = {name: getattr(importlib.import_module(f"{package}.{module}"), name) for module, name in names.items()}
    metric_base, hook_base, model_base = found["BaseMetric"], found["Hook"], found["BaseModel"]

    class Net(model_base):  # type: ignore[misc, valid-type]  # of either package
        """A net with statistics that differ between processes."""

        def __init__(self, unused: bool = False) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
            if unused:
                self.spare = nn.Linear(2, 2)

        def forward(self, inputs: Tensor, labels: Tensor, mode: str = "tensor") -> Any:
            outputs = self.net(inputs)
            if mode == "loss":
                return {"loss": nn.functional.cross_entropy(outputs, labels)}
            return list(zip(inputs[:, 0].tolist(), outputs.argmax(1).eq(labels).tolist(), strict=True))

    class Right(metric_base):  # type: ignore[misc, valid-type]
        """Counts right answers, and remembers which samples it has seen, in which order."""

        seen: list[list[float]] = []  # noqa: RUF012  # shared on purpose

        def process(self, data_batch: Any, data_samples: Any) -> None:
            self.results.extend(data_samples)

        def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
            self.seen.append([sample for sample, _ in results])
            return {"right": sum(right for _, right in results) / len(results), "samples": len(results)}

    class Acts(hook_base):  # type: ignore[misc, valid-type]
        """Does something in one process after one iteration."""

        def __init__(self, iteration: int, rank: int, what: str) -> None:
            self.iteration, self.rank, self.what = iteration, rank, what

        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            """Act."""
            if runner.iter + 1 != self.iteration or runner.rank != self.rank:
                return
            if self.what == "raise":
                raise ValueError("planted")
            if self.what == "save":
                runner.save_checkpoint(str(runner.work_dir), "asked.pth")
            else:
                os.kill(os.getpid(), getattr(signal, self.what))

    return SimpleNamespace(Net=Net, Right=Right, Acts=Acts)


def dataset(samples: int, seed: int) -> TensorDataset:
    """Return samples, the same in every process. The first number of each is its index."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 4, generator=generator)
    inputs[:, 0] = torch.arange(samples)
    return TensorDataset(inputs, torch.randint(3, (samples,), generator=generator))


def loader(samples: int, seed: int, **options: Any) -> dict[str, Any]:
    """Return the config of a loader."""
    return {
        "dataset": dataset(samples, seed),
        "sampler": {"type": "DefaultSampler", "shuffle": False},
        "batch_size": 4,
        "collate_fn": {"type": "default_collate"},
        **options,
    }


def build(folder: str, package: str = OURS, **parts: Any) -> Any:
    """Return a run of the project."""
    torch.manual_seed(0)
    made = project(package)
    config: dict[str, Any] = {}
    if package != OURS:  # the original selects a GPU for the group and for the wrapper, and fails without one
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
        config["model_wrapper_cfg"] = {"device_ids": None, "broadcast_buffers": False}
    config |= parts.pop("config", {})
    optim = {"optimizer": {"type": "SGD", "lr": 0.05, "momentum": 0.9}, "clip_grad": {"max_norm": 1.0}}
    runner_module = importlib.import_module(f"{package}.runner")
    config_module = importlib.import_module(f"{package}.config")
    given: dict[str, Any] = {
        "model": made.Net(),
        "work_dir": f"{folder}/run",
        "train_dataloader": loader(21, 0),
        "val_dataloader": loader(9, 1),
        "train_cfg": {"by_epoch": True, "max_epochs": 3},
        "val_cfg": {},
        "val_evaluator": [made.Right()],
        "optim_wrapper": optim,
        "param_scheduler": {"type": "MultiStepLR", "milestones": [1], "by_epoch": True},
        "custom_hooks": [{"type": "SyncBuffersHook"}],
        "launcher": "pytorch",
        "randomness": {"seed": 0},
        "log_level": "WARNING",
        "cfg": config_module.Config(config),
        **parts,
    }
    return runner_module.Runner(**given)


def seen(runner: Any) -> dict[str, Any]:
    """Return what a run has come to."""
    model = getattr(runner.model, "module", runner.model)
    state = {name: value.double() for name, value in model.state_dict().items() if value.is_floating_point()}
    values = torch.cat([value.flatten() for value in state.values()])
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return {
        "iter": runner.iter,
        "values": values.tolist(),
        "weights": weights.tolist(),
        "hash": hashlib.sha256(values.numpy().tobytes()).hexdigest(),
        "rank": runner.rank,
        "world_size": runner.world_size,
        "timestamp": runner.timestamp,
        "seed": runner.seed,
    }


class Counts:
    """Counts how often the gradients are averaged."""

    def __init__(self) -> None:
        self.calls = 0

    def watch(self, runner: Any) -> None:
        """Count from now on."""
        runner.wrapped.register_comm_hook(None, lambda state, bucket: self(bucket))

    def __call__(self, bucket: Any) -> Any:
        self.calls += 1
        return default_hooks.allreduce_hook(get_default_group(), bucket)


def train(folder: str, package: str, accumulates: list[int]) -> dict[str, Any]:
    """Train to the end, with a validation after every epoch, once per size of an accumulation window."""
    found = {}
    for accumulate in accumulates:
        optim = {"optimizer": {"type": "SGD", "lr": 0.05, "momentum": 0.9}, "accumulative_counts": accumulate}
        samples = 21 if accumulate == 1 else 32  # with 32, no window has to extend past an epoch, as it does there
        runner = build(
            f"{folder}/{accumulate}",
            package,
            optim_wrapper=optim,
            train_dataloader=loader(samples, 0),
            experiment_name=f"windows_{accumulate}",  # by default it is a time, which two runs may share
        )
        hub, right, counts = runner.message_hub, project(package).Right, Counts()
        right.seen.clear()
        if package == OURS:
            runner.on("before_train")(counts.watch)
        runner.train()
        metrics = {
            name: [float(each) for each in hub.get_scalar(f"val/{name}").data[0]] for name in ("right", "samples")
        }
        found[str(accumulate)] = seen(runner) | {
            "metrics": metrics,
            "computed": list(right.seen),
            "syncs": counts.calls,
        }
    dist = importlib.import_module(f"{package}.dist")
    return found | {"dist": [dist.get_rank(), dist.get_world_size(), dist.is_main_process()]}


def validate_in_a_hook(folder: str, package: str) -> dict[str, Any]:
    """Train with a hook that validates after every epoch, and after every validation of the loop."""
    base, found = importlib.import_module(f"{package}.hooks").Hook, []

    class Validates(base):  # type: ignore[misc, valid-type]  # of either package
        """Validates again, unless it already does."""

        busy = False

        def validate(self, runner: Any) -> None:
            """Validate."""
            if not self.busy:
                self.busy = True
                found.append(runner.val())
                self.busy = False

        def after_train_epoch(self, runner: Any) -> None:
            """Validate."""
            self.validate(runner)

        def after_val(self, runner: Any) -> None:
            """Validate."""
            self.validate(runner)

    runner = build(folder, package, custom_hooks=[Validates(), {"type": "SyncBuffersHook"}])
    runner.train()
    return seen(runner) | {"found": found}


def act(folder: str, what: str) -> dict[str, Any]:
    """Do something in the second process, in the middle of an epoch."""
    runner = build(folder, custom_hooks=[project(OURS).Acts(4, 1, what)])
    runner.train()
    return seen(runner)


def train_in_parts(folder: str) -> dict[str, Any]:
    """Train three epochs at once, and one after the other with resumes. An average of the weights goes along."""
    found: dict[str, Any] = {}
    hooks = [{"type": "SyncBuffersHook"}, {"type": "EMAHook", "momentum": 0.1}]
    for name, lengths in {"straight": [3], "resumed": [1, 2, 3]}.items():
        for epochs in lengths:
            limits = {"by_epoch": True, "max_epochs": epochs}
            parts: dict[str, Any] = {
                "train_cfg": limits,
                "custom_hooks": hooks,
                "resume": epochs > 1 and name == "resumed",
            }
            runner = build(f"{folder}/{name}", param_scheduler=None, **parts)
            runner.train()
        found[name] = seen(runner)["hash"]
    return found


class Read:
    """Notes the samples of every batch."""

    def __init__(self) -> None:
        self.batches: list[list[float]] = []

    def __call__(self, model: nn.Module, inputs: Any) -> None:
        self.batches.append(inputs[0][:, 0].tolist())


def read_samples(folder: str) -> dict[str, Any]:
    """Return which samples each process trains on and what a metric gets, for several kinds of loaders."""
    endless = {"type": "InfiniteSampler", "shuffle": False}
    loaders: dict[str, Any] = {
        "default": loader(13, 0),
        "uneven": loader(13, 0, sampler={"type": "DefaultSampler", "shuffle": False, "round_up": False}),
        "endless": loader(13, 0, sampler=endless),
        "plain": DataLoader(dataset(13, 0), batch_size=4),
    }
    found: dict[str, Any] = {}
    for name, given in loaders.items():
        made = project(OURS)
        model, read = made.Net(), Read()
        model.register_forward_pre_hook(read)
        limits = {"by_epoch": False, "max_iters": 3} if name == "endless" else {"by_epoch": True, "max_epochs": 1}
        made.Right.seen.clear()
        val = given if name in ("default", "plain") else loader(9, 1)
        runner = build(f"{folder}/{name}", model=model, train_dataloader=given, val_dataloader=val, train_cfg=limits)
        runner.train()
        found[name] = {"read": read.batches[: runner.iter], "metric": made.Right.seen[:1]}
    return found


def wrappers(folder: str) -> dict[str, Any]:
    """Train a model whose parts have their own optimizers, and models in other wrappers."""
    base: Any = project(OURS).Net

    class Pair(base):  # type: ignore[misc]
        """Two nets, trained in turn."""

        def __init__(self) -> None:
            super().__init__()
            self.other = nn.Linear(4, 3)

        def train_step(self, data: Any, optim_wrapper: Any) -> Any:
            losses = {}
            for name in ("net", "other"):
                part = getattr(self, name)
                with optim_wrapper[name].optim_context(part):
                    losses[name] = nn.functional.cross_entropy(part(data[0]), data[1])
                optim_wrapper[name].update_params(losses[name])
            return losses

    class Own(MMDistributedDataParallel):
        """A wrapper of the user."""

        def train_step(self, data: Any, optim_wrapper: Any) -> Any:
            self.steps = getattr(self, "steps", 0) + 1
            return super().train_step(data, optim_wrapper)

    def build_with(name: str, model: nn.Module, *names: str, **config: Any) -> Any:
        optims = {part: OptimWrapper(torch.optim.SGD(model.get_submodule(part).parameters(), lr=0.1)) for part in names}
        optim = OptimWrapperDict(**optims) if len(optims) == 2 else optims["net"]
        given: dict[str, Any] = {"optim_wrapper": optim, "param_scheduler": None, "custom_hooks": [], "config": config}
        return build(f"{folder}/{name}", model=model, **given)

    separate = {"type": "MMSeparateDistributedDataParallel"}
    pair = build_with("pair", Pair(), "net", "other", model_wrapper_cfg=separate)
    pair.train()
    saved = torch.load(f"{folder}/pair/run/epoch_3.pth", weights_only=True)["state_dict"]
    MODEL_WRAPPERS.register_module(module=Own)
    own = build_with("own", base(), "net", model_wrapper_cfg={"type": "Own", "broadcast_buffers": False})
    own.train()
    spare = build_with("spare", base(unused=True), "net", find_unused_parameters=True)
    spare.train()
    told = {"detect_anomalous_params": True, "find_unused_parameters": True}
    build_with("told", base(unused=True), "net", model_wrapper_cfg=told).train()
    return {
        "pair": seen(pair)["weights"],
        "same": list(saved) == list(pair.model.state_dict()),
        "names": [name for name in saved if "module" in name],
        "own": [type(own.wrapped).__name__, own.wrapped.steps, own.iter, is_model_wrapper(own.wrapped)],
        "spare": seen(spare)["weights"],
    }


def odds_and_ends(folder: str) -> dict[str, Any]:
    """Save from one process only, write predictions, and seed each process differently."""
    runner = build(
        folder,
        randomness={"seed": None, "diff_rank_seed": True},
        custom_hooks=[project(OURS).Acts(4, 1, "save")],
        val_evaluator=[project(OURS).Right(), DumpResults(f"{folder}/all.pkl")],
        env_cfg={"dist_cfg": {"backend": "nccl", "timeout": 77}},
    )

    def save(runner: Any) -> None:
        master_only(runner.save_checkpoint)(str(runner.work_dir), "first.pth")

    runner.on("before_train")(save)
    runner.train()
    return {
        "seeds": [runner.seed, runner._host.seed_of_process],
        "timeout": runner.strategy.group.timeout,
        "files": sorted(path.name for path in Path(folder, "run").glob("*.pth")),
        "dumped": [sample for sample, _ in pickle.loads(Path(folder, "all.pkl").read_bytes())],
    }


def parts(folder: str) -> dict[str, Any]:
    """Run everything above in one go."""
    cases = (odds_and_ends, train_in_parts, read_samples, wrappers)
    return {case.__name__: case(f"{folder}/{case.__name__}") for case in cases}


if __name__ == "__main__":
    main(globals())
