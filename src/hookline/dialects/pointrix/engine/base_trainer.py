"""BaseTrainer: config, hooks and parts of a trainer, and its checkpoints. The loop is in `default_trainer`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hookline.common import rng
from hookline.dialects.pointrix.engine import parts
from hookline.dialects.pointrix.engine.running import failures_told
from hookline.dialects.pointrix.engine.saving import Saving
from hookline.dialects.pointrix.hook import parse_hooks
from hookline.dialects.pointrix.hook.points import POINTS, SCOPES
from hookline.dialects.pointrix.logger import Logger
from hookline.dialects.pointrix.utils.config import config_to_primitive, parse_structured
from hookline.engine.position import Position
from hookline.errors import ConfigError, HookError, NumericsError
from hookline.hooks.runtime_info import number_of
from hookline.plan.plan import Plan
from hookline.strategies import pick_device


class WrongCallError(HookError, TypeError):
    """A point was called that hooks cannot answer: its name, or its arguments."""


class BaseTrainer:
    """What a trainer consists of.

    The sections `datapipeline`, `model`, `renderer`, `writer`, `scheduler` and `optimizer` of the config are built in
    this order, after `before_run`. An empty one builds nothing: a subclass sets the part itself after
    `super().__init__`.

    Args:
        cfg: The fields of `Config`: a mapping, an OmegaConf node or a `Config`. It stays as it is.
        exp_dir: The folder of the run.
        device: Where the model is; what the config says, unless given.
        name: The name of the experiment; the folder's name, unless given.
    """

    #: The parts. In `before_run` there are none yet; one that nobody has made is None.
    datapipeline: Any
    model: Any
    renderer: Any
    schedulers: Any
    optimizer: Any
    white_bg: bool
    #: What notes on errors say of where a run stands.
    noted_counters = ("global_step",)

    @dataclass
    class Config:
        """What a trainer's config may say."""

        model: dict[str, Any] = field(default_factory=dict)
        renderer: dict[str, Any] = field(default_factory=dict)
        optimizer: dict[str, Any] = field(default_factory=dict)
        scheduler: dict[str, Any] | None = field(default_factory=dict)
        writer: dict[str, Any] = field(default_factory=dict)
        hooks: dict[str, Any] = field(default_factory=dict)
        exporter: dict[str, Any] = field(default_factory=dict)
        controller: dict[str, Any] = field(default_factory=dict)
        gui: dict[str, Any] = field(default_factory=dict)
        dataset_name: str = "NeRFDataset"
        datapipeline: dict[str, Any] = field(default_factory=dict)
        device: str = "cuda"
        training: bool = True
        test_model_path: str = ""
        batch_size: int = 1
        num_workers: int = 0
        max_steps: int = 30000
        #: Every how many steps to validate, and after the last; 0 or less never does.
        val_interval: int = 2000
        spatial_lr_scale: bool = True
        bar_upd_interval: int = 10
        output_path: str = "output"
        #: Every how many steps CheckPointHook saves.
        save_step: int = 40000
        enable_gui: bool = True
        #: Go on from the newest checkpoint of the folder, or from the one of this path.
        resume: Any = False
        #: What all random generators are seeded with before anything is built; None leaves them alone.
        seed: int | None = None

    def __init__(self, cfg: Any, exp_dir: str | Path, device: str | None = None, name: str | None = None) -> None:
        if not isinstance(exp_dir, (str, os.PathLike)):
            raise ConfigError(
                f"exp_dir is the path of the folder of the run, not {exp_dir!r}; load_config makes one of output_path "
                "and name: cfg.exp_dir"
            )
        self.exp_dir = exp_dir
        self.start_steps = 1
        self.global_step = 0
        self.cfg: Any = parse_structured(self.Config, cfg)
        self.device = self._device(cfg, device)
        self.name = name or Path(exp_dir).resolve().name
        #: What a signal asks for, and the terminal; see `hookline.engine.signals`.
        self.terminal, self.signalled, self.asked = Logger.terminal, 0, False
        self.position = Position()
        self.saving = Saving(self)
        self.running = False
        self.loss_dict: dict[str, Any] = {}
        self.metric_dict: dict[str, Any] = {}
        self.optimizer_dict: dict[str, Any] = {}
        self.plan = Plan(self, table=POINTS, scopes=SCOPES, open=True)
        self.hooks = parse_hooks(self.cfg.hooks)
        self.terminal.prepare()
        if self.cfg.seed is not None:
            rng.seed_everything(self.cfg.seed)
        with failures_told(self.plan):
            self.call_hook("before_run")
            parts.build(self)

    def _device(self, cfg: Any, device: str | None) -> str:
        said = device is not None or "device" in (config_to_primitive(cfg) or {})
        wanted = device if device is not None else self.cfg.device
        if not said:
            wanted = "auto"  # the config's default is a GPU, and not every machine has one
        return str(pick_device(wanted))

    # -- hooks

    @property
    def hooks(self) -> tuple[Any, ...]:
        """The hooks in the order in which they run; all of them may be replaced, one more is for `register_hook`."""
        return tuple(entry.hook for entry in self.plan)

    @hooks.setter
    def hooks(self, hooks: Iterable[Any] | None) -> None:
        for hook in self.hooks:
            self.plan.remove(hook)
        for hook in hooks or ():
            self.plan.add(hook)

    def register_hook(self, hook: Any, priority: str | int | None = None) -> None:
        """Add a hook, also while training; it takes part from the next point on."""
        self.plan.add(hook, priority)

    def call_hook(self, fn_name: str, **kwargs: Any) -> None:
        """Call the hooks at a point, or those that have a method of this name, with the trainer and what is given.

        What a hook raises keeps its type and its traceback, and gains a note that names the hook. A name that is nearly
        a point's is refused.
        """
        try:
            self.plan.call(fn_name, kwargs)
        except HookError as error:
            if type(error) is not HookError or hasattr(error, "__notes__"):
                raise
            raise WrongCallError(str(error)) from error

    # -- the writer, under both of its names

    @property
    def writer(self) -> Any:
        """Where numbers and images go; None without one."""
        try:
            return self.__dict__["_writer"]
        except KeyError:
            raise AttributeError("the trainer has no writer yet") from None

    @writer.setter
    def writer(self, writer: Any) -> None:
        if hasattr(writer, "hold") and not self.running:
            writer.hold()
        self.__dict__["_writer"] = writer

    logger = writer

    # -- counters, as a plan and a checkpoint need them

    @property
    def iter(self) -> int:
        """Finished steps."""
        return max(self.global_step - 1, 0)

    @property
    def validations(self) -> int:
        """Finished validations."""
        return self.position.validations

    def refuse_infinite_loss(self) -> None:
        """End the run when the loss of the newest step is NaN or Inf: asked where it is read anyway, and at the end."""
        loss = number_of(self.loss_dict.get("loss"))
        if loss is not None and not math.isfinite(loss):
            raise NumericsError(
                f"the loss has become {float(loss)} by step {self.position.iter}, so training cannot go on; look at "
                "the learning rate and the data"
            )

    # -- checkpoints

    def request_save(self, name: str | None = None, done: Callable[[Path], None] | None = None) -> None:
        """Save a checkpoint where nothing is half done: after this step or validation, after all hooks.

        Args:
            name: The name of the file in the folder of the run; `chkpnt<step>.pth`, unless given.
            done: Called with the path when it is on the disk.
        """
        self.saving.ask(name, done)

    def save_model(self, path: str | Path | None = None) -> Path:
        """Write a checkpoint of the trainer as it is now; gives where it is.

        Inside the loop that is in the middle of a step, so a run cannot go on from such a file: see `request_save`.
        """
        return self.saving.write(Path(path) if path is not None else self.saving.path(), complete=not self.running)

    def load_model(self, path: str | Path) -> None:
        """Take the model's weights from a checkpoint, and nothing else."""
        self.saving.load_weights(Path(path))

    def grow_model(self, checkpoint: dict[str, Any]) -> None:
        """Make the model as large as the one in a checkpoint; called before the shapes are checked.

        As it is, the parameters and buffers of `model.point_cloud` get as many points as the checkpoint has. Where
        points are elsewhere: `fit_lengths(self.model, checkpoint["state_dict"])`, from
        `hookline.checkpoint.compatibility`.
        """
        parts.fit_point_cloud(self.model, checkpoint["state_dict"])
