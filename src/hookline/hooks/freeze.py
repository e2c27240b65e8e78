"""FreezeHook: freezes parameters until an epoch or iteration, after one, or for the whole run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_int
from hookline.common.escape import escaped
from hookline.common.modes import HOLDERS
from hookline.common.patterns import matching, no_match
from hookline.common.torch_private import norm_class
from hookline.errors import ConfigError
from hookline.plan.milestones import Counted, Milestone
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hookline.optim.optim import Optim
    from hookline.runner.runner import Runner

log = logging.getLogger("hookline")


class FreezeHook(Hook):
    """Freezes parameters by name until an epoch or iteration, after one, or for the whole run.

    A frozen parameter has no gradient, so the optimizer skips it: no weight decay is applied, and its momentum is kept.
    Pass all parameters to the optimizer, including those that are frozen at first. A parameter whose `requires_grad` is
    False before training stays frozen.

    The limits count finished epochs and iterations. With `until_epoch=3`, epochs 1 to 3 are frozen. With
    `from_iter=100`, the first 100 iterations train. A change waits for the end of an accumulation window.

    If all parameters of a batch or instance norm are frozen, or a norm without parameters matches by name, the norm is
    in evaluation mode: it uses its running statistics and does not change them. A step that calls `model.train()`
    itself would undo this. Dropout stays active.

    With several FreezeHooks, a parameter trains if none of them freezes it. When training ends, every `requires_grad`
    is restored.

    Cost: nothing if training runs by epochs and the limit is in epochs. Otherwise, one comparison of two numbers per
    iteration.

    Example:
        from hookline.hooks import FreezeHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[FreezeHook("0.*", until_epoch=1)]).train()

    YAML:
        custom_hooks:
          - {type: FreezeHook, patterns: ["features.*"], until_epoch: 1}

    Args:
        patterns: Patterns for the full names of the parameters to freeze, such as `backbone.*` or `*.bias`.
        until_epoch: Freeze until this many epochs are finished.
        until_iter: Freeze until this many iterations are finished.
        from_epoch: Freeze once this many epochs are finished.
        from_iter: Freeze once this many iterations are finished. Set at most one of these four limits. Without one, the
            parameters are frozen for the whole run.
        norm_stats: Also freeze the running statistics of frozen norms.
    """

    def __init__(
        self,
        patterns: str | list[str],
        until_epoch: int | None = None,
        until_iter: int | None = None,
        from_epoch: int | None = None,
        from_iter: int | None = None,
        norm_stats: bool = True,
    ) -> None:
        self.patterns = [patterns] if isinstance(patterns, str) else patterns
        listed = isinstance(self.patterns, (list, tuple)) and bool(self.patterns)
        if not listed or not all(isinstance(pattern, str) and pattern for pattern in self.patterns):
            raise ConfigError(f"FreezeHook: patterns must be a name pattern or a list of them, not {patterns!r}")
        limits = {
            "until_epoch": until_epoch,
            "until_iter": until_iter,
            "from_epoch": from_epoch,
            "from_iter": from_iter,
        }
        limiting = [name for name, limit in limits.items() if limit is not None]
        if len(limiting) > 1:
            raise ConfigError(f"FreezeHook: set at most one of {', '.join(limits)}, not {' and '.join(limiting)}")
        for name in limiting:
            check_int(f"FreezeHook: {name}", limits[name], least=1)
        #: The name of the limit that is set, and its value.
        self.limited_by = limiting[0] if limiting else ""
        self.limit = limits[limiting[0]] if limiting else None
        self.norm_stats = norm_stats
        self._by_epoch = self.limited_by.endswith("epoch")
        self._until = self.limited_by.startswith("until")
        self._begun = False
        self._frozen = False
        self._held: list[Tensor] = []
        self._held_norms: list[nn.Module] = []
        # The optims whose accumulation windows a change must wait for.
        self._windows: list[Optim] = []

    def must_reach(self, runner: Runner) -> list[Milestone]:
        """Return the epoch or iteration after the limit, if there is one: the first one that it changes."""
        if self.limit is None:
            return []
        effect = f"{self._listed} never trained" if self._until else "nothing is ever frozen"
        unit: Counted = "epoch" if self._by_epoch else "iteration"
        return [Milestone(self.limited_by, self.limit, self.limit + 1, unit, effect)]

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: the points of the unit that is not counted, or both without a limit."""
        if self.limit is None or not runner.has_training:
            return ["before_train_epoch", "before_train_iter"]
        return ["before_train_iter" if self._by_epoch and runner.train_loop.by_epoch else "before_train_epoch"]

    def around_train(self, runner: Runner) -> Iterator[None]:
        """Check the patterns and limits, and restore everything at the end."""
        self._begin(runner)
        try:
            yield
        finally:
            self._end()

    def before_train(self, runner: Runner) -> None:
        """Freeze, if it is due at this point of the run. Only now do the modules have their training mode."""
        self._update(runner)

    def before_train_epoch(self, runner: Runner) -> None:
        """Freeze or unfreeze, if it is due."""
        self._update(runner)

    def before_train_iter(self, runner: Runner) -> None:
        """Freeze or unfreeze, if it is due."""
        self._update(runner)

    def after_train(self) -> None:
        """Restore everything, even for a hook that was registered during training, which has no scope around it."""
        for norm in self._held_norms:
            norm.training = True  # as the last checkpoint has to have it; the model is still in training mode
        self._end()

    def on_exception(self) -> None:
        """Restore everything, as `after_train` does."""
        self._end()

    def state_dict(self) -> dict[str, Any]:
        """Return whether the parameters are frozen. Inside an accumulation window, the counters do not show this."""
        return {"frozen": self._frozen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """If the checkpoint is from inside an accumulation window, stay frozen until its end, as before."""
        if any(optim.micro for optim in self._windows) and state.get("frozen"):
            self._freeze(self.runner)

    # -- freezing

    def _update(self, runner: Runner) -> None:
        if not self._begun:
            self._begin(runner)
        due = self.limit is None or ((runner.epoch if self._by_epoch else runner.iter) < self.limit) is self._until
        if due is not self._frozen and not any(optim.micro for optim in self._windows):
            if due:
                self._freeze(runner)
            else:
                self._unfreeze(runner)

    def _freeze(self, runner: Runner) -> None:
        self._frozen = True
        matched = self._matched(runner.model).values()
        norms = self._norms(runner.model, matched) if self.norm_stats else []
        self._held = [parameter for parameter in matched if _hold(parameter, "requires_grad")]
        self._held_norms = [norm for norm in norms if _hold(norm, "training")]
        for parameter in self._held:
            parameter.grad = None
        when = "for the whole run" if self.limit is None else "from now on"
        if self._until:
            when = f"until {self._unit} {self.limit} is finished"
        amount = _describe_amount(self._held, self._held_norms)
        runner.terminal.say(f"{self._place(runner)}FreezeHook: {self._listed} frozen {when}: {amount}")

    def _unfreeze(self, runner: Runner) -> None:
        self._frozen = False
        free = [parameter for parameter in self._held if _release(parameter)]
        moving = [norm for norm in self._held_norms if _release(norm)]
        for parameter in free:
            parameter.requires_grad = True
        for norm in moving:
            norm.training = True
        kept = len(self._held) - len(free)
        others = f"; {kept} more stay{'s' * (kept == 1)} frozen by another hook" if kept else ""
        amount = _describe_amount(free, moving)
        runner.terminal.say(f"{self._place(runner)}FreezeHook: {self._listed} trained from now on: {amount}{others}")
        self._held, self._held_norms = [], []

    def _end(self) -> None:
        """Unfreeze everything. The loop itself restores the modes of modules."""
        for parameter in self._held:
            if _release(parameter):
                parameter.requires_grad = True
        for norm in self._held_norms:
            _release(norm)
        self._held, self._held_norms = [], []
        self._begun = self._frozen = False

    # -- matching

    def _matched(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the parameters that match. A tied parameter has several names, and one match is enough."""
        named = dict(model.named_parameters(remove_duplicate=False))
        names: dict[int, str] = {}
        for name in matching(self.patterns, named):
            names.setdefault(id(named[name]), name)
        return {name: named[name] for name in names.values()}

    def _norms(self, model: nn.Module, matched: Iterable[Tensor]) -> list[nn.Module]:
        """Return the norms with running statistics to freeze.

        These are the norms whose parameters are all frozen, and those without parameters whose name matches.
        """
        meant = {id(parameter) for parameter in matched}
        norms = _bare_norms(model, self.patterns)
        for module in _norms_with_statistics(model).values():
            parameters = list(module.parameters(recurse=False))
            frozen = all(id(parameter) in meant or not _trains(parameter) for parameter in parameters)
            if frozen and any(id(parameter) in meant for parameter in parameters):
                norms.append(module)
        return list({id(module): module for module in norms}.values())

    # -- checking

    def _begin(self, runner: Runner) -> None:
        """Refuse patterns and limits that do not fit this model and its optimizers."""
        self._begun = True
        named = dict(runner.model.named_parameters(remove_duplicate=False))
        for pattern in self.patterns:
            bare = self.norm_stats and _bare_norms(runner.model, [pattern])
            if not bare and not matching(pattern, named):
                raise ConfigError(f"FreezeHook: {no_match(pattern, named)}")
        matched = self._matched(runner.model)
        meant = {name: parameter for name, parameter in matched.items() if _trains(parameter)}
        if self.limit is not None:
            self._refuse_untrainable(runner, matched, meant)
        ours = {id(parameter) for parameter in meant.values()}
        self._windows = [
            optim for optim in runner.optims.values() if any(id(each) in ours for each in optim.parameters())
        ]
        for name, optim in runner.optims.items():
            trains = [parameter for parameter in optim.parameters() if _trains(parameter)]
            if trains and all(id(parameter) in ours for parameter in trains):
                which = f" by the optim '{name}'" if name else ""
                raise ConfigError(
                    f"FreezeHook: every parameter that is trained{which} is matched by {self._quoted}, so the loss "
                    "would have no gradient while they are frozen; use patterns that do not match the parameters to "
                    "train"
                )

    def _refuse_untrainable(self, runner: Runner, matched: dict[str, Tensor], meant: dict[str, Tensor]) -> None:
        """Refuse parameters that would not train even when this hook does not freeze them."""
        if matched and not meant:
            raise ConfigError(
                f"FreezeHook: everything matched by {self._quoted} has requires_grad=False already and stays frozen, "
                f"so {self.limited_by} has no effect; leave requires_grad at True and let this hook freeze them"
            )
        updated = {id(parameter) for optim in runner.optims.values() for parameter in optim.parameters()}
        lacking = [name for name, parameter in meant.items() if id(parameter) not in updated]
        if lacking:
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            raise ConfigError(
                f"FreezeHook: {lacking[0]}{more} would never train, because no optimizer has them; give all parameters "
                "to the optimizer: it skips those that are frozen"
            )

    def _place(self, runner: Runner) -> str:
        """Return the current place in training as a prefix, or an empty string at the start."""
        by_epoch = runner.train_loop.by_epoch and runner.position.batch == 0
        place = f"epoch {runner.epoch}" if by_epoch else f"iteration {runner.iter}"
        return f"after {place}  " if runner.iter else ""

    @property
    def _unit(self) -> str:
        return "epoch" if self._by_epoch else "iteration"

    @property
    def _quoted(self) -> str:
        return ", ".join(f"'{escaped(pattern)}'" for pattern in self.patterns)

    @property
    def _listed(self) -> str:
        return f"{self._quoted} {'is' if len(self.patterns) == 1 else 'are'}"


def _hold(thing: Any, switch: str) -> bool:
    """Set `requires_grad` or `training` to False and return True. Return False if it was off without any hook."""
    holders = thing.__dict__.get(HOLDERS, 0)
    if not holders and not getattr(thing, switch):
        return False
    setattr(thing, switch, False)
    setattr(thing, HOLDERS, holders + 1)
    return True


def _release(thing: Any) -> bool:
    """Stop holding a parameter or module, and return whether no other hook holds it."""
    holders = thing.__dict__[HOLDERS] - 1
    if holders:
        setattr(thing, HOLDERS, holders)
    else:
        delattr(thing, HOLDERS)
    return not holders


def _trains(parameter: Tensor) -> bool:
    """Return whether a parameter would train if no hook froze it."""
    return parameter.requires_grad or HOLDERS in parameter.__dict__


def _norms_with_statistics(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules that keep running statistics, by name."""
    named, norms = model.named_modules(remove_duplicate=False), norm_class()
    return {name: norm for name, norm in named if isinstance(norm, norms) and norm.running_mean is not None}


def _bare_norms(model: nn.Module, patterns: list[str]) -> list[nn.Module]:
    """Return the norms without parameters whose name matches."""
    return [
        module
        for name, module in _norms_with_statistics(model).items()
        if not list(module.parameters(recurse=False)) and matching(patterns, [name, f"{name}.running_mean"])
    ]


def _describe_amount(parameters: list[Tensor], norms: list[nn.Module]) -> str:
    """Return a text that says how many parameters and norms are affected."""
    numbers, tensors = sum(parameter.numel() for parameter in parameters), len(parameters)
    text = f"{numbers:,} parameters in {tensors} tensor{'s' * (tensors != 1)}"
    return text + (f", the statistics of {len(norms)} norm{'s' * (len(norms) != 1)}" if norms else "")
