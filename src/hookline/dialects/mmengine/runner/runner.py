"""Runner, with MMEngine's constructor and attributes on top of hookline's runner."""

from __future__ import annotations

import inspect
import logging
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch

from hookline.checkpoint import seal, store
from hookline.common import rng
from hookline.common.checks import check_int
from hookline.common.forwarding import forwarded
from hookline.common.plain import check_plain, without_numpy
from hookline.dialects.keys import refuse_near_misses
from hookline.dialects.mmengine.config import Config
from hookline.dialects.mmengine.dist import broadcast_object_list, init_dist, is_distributed, master_only
from hookline.dialects.mmengine.dist.launchers import check_launcher
from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError, ConfigValueError, NotDescribedError
from hookline.dialects.mmengine.evaluator import Evaluator
from hookline.dialects.mmengine.hooks.hook import unused_points
from hookline.dialects.mmengine.hooks.storage import refuse_other_storage
from hookline.dialects.mmengine.logging import MessageHub, MMLogger
from hookline.dialects.mmengine.model import convert_sync_batchnorm, is_model_wrapper
from hookline.dialects.mmengine.model.utils import revert_sync_batchnorm
from hookline.dialects.mmengine.optim import build_optim_wrapper, build_param_schedulers
from hookline.dialects.mmengine.registry import EVALUATOR, LOG_PROCESSORS, VISUALIZERS, init_default_scope
from hookline.dialects.mmengine.runner import adopted_loops, building, checkpoint
from hookline.dialects.mmengine.runner import strategy as strategies
from hookline.dialects.mmengine.runner.activation_checkpointing import turn_on_activation_checkpointing
from hookline.dialects.mmengine.runner.counters import Counters
from hookline.dialects.mmengine.runner.driving import MMHost
from hookline.dialects.mmengine.runner.folder import WorkDir
from hookline.dialects.mmengine.runner.log_processor import LogProcessor
from hookline.dialects.mmengine.runner.utils import set_random_seed
from hookline.dialects.plain import plain_data
from hookline.optim.optims import Optims
from hookline.plan.callers import call_in_progress
from hookline.plan.registry import DEFAULT_HOOKS
from hookline.run.save_request import SaveRequest
from hookline.runner import runner as native
from hookline.state import snapshot
from hookline.strategies import Strategy, unwrap

if TYPE_CHECKING:
    from torch import nn

    from hookline.engine.loop_specs import EvalLoop, TrainLoop

#: Points at which no step is half done, so a run can resume from a checkpoint that is written there.
ConfigType = OptimWrapperType = ParamSchedulerType = Any
AT_REST = ("before_run", "before_train", "after_train", "after_run")


class Runner(native.Runner):
    """Trains, validates and tests a model. Its parts are given as objects or as dicts that describe them.

    Nothing is built before it is needed: `test()` does not build the training data.

    Args:
        model: The model, with the methods `train_step`, `val_step` and `test_step` of BaseModel.
        work_dir: The folder of the run.
        train_dataloader: The dataloader for training, or a dict that describes it.
        val_dataloader: The same for validation.
        test_dataloader: The same for testing.
        train_cfg: `dict(by_epoch=True, max_epochs=3, val_interval=1)`, a dict with the `type` of a loop, or a loop.
        val_cfg: `dict()`, optionally with `fp16`, or a loop.
        test_cfg: The same for testing.
        auto_scale_lr: `dict(enable=True, base_batch_size=16)` multiplies learning rates by the ratio of batch sizes.
        optim_wrapper: `dict(optimizer=dict(type="SGD", lr=0.1))`, an OptimWrapper, or an OptimWrapperDict.
        param_scheduler: Schedulers, or dicts that describe them.
        val_evaluator: An Evaluator, metrics, or dicts that describe them.
        test_evaluator: The same for testing.
        default_hooks: Changes to the default hooks by key. None removes a hook, and a new key adds one.
        custom_hooks: Additional hooks: objects, or dicts with a `type`.
        data_preprocessor: The data preprocessor for a model that is given as a dict without one.
        load_from: A checkpoint whose weights the model starts with. Checkpoints from MMEngine work, too.
        resume: Resume from `load_from`, or from the newest checkpoint in work_dir.
        launcher: What started the processes: `none` (one process), `pytorch` (torchrun), `slurm` or `mpi`.
        env_cfg: Only `cudnn_benchmark` and `dist_cfg` have an effect.
        log_processor: A LogProcessor, or a dict that describes it. It decides how numbers are shown.
        log_level: Above `INFO`, nothing is shown in the terminal. run.log still has everything.
        visualizer: A Visualizer, or a dict that describes it.
        default_scope: The scope whose registries are searched first.
        randomness: `dict(seed=0)`, optionally with `deterministic`.
        experiment_name: The name of the run. Defaults to the name of the folder.
        cfg: The complete config, which is stored with the run.
    """

    open_points: ClassVar[bool] = True
    _host_class: ClassVar[type[MMHost]] = MMHost
    _host: MMHost
    cfg: Any
    #: What a loop of the project passed to the hooks of the last iteration, and of the last evaluation.
    outputs_of_hooks: Any = None
    metrics_of_hooks: Mapping[str, Any]
    hub: MessageHub
    message_hub: MessageHub

    def __init__(
        self,
        model: Any,
        work_dir: str | Path,
        train_dataloader: Any = None,
        val_dataloader: Any = None,
        test_dataloader: Any = None,
        train_cfg: Any = None,
        val_cfg: Any = None,
        test_cfg: Any = None,
        auto_scale_lr: Mapping[str, Any] | None = None,
        optim_wrapper: Any = None,
        param_scheduler: Any = None,
        val_evaluator: Any = None,
        test_evaluator: Any = None,
        default_hooks: Mapping[str, Any] | None = None,
        custom_hooks: Sequence[Any] | None = None,
        data_preprocessor: Any = None,
        load_from: str | Path | None = None,
        resume: bool = False,
        launcher: str = "none",
        env_cfg: Mapping[str, Any] | None = None,
        log_processor: Any = None,
        log_level: int | str = "INFO",
        visualizer: Any = None,
        default_scope: str = "mmengine",
        randomness: Mapping[str, Any] | None = None,
        experiment_name: str | None = None,
        cfg: Any = None,
    ) -> None:
        self._given: dict[str, dict[str, Any]] = {
            "train": {"train_dataloader": train_dataloader, "train_cfg": train_cfg, "optim_wrapper": optim_wrapper},
            "val": {"val_dataloader": val_dataloader, "val_cfg": val_cfg, "val_evaluator": val_evaluator},
            "test": {"test_dataloader": test_dataloader, "test_cfg": test_cfg, "test_evaluator": test_evaluator},
        }
        building.refuse_incomplete(**self._given)
        building.refuse_wrong_types(work_dir, resume, custom_hooks)
        if param_scheduler is not None and optim_wrapper is None:
            raise ConfigValueError("param_scheduler needs an optim_wrapper whose learning rates it can change")
        self._param_scheduler, self._auto_scale_lr = param_scheduler, auto_scale_lr
        self._param_schedulers: Any = None
        self._weights_begun = False
        self.launcher = check_launcher(launcher)
        init_default_scope(default_scope)
        self.cfg = cfg if cfg is not None else Config({})
        self.setup_env(env_cfg or {})
        self.set_randomness(**building.randomness(randomness))
        built = self.build_model(building.with_preprocessor(model, data_preprocessor))
        self._state_after_model = rng.state()
        super().__init__(
            built,
            default_hooks=dict.fromkeys(DEFAULT_HOOKS),
            work_dir=work_dir,
            experiment_name=experiment_name,
            strategy=self._build_strategy(env_cfg or {}),
            seed=self._seed,
            load_from=None if resume else load_from,
            resume=load_from if resume and load_from is not None else resume,
            config=plain_data(self.cfg) if cfg is not None else None,
            quiet=building.level_of(log_level) > logging.INFO,
        )
        self._host.start.contract.choices.seed_is_chosen = self._seed_is_chosen
        self.work_dir = WorkDir(work_dir)
        self._resume, self._load_from = bool(resume), load_from
        self.hub = self.message_hub = self.build_message_hub()
        self.logger = self.build_logger(building.level_of(log_level))
        self.log_processor = self.build_log_processor(log_processor)
        self.visualizer = self.build_visualizer(visualizer)
        if hasattr(self.visualizer, "join"):
            self.visualizer.join(self)
        self.register_hooks(default_hooks, custom_hooks)

    @classmethod
    def from_cfg(cls, cfg: Any) -> Self:
        """Build a runner from a config whose keys are the constructor's parameters."""
        keys = [name for name in inspect.signature(Runner).parameters if name != "cfg"]
        refuse_near_misses("the config", cfg, keys, ConfigKeyError)
        given = {name: cfg.get(name) for name in keys if cfg.get(name) is not None}
        for name in ("model", "work_dir"):
            if name not in given:
                raise ConfigValueError(f"the config needs '{name}'; it only has {', '.join(sorted(map(str, cfg)))}")
        return cls(**given, cfg=cfg)

    # -- starting

    def train(self) -> nn.Module:
        """Train until the end or a stop, and return the trained model."""
        if not isinstance(self.train_loop, adopted_loops.OwnTrainLoop):
            building.refuse_without(self.model, "train_step")
        if not self.optims:
            self._build_optim()
        if self.has_validation:
            _ = self.val_loop
        self._begin_weights()
        if (modules := self.cfg.get("activation_checkpointing")) is not None:
            turn_on_activation_checkpointing(self.model, modules)
        building.report_unused_settings(self.cfg)
        return super().train()

    def val(self) -> dict[str, Any]:
        """Validate once and return the metrics."""
        if not isinstance(self.val_loop, adopted_loops.OwnEvalLoop):
            building.refuse_without(self.model, "val_step")
        return super().val()

    def test(self) -> dict[str, Any]:
        """Test once and return the metrics."""
        if not isinstance(self.test_loop, adopted_loops.OwnEvalLoop):
            building.refuse_without(self.model, "test_step")
        return super().test()

    def call_hook(self, point: str, **arguments: Any) -> None:
        """Call the hooks at a point, and keep what a loop of the project passes to them."""
        if point == "after_train_iter":
            self.outputs_of_hooks = arguments.get("outputs")
        elif point in ("after_val_epoch", "after_test_epoch"):
            self.metrics_of_hooks = arguments.get("metrics") or {}
        self.follow_loop()
        super().call_hook(point, **arguments)

    def follow_loop(self) -> None:
        """Take the counts of a training loop that keeps its own."""
        if isinstance(self._host.loop_given, Counters):
            self._host.loop_given.follow()

    @property
    def has_validation(self) -> bool:
        """Return whether there is a validation loop."""
        return self._given["val"]["val_cfg"] is not None

    def _build_optim(self) -> None:
        self.optim = self.build_optim_wrapper(self._given["train"]["optim_wrapper"])
        self.scale_lr(self.optim, self._auto_scale_lr)
        self._param_schedulers = self.build_param_scheduler(self._param_scheduler)

    def _begin_weights(self) -> None:
        """Call the model's `init_weights` once. It continues with the random numbers that the constructor drew from."""
        begin = getattr(self.model, "init_weights", None)
        if not self._weights_begun and not self._host.loading.started and begin is not None:
            rng.restore(self._state_after_model)
            if not self.train_loop.by_epoch:  # MMEngine's loop has created an iterator by now, which draws a number
                torch.empty((), dtype=torch.int64).random_()
            begin()
        self._weights_begun = True

    # -- parts, built on first access

    def _described_training(self) -> TrainLoop:
        given = self._given["train"]
        if given["train_cfg"] is None:
            raise NotDescribedError("this run has no training: set train_dataloader, train_cfg and optim_wrapper")
        return self.build_train_loop(given["train_cfg"])

    @property
    def val_loop(self) -> Any:
        """Return the validation loop."""
        if not self.val_loops:
            self._host.val_loops[""] = self.build_val_loop(self._needed("val"))
        return self.val_loops[""]

    @property
    def test_loop(self) -> Any:
        """Return the test loop."""
        if not self.test_loops:
            self._host.test_loops[""] = self.build_test_loop(self._needed("test"))
        return self.test_loops[""]

    def _needed(self, stage: str) -> Any:
        given = self._given[stage]
        if given[f"{stage}_cfg"] is None:
            raise NotDescribedError(f"this run has no {stage} loop: set {', '.join(given)}")
        return given[f"{stage}_cfg"]

    _train_loop: Any = forwarded("_host.loop_given", "Return the training loop; None before it is built.")
    train_dataloader: Any = forwarded("train_loop.dataloader", "Return the dataloader for training.")
    val_dataloader: Any = forwarded("val_loop.dataloader", "Return the dataloader for validation.")
    test_dataloader: Any = forwarded("test_loop.dataloader", "Return the dataloader for testing.")
    val_evaluator: Evaluator = forwarded("val_loop.evaluator", "Return the evaluator of validation.")
    test_evaluator: Evaluator = forwarded("test_loop.evaluator", "Return the evaluator of the test.")

    @property
    def optim_wrapper(self) -> Any:
        """Return the optim, or several by name. Before training, return its config."""
        return self.optim if self.optim is not None else self._given["train"]["optim_wrapper"]

    @optim_wrapper.setter
    def optim_wrapper(self, optim_wrapper: Any) -> None:
        self._given["train"]["optim_wrapper"] = optim_wrapper
        if self.optim is not None or hasattr(optim_wrapper, "update_params"):
            self.optim = optim_wrapper

    @property
    def param_schedulers(self) -> Any:
        """Return the schedulers as a list, or as a dict of lists for several optims. Before training: their config."""
        return self._param_scheduler if self._param_schedulers is None else self._param_schedulers

    @param_schedulers.setter
    def param_schedulers(self, given: Any) -> None:
        """Set the config of the schedulers, before training builds them."""
        if self._param_schedulers is not None:
            raise ConfigValueError(
                "the schedulers are already built; change them in place, or set them before training"
            )
        self._param_scheduler = given

    # -- building; a subclass may override these methods

    def setup_env(self, env_cfg: Mapping[str, Any]) -> None:
        """Apply the settings of the process, and join the group of processes. All of them use one timestamp."""
        if env_cfg.get("cudnn_benchmark"):
            torch.backends.cudnn.benchmark = True
        if self.distributed and not is_distributed():
            init_dist(self.launcher, **env_cfg.get("dist_cfg", {}))
        now = [time.strftime("%Y%m%d_%H%M%S")]
        broadcast_object_list(now)
        self.timestamp = now[0]

    def _build_strategy(self, env_cfg: Mapping[str, Any]) -> Strategy:
        reference = weakref.ref(self)

        def wrap(model: nn.Module) -> nn.Module:
            runner = reference()
            assert runner is not None, "a strategy does not outlive its runner"
            return runner.wrap_model(runner.cfg.get("model_wrapper_cfg"), model)

        if not self.distributed:
            return strategies.OneProcess(wrap)
        return strategies.Wrapped(wrap, env_cfg.get("dist_cfg", {}).get("timeout", strategies.TIMEOUT))

    def wrap_model(self, model_wrapper_cfg: Mapping[str, Any] | None, model: nn.Module) -> nn.Module:
        """Move the model to its device and, with several processes, wrap it."""
        strategies.refuse_wrapped(model, model_wrapper_cfg)
        unwrap(model).to(self.device)
        if not self.distributed or is_model_wrapper(model):
            return model
        if (sync_bn := self.cfg.get("sync_bn")) is not None:
            building.refuse_sync_bn(self.device)
            model = convert_sync_batchnorm(model, sync_bn)
        return strategies.wrap(
            model, model_wrapper_cfg, self.device, unused=bool(self.cfg.get("find_unused_parameters", False))
        )

    def set_randomness(self, seed: int | None, diff_rank_seed: bool = False, deterministic: bool = False) -> None:
        """Seed everything. Without a seed, draw one. With `diff_rank_seed`, each process adds its rank to it."""
        self.deterministic, self._seed_is_chosen = bool(deterministic), seed is not None
        self.diff_rank_seed = bool(diff_rank_seed)
        self._seed = set_random_seed(seed, self.deterministic)
        if hasattr(self, "_host"):
            self._host.seed, self._host.start.contract.choices.seed_is_chosen = self._seed, self._seed_is_chosen

    def build_model(self, model: Any) -> nn.Module:
        """Build the model from its config. In one process, batch norms over several become ordinary ones."""
        built = building.build_model(model)
        return revert_sync_batchnorm(built) if self.launcher == "none" else built

    def build_message_hub(self, message_hub: Mapping[str, Any] | None = None) -> MessageHub:
        """Build the message hub of this run."""
        return MessageHub.make_current(MessageHub(**{"name": self.experiment_name, **(message_hub or {})}))

    def build_logger(self, log_level: int | str = "INFO", log_file: str | None = None, **kwargs: Any) -> MMLogger:
        """Build the logger of this run."""
        made = MMLogger(**{"name": self.experiment_name, "log_file": log_file, "log_level": log_level, **kwargs})
        made.show_in(self.terminal)
        return MMLogger.make_current(made)

    def build_param_scheduler(self, scheduler: Any) -> Any:
        """Build the schedulers for the optim of this run."""
        loop = self.train_loop
        epochs = self.max_epochs if loop.by_epoch else None
        return build_param_schedulers(self.optim, scheduler, loop.length, epochs, self.max_iters)

    @staticmethod
    def build_dataloader(dataloader: Any, seed: int | None = None, diff_rank_seed: bool = False) -> Any:
        """Build a dataloader from its config."""
        from hookline.dialects.mmengine.dataset import build_dataloader

        return build_dataloader(dataloader, seed)

    def build_train_loop(self, loop: Any) -> TrainLoop:
        """Build the training loop from its config."""
        return building.build_train_loop(loop, self, self._given["train"]["train_dataloader"])

    def build_val_loop(self, loop: Any) -> EvalLoop:
        """Build the validation loop from its config."""
        given = self._given["val"]
        return building.build_eval_loop(loop, self, given["val_dataloader"], given["val_evaluator"], "val")

    def build_test_loop(self, loop: Any) -> EvalLoop:
        """Build the test loop from its config."""
        given = self._given["test"]
        return building.build_eval_loop(loop, self, given["test_dataloader"], given["test_evaluator"], "test")

    def build_optim_wrapper(self, optim_wrapper: Any) -> Any:
        """Build the optim from its config."""
        return build_optim_wrapper(self.model, optim_wrapper)

    def build_evaluator(self, evaluator: Any) -> Evaluator:
        """Build an Evaluator from the config of one or several metrics."""
        if isinstance(evaluator, Evaluator):
            return evaluator
        if isinstance(evaluator, Mapping) and "metrics" in evaluator:
            built: Evaluator = EVALUATOR.build({"type": "Evaluator", **evaluator})
            return built
        return Evaluator(evaluator)

    def build_log_processor(self, log_processor: Any) -> LogProcessor:
        """Build the LogProcessor from its config."""
        if isinstance(log_processor, LogProcessor):
            return log_processor
        built = LOG_PROCESSORS.build({"type": "LogProcessor", **(log_processor or {})})
        if not isinstance(built, LogProcessor):
            raise ConfigTypeError(f"log_processor describes a {type(built).__name__}, which is not a LogProcessor")
        return built

    def build_visualizer(self, visualizer: Any) -> Any:
        """Build the visualizer from its config. An existing one with the same name belongs to an earlier run."""
        if visualizer is not None and not isinstance(visualizer, Mapping):
            return visualizer
        described = {"type": "Visualizer", "vis_backends": [{"type": "LocalVisBackend"}], **(visualizer or {})}
        described.setdefault("name", self.experiment_name)
        described.setdefault("save_dir", str(self.log_dir))
        kind = VISUALIZERS.get(described["type"]) if isinstance(described["type"], str) else described["type"]
        forget = getattr(kind, "forget", lambda name: None)
        forget(described["name"])
        built = VISUALIZERS.build(described)
        forget(described["name"])  # it can be found as long as its run exists: see `Visualizer.join`
        return built

    def scale_lr(self, optim_wrapper: Any, auto_scale_lr: Mapping[str, Any] | None = None) -> None:
        """Multiply learning rates by the ratio of the actual batch size to `base_batch_size`."""
        if not auto_scale_lr or not auto_scale_lr.get("enable", False):
            return
        if "base_batch_size" not in auto_scale_lr:
            raise ConfigValueError("auto_scale_lr needs 'base_batch_size', the batch size for these learning rates")
        check_int("auto_scale_lr: base_batch_size", auto_scale_lr["base_batch_size"], least=1)
        ratio = self.world_size * self.train_dataloader.batch_size / auto_scale_lr["base_batch_size"]
        self.logger.info("multiplying learning rates by %s, the ratio of batch sizes", ratio)
        several: Any = optim_wrapper.values() if isinstance(optim_wrapper, Optims) else [optim_wrapper]
        for each in several:
            for group in getattr(each, "param_groups", each.optimizer.param_groups):  # includes the base settings
                group["lr"] *= ratio

    # -- hooks

    def register_hooks(self, default_hooks: Any = None, custom_hooks: Any = None) -> None:
        """Register the default hooks, with changes, and then the custom hooks."""
        self.register_default_hooks(default_hooks)
        self.register_custom_hooks(custom_hooks or [])

    def register_default_hooks(self, hooks: Mapping[str, Any] | None = None) -> None:
        """Register the default hooks, with changes by key."""
        for hook in building.default_hooks(hooks):
            self.register_hook(hook)

    def register_custom_hooks(self, hooks: Sequence[Any]) -> None:
        """Register hooks in addition to the default ones."""
        for hook in hooks:
            self.register_hook(hook)

    def register_hook(
        self,
        hook: Any,
        priority: Any = None,
        on_error: Literal["raise", "disable"] | None = None,
        budget: str | float | None = None,
    ) -> None:
        """Add a hook, even during training: an object or a dict with a `type`. Hooks of the mmengine package work."""
        made, placed, tolerance, limits = building.build_hook(hook)
        building.tell_folder(made)
        where = "argument" if priority is not None else "config"
        wanted = placed if priority is None else priority
        limits |= {"budget": budget} if budget is not None else {}
        policy = tolerance if on_error is None else on_error
        self.plan.add(made, wanted, policy, where, unused_points(made), **limits)

    @property
    def hooks(self) -> list[Any]:  # type: ignore[override]  # hooks written for MMEngine expect a list
        """Return the hooks in the order in which they run."""
        return [entry.hook for entry in self.plan]

    _hooks = hooks

    def get_hooks_info(self) -> str:
        """Return a description of which hooks run at each point, and in which order."""
        return self.plan.explain()

    # -- facts about the run

    @property
    def max_epochs(self) -> int:  # type: ignore[override]  # read-only in both
        """Return the total number of epochs. Iteration-based training counts as one."""
        if self._host.loop_given is not None:
            return self._host.loop_given.max_epochs or 1
        return int(self._said_about_training("max_epochs") or 1)

    @property
    def max_iters(self) -> int | None:  # type: ignore[override]  # read-only in both
        """Return the total number of iterations, if it is known."""
        return self._host.max_iters if self._host.loop_given is not None else self._said_about_training("max_iters")

    def _said_about_training(self, name: str) -> Any:
        given = self._given["train"]["train_cfg"]
        return given.get(name) if isinstance(given, Mapping) else None

    val_interval: int = forwarded(
        "train_loop.val_interval", "Return the number of epochs or iterations between validations."
    )
    val_begin: int = forwarded("train_loop.val_begin", "Return the epoch or iteration after which validation starts.")

    @property
    def model_name(self) -> str:
        """Return the class name of the model."""
        return type(self.model).__name__

    @property
    def log_dir(self) -> WorkDir:
        """Return the folder for logs, which is the folder of the run."""
        return self.work_dir  # type: ignore[return-value]  # set in the constructor

    _log_dir = log_dir

    @property
    def distributed(self) -> bool:
        """Return whether a launcher started this process."""
        return self.launcher != "none"

    # -- checkpoints

    def load_or_resume(self) -> None:
        """Load the weights of `load_from` now. A resumed run restores its whole state when it starts."""
        choices = self._host.start.contract.choices
        if choices.load_from is not None:
            path, choices.load_from = choices.load_from, None
            self.load_checkpoint(path)

    @master_only
    def dump_config(self) -> None:
        """Write the config into the folder of the run, under its original file name."""
        self.work_dir.mkdir(parents=True, exist_ok=True)
        name = Path(self.cfg.filename).name if self.cfg.filename else f"{self.timestamp}.yaml"
        self.cfg.dump(str(self.work_dir / name))

    def load_checkpoint(
        self,
        filename: str | Path,
        map_location: Any = "cpu",
        strict: bool = False,
        revise_keys: Sequence[tuple[str, str]] = tuple(checkpoint.REVISE),
    ) -> dict[str, Any]:
        """Load the weights of a file into the model now, and return the checkpoint."""
        found = checkpoint.read_checkpoint(filename)
        self._weights_begun = True
        self.call_hook("after_load_checkpoint", checkpoint=found)
        checkpoint._load_checkpoint_to_model(self.model, found, strict, None, revise_keys, str(filename))
        return found

    def save_checkpoint(
        self,
        out_dir: str | Path,
        filename: str,
        file_client_args: Any = None,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        meta: Mapping[str, Any] | None = None,
        by_epoch: bool = True,
        backend_args: Any = None,
    ) -> None:
        """Write a checkpoint now. In the middle of training, it may hold half a step, so no run can resume from it yet.

        At the end of the iteration, epoch or validation, a file that is still there is replaced by the state of that
        moment, from which a run can resume. Only the main process writes. It does not wait for the others here, because
        it may be the only one that saves.
        """
        refuse_other_storage("save_checkpoint", file_client_args, backend_args)
        more = without_numpy(dict(meta or {}))
        check_plain(more, "the meta of a checkpoint")
        call, is_main = call_in_progress(self), self.strategy.is_main
        at_rest = call is not None and call.point.name in AT_REST and self._host.loading.pending is None
        whole = self.running != "train" or at_rest
        resumable = bool(save_optimizer and save_param_scheduler and self.optims)
        if not whole and (resumable or not is_main):
            self._host.requests.ask_save(
                SaveRequest(
                    str(filename).replace("{", "{{").replace("}", "}}"),
                    by_epoch=False,
                    folder=Path(out_dir),
                    optimizer=save_optimizer,
                    schedulers=save_param_scheduler,
                    meta=more,
                    replaces=is_main,
                )
            )
        if not is_main:
            return
        complete = whole and resumable
        taken = snapshot.with_meta(snapshot.take(self._host, save_optimizer, save_param_scheduler, alone=True), more)
        if not resumable:  # MMEngine's counters, which assume that the epoch or the iteration is not counted yet
            epoch = self.epoch if getattr(self._host.loop_given, "by_epoch", False) else 0
            taken["meta"] |= {"epoch": epoch + by_epoch, "iter": self.iter + (not by_epoch)}
        store.write_verified(taken, Path(out_dir) / filename, seal.Note(self.iter, self.validations, complete))
