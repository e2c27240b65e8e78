"""BaseTrainer: the config, the hooks, the parts and the checkpoints of a trainer. The loop is in `default_trainer`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hookline.checkpoint import store
from hookline.common import rng
from hookline.dialects.errors import HookTypeError
from hookline.dialects.pointrix.engine import parts
from hookline.dialects.pointrix.engine.running import TrainerRecords, TrainerStages, hooks_see_failures
from hookline.dialects.pointrix.engine.state import TrainerContents
from hookline.dialects.pointrix.hook import parse_hooks
from hookline.dialects.pointrix.hook.hooks import HookList
from hookline.dialects.pointrix.hook.points import POINTS, SCOPES
from hookline.dialects.pointrix.logger import Logger
from hookline.dialects.pointrix.utils.checkpoints import NAME, NAMES
from hookline.dialects.pointrix.utils.config import config_to_primitive, parse_structured
from hookline.engine.numerics import bad_loss
from hookline.errors import ConfigError, HookError, StorageError
from hookline.hooks.runtime_info import number_of
from hookline.plan.callers import failing_call
from hookline.plan.plan import Plan
from hookline.resume.contract import Contract
from hookline.resume.start import Start
from hookline.run.handling import Validations, Windows
from hookline.run.hints import Hints
from hookline.run.keep import Choices
from hookline.run.position import Current, Position
from hookline.run.requests import Requests
from hookline.run.save_request import SaveRequest
from hookline.state.host import Host
from hookline.state.loading import Loading
from hookline.state.saving import Saving
from hookline.strategies import one_process, pick_device

#: A text that can only be meant as a device, even if this machine or torch has no such device.
DEVICE = re.compile(r"(auto|cpu|cuda|gpu|mps|xpu|npu|hpu|mtia|meta)[:_ ]?\d*", re.IGNORECASE)


class TrainerContract(Contract):
    """Resumes a trainer from a checkpoint: its model grows to the size of the saved one."""

    def __init__(self, trainer: BaseTrainer) -> None:
        super().__init__(trainer, Choices(trainer.cfg.resume))
        self._trainer = trainer

    def begin_again(self) -> None:
        """Forget an earlier call of `train_loop`: each one starts at its first step, or at a checkpoint."""
        trainer, self.choices.resume = self._trainer, self._trainer.cfg.resume
        trainer.requests.resume_training()
        trainer.saving.forget()
        trainer.start.forget()
        trainer.position.validated_at = Position.validated_at

    def prepare(self, checkpoint: dict[str, Any]) -> None:
        """Grow the model to the size of the saved one."""
        self._trainer.grow_model(checkpoint)

    def tell_position(self, checkpoint: Mapping[str, Any]) -> None:
        """Report the position, and continue with the step after it."""
        trainer, step, say = self._trainer, self._trainer.position.iter, self._trainer.terminal.say
        trainer.start_steps = step + 1
        say(f"resumed from {trainer.saving.last_path}: step {step}")
        if step >= trainer.cfg.max_steps:
            say(f"training is already finished: {step} steps; to train longer, increase max_steps")
        elif parts.may_lose_state(trainer.datapipeline):
            say(
                f"{type(trainer.datapipeline).__name__} has no state_dict: the resumed run is exact only if the batch "
                "that its next_train(step) returns depends only on the step; otherwise, add state_dict and "
                "load_state_dict"
            )


def looks_like_device(text: str) -> bool:
    """Return whether a text names a device, or is a near miss of such a name, and not the name of an experiment.

    >>> [looks_like_device(text) for text in ("cuda:1", "CUDA0", "gpu", "garden", "cuda-garden")]
    [True, True, True, False, False]
    """
    return not text or DEVICE.fullmatch(text) is not None


class BaseTrainer(Host):
    """A trainer without its loop: the config, the hooks, the parts and the checkpoints.

    The sections `datapipeline`, `model`, `renderer`, `writer`, `scheduler` and `optimizer` of the config are built in
    this order, after `before_run`. An empty section builds nothing; then a subclass sets the part itself after
    `super().__init__`.

    Args:
        cfg: The fields of `Config`: a mapping, an OmegaConf node or a `Config`. It is not changed.
        exp_dir: The folder of the run.
        device: The device of the model. The default is the device of the config. A text that is not like the name of a
            device is the name of the experiment, as in Pointrix's launch scripts.
        name: The name of the experiment. The default is the name of the folder.
    """

    #: The parts. They do not exist yet in `before_run`; afterwards, a part that was not built is None.
    datapipeline: Any
    model: Any
    renderer: Any
    schedulers: Any
    optimizer: Any
    white_bg: bool
    records: TrainerRecords
    #: The counters that the note on an error shows.
    noted_counters = ("global_step",)
    checkpoint_names = NAMES

    @dataclass
    class Config:
        """The fields of a trainer's config."""

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
        #: The number of steps between two validations; the last step is also validated. 0 or less: no validation.
        val_interval: int = 2000
        spatial_lr_scale: bool = True
        bar_upd_interval: int = 10
        output_path: str = "output"
        #: The number of steps between two checkpoints of CheckPointHook.
        save_step: int = 40000
        enable_gui: bool = True
        #: True resumes from the newest checkpoint of the folder, a path from that checkpoint.
        resume: Any = False
        #: Write report.html, a page about the run, when it has ended.
        report: bool = True
        #: The seed for all random generators, set before anything is built; None does not seed them.
        seed: int | None = None

    def __init__(self, cfg: Any, exp_dir: str | Path, device: str | None = None, name: str | None = None) -> None:
        if not isinstance(exp_dir, (str, os.PathLike)):
            raise ConfigError(
                f"exp_dir must be the path of the folder of the run, not {exp_dir!r}; load_config builds one from "
                "output_path and name: cfg.exp_dir"
            )
        self.exp_dir = exp_dir
        self.hints = Hints("the same trainer with resume: true in its config", weights="see load_model", unit="step")
        self.records, self.stages = TrainerRecords(self), TrainerStages(self)
        self.start_steps = 1
        self.global_step = 0
        self.cfg: Any = parse_structured(self.Config, cfg)
        if name is None and isinstance(device, str) and not looks_like_device(device):
            device, name = None, device
        self.device = self._choose_device(cfg, device)
        self.name = name or Path(exp_dir).resolve().name
        self.terminal = Logger.terminal
        self.strategy = one_process("a trainer of Pointrix", "each would add and remove points on its own")
        self.position, self.current, self.requests = Position(), Current(), Requests()
        self.saving, self.loading = Saving(self), Loading(self)
        self.start = Start(self, TrainerContract(self))
        self.contents = TrainerContents(self)
        self.windows, self.evaluation = Windows(), self._new_validations()
        self.loss_dict: dict[str, Any] = {}
        self.metric_dict: dict[str, Any] = {}
        self.optimizer_dict: dict[str, Any] = {}
        self.plan = Plan(self, table=POINTS, scopes=SCOPES, open=True)
        self.hooks = parse_hooks(self.cfg.hooks)
        self.terminal.prepare()
        if self.cfg.seed is not None:
            rng.seed_everything(self.cfg.seed)
        with hooks_see_failures(self.plan):
            self.call_hook("before_run")
            parts.build(self)

    def _choose_device(self, cfg: Any, device: str | None) -> str:
        given = device is not None or "device" in (config_to_primitive(cfg) or {})
        wanted = device if device is not None else self.cfg.device
        if not given:
            wanted = "auto"  # the config's default is a GPU, and not every machine has one
        return str(pick_device(wanted))

    # -- hooks

    @property
    def hooks(self) -> HookList:
        """Return the hooks in the order in which they run, as a list that may be changed. Assign to replace them."""
        return HookList(self.plan)

    @hooks.setter
    def hooks(self, hooks: Iterable[Any] | None) -> None:
        HookList(self.plan).replace(hooks or ())

    def register_hook(self, hook: Any, priority: str | int | None = None) -> None:
        """Add a hook, even during training. It is called from the next point on."""
        self.plan.add(hook, priority)

    def call_hook(self, fn_name: str, **kwargs: Any) -> None:
        """Call the hooks at a point, or all hooks with a method of this name, with the trainer and the arguments.

        An exception from a hook keeps its type and its traceback, and gains a note that names the hook. The text of a
        TypeError also ends with the hook, as in Pointrix. A name that is a near miss of a point is refused.
        """
        try:
            self.plan.call(fn_name, kwargs)
        except TypeError as error:
            if (call := failing_call(error, fn_name)) is not None:
                error.args = (f"{error} in {getattr(call.method, '__self__', call.method)}",)
            raise
        except HookError as error:
            if type(error) is not HookError or hasattr(error, "__notes__"):
                raise
            raise HookTypeError(str(error)) from error

    # -- the writer, under both of its names

    @property
    def writer(self) -> Any:
        """Return the writer, which gets numbers and images; None if there is no writer."""
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
        """Return the number of finished steps."""
        return max(self.global_step - 1, 0)

    @property
    def validations(self) -> int:
        """Return the number of finished validations."""
        return self.position.validations

    #: There are no epochs: no step is the last one of its epoch.
    ends_epoch = False

    # -- the session

    def _new_validations(self) -> Validations:
        """Return the validations that requests may run: none, without a loop."""
        return Validations()

    @property
    def work_dir(self) -> Path:  # type: ignore[override]  # known to users as exp_dir
        """Return the folder of the run."""
        return Path(self.exp_dir)

    @property
    def experiment_name(self) -> str:  # type: ignore[override]  # known to users as name
        """Return the name of the run."""
        return self.name

    def check_loss(self) -> None:
        """End the run if the newest loss is NaN or Inf. It is checked where it is read anyway, and at the end."""
        loss = number_of(self.loss_dict.get("loss"))
        if loss is not None and not math.isfinite(loss):
            raise bad_loss(float(loss), f"by step {self.position.iter}", "the learning rate and the data")

    def checkpoint_name(self, request: SaveRequest) -> str:
        """Return `chkpnt00500.pth`, or the requested name."""
        return request.name(self.position) if request.name is not None else NAME.format(self.position.iter)

    # -- checkpoints

    def request_save(self, name: str | None = None, done: Callable[[Path], None] | None = None) -> None:
        """Save a checkpoint when the current step or validation is complete, after all of its hooks.

        Args:
            name: The name of the file in the folder of the run. The default is `chkpnt<step>.pth`.
            done: Called with the path when the checkpoint is on disk.
        """
        self.requests.ask_save(SaveRequest(name=None if name is None else lambda position: name, done=done))

    def save_model(self, path: str | Path | None = None) -> Path:
        """Write a checkpoint of the current state of the trainer at once, and return its path.

        Inside the loop, a step may be half done, so a run cannot resume from such a file. Use `request_save` instead.
        """
        return self.saving.write_now(Path(path) if path is not None else self.saving.path(), complete=not self.running)

    def load_model(self, path: str | Path) -> None:
        """Load only the model's weights from a checkpoint, also from one that Pointrix wrote."""
        checkpoint = parts.with_native_keys(store.read(Path(path), sealed=False), self.model)
        if "state_dict" not in checkpoint:
            raise StorageError(
                f"{path} has no weights: it has no state_dict, model or point_cloud, only "
                f"{', '.join(map(str, checkpoint)) or 'nothing'}"
            )
        self.call_hook("after_load_checkpoint", checkpoint=checkpoint)
        self.grow_model(checkpoint)
        problems = parts.model_misfits(self.model, checkpoint["state_dict"])
        if problems:
            raise StorageError(f"{path} does not fit the model; nothing was loaded:\n  " + "\n  ".join(problems))
        self.model.load_state_dict(dict(checkpoint["state_dict"]))

    def grow_model(self, checkpoint: dict[str, Any]) -> None:
        """Grow the model to the size of the one in a checkpoint; called before the shapes are checked.

        By default, the parameters and buffers of `model.point_cloud` get as many points as the checkpoint has. If the
        points are elsewhere, override this and call `fit_lengths(self.model, checkpoint["state_dict"])`, from
        `hookline.checkpoint.compatibility`.
        """
        parts.fit_point_cloud(self.model, checkpoint["state_dict"])
