"""FreezeHook: parameters that do not train, until an epoch or iteration, from one on, or at all."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_int
from hookline.common.patterns import matching, no_match
from hookline.errors import ConfigError
from hookline.plan.hook import Hook

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hookline.engine.optim import Optim
    from hookline.engine.runner import Runner

log = logging.getLogger("hookline")

# Several hooks may freeze the same thing. How many do is noted on the thing itself, so that none needs to know of
# another: the first one turns it off, and the last one on again.
HOLDERS = "_hookline_frozen_by"


class FreezeHook(Hook):
    """Freezes parameters by name until an epoch or iteration, from one on, or for the whole run.

    A frozen parameter asks for no gradient and has none, so the optimizer leaves it alone: no weight decay, and its
    momentum is kept. Give all parameters to the optimizer, also those that are frozen in the beginning. A parameter
    whose `requires_grad` is False before training stays as it is.

    Epochs and iterations are counted as finished: with `until_epoch=3`, epochs 1 to 3 are frozen and the fourth trains;
    with `from_iter=100`, the first 100 iterations train. A change waits for the end of an accumulation window. Training
    by iterations, an epoch is a pass over the data.

    Batch and instance norms all of whose parameters it freezes keep their running statistics, and normalise with them;
    so do those without parameters that are matched by name. They are in evaluation mode meanwhile, which a step that
    calls `model.train()` itself would undo. Dropout goes on.

    Several FreezeHooks work together (the head first, then one block after the other): a parameter trains when none of
    them freezes it. When training ends, in whatever way, the model asks for gradients as it did before.

    Cost: nothing when epochs are trained and counted; otherwise a comparison of two numbers an iteration. The backward
    pass and the optimizer step have less to do.

    Example:
        from hookline.hooks import FreezeHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[FreezeHook("0.*", until_epoch=1)]).train()

    YAML:
        custom_hooks:
          - {type: FreezeHook, patterns: ["features.*"], until_epoch: 1}

    Args:
        patterns: What to freeze: a pattern, or several, for full names of parameters, such as `backbone.*` or `*.bias`.
        until_epoch: Train them after so many epochs; or
        until_iter: after so many iterations; or
        from_epoch: freeze them after so many epochs; or
        from_iter: after so many iterations. Without any of these four, they are frozen for the whole run.
        norm_stats: Keep the running statistics of frozen norms, too.
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
            raise ConfigError(f"FreezeHook: patterns is a name pattern, or a list of them, not {patterns!r}")
        limits = {
            "until_epoch": until_epoch,
            "until_iter": until_iter,
            "from_epoch": from_epoch,
            "from_iter": from_iter,
        }
        given = [name for name, limit in limits.items() if limit is not None]
        if len(given) > 1:
            raise ConfigError(f"FreezeHook: give at most one of {', '.join(limits)}, not {' and '.join(given)}")
        for name in given:
            check_int(f"FreezeHook: {name}", limits[name], least=1)
        #: Which of the four was given, and its value.
        self.limited_by = given[0] if given else ""
        self.limit = limits[given[0]] if given else None
        self.norm_stats = norm_stats
        self._by_epoch = self.limited_by.endswith("epoch")
        self._until = self.limited_by.startswith("until")
        self._begun = False
        self._frozen = False
        self._held: list[Tensor] = []
        self._still: list[nn.Module] = []
        # The optims whose accumulation windows a change has to wait for.
        self._windows: list[Optim] = []

    def idle_points(self, runner: Runner) -> list[str]:
        """What does not count is not looked at; for the whole run, nothing is."""
        if self.limit is None or not runner.has_training:
            return ["before_train_epoch", "before_train_iter"]
        return ["before_train_iter" if self._by_epoch and runner.train_loop.by_epoch else "before_train_epoch"]

    def around_train(self, runner: Runner) -> Iterator[None]:
        """Refuse what cannot be right, and put everything back at the end."""
        self._begin(runner)
        try:
            yield
        finally:
            self._end()

    def before_train(self, runner: Runner) -> None:
        """Freeze, if the run stands where it is due; the modes of modules are settled only now."""
        self._follow(runner)

    def before_train_epoch(self, runner: Runner) -> None:
        """Freeze or unfreeze, if it is due."""
        self._follow(runner)

    def before_train_iter(self, runner: Runner) -> None:
        """Freeze or unfreeze, if it is due."""
        self._follow(runner)

    def after_train(self) -> None:
        """A hook that joined in the middle is not around the training."""
        self._end()

    def on_exception(self) -> None:
        """Likewise."""
        self._end()

    def state_dict(self) -> dict[str, Any]:
        """Whether it is frozen now; the counters tell that too, except in an accumulation window."""
        return {"frozen": self._frozen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """In a window that was saved open, what it began with holds until its end."""
        if any(optim.micro for optim in self._windows) and state.get("frozen"):
            self._freeze(self.runner)

    # -- freezing

    def _follow(self, runner: Runner) -> None:
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
        self._still = [norm for norm in norms if _hold(norm, "training")]
        for parameter in self._held:
            parameter.grad = None
        when = "for the whole run" if self.limit is None else "from here on"
        if self._until:
            when = f"until {self._unit} {self.limit} is done"
        amount = _amount(self._held, self._still)
        runner.terminal.say(f"{self._place(runner)}FreezeHook: {self._listed} frozen {when}: {amount}")

    def _unfreeze(self, runner: Runner) -> None:
        self._frozen = False
        free = [parameter for parameter in self._held if _let_go(parameter)]
        moving = [norm for norm in self._still if _let_go(norm)]
        for parameter in free:
            parameter.requires_grad = True
        for norm in moving:
            norm.training = True
        kept = len(self._held) - len(free)
        others = f"; {kept} more stay{'s' * (kept == 1)} frozen by another hook" if kept else ""
        amount = _amount(free, moving)
        runner.terminal.say(f"{self._place(runner)}FreezeHook: {self._listed} trained from here on: {amount}{others}")
        self._held, self._still = [], []

    def _end(self) -> None:
        """Put back what is frozen; the loop itself puts modes back."""
        for parameter in self._held:
            if _let_go(parameter):
                parameter.requires_grad = True
        for norm in self._still:
            _let_go(norm)
        self._held, self._still = [], []
        self._begun = self._frozen = False

    # -- what is meant

    def _matched(self, model: nn.Module) -> dict[str, Tensor]:
        """The parameters that are meant; one that is tied has several names, and any of them will do."""
        named = dict(model.named_parameters(remove_duplicate=False))
        found: dict[int, str] = {}
        for name in matching(self.patterns, named):
            found.setdefault(id(named[name]), name)
        return {name: named[name] for name in found.values()}

    def _norms(self, model: nn.Module, matched: Iterable[Tensor]) -> list[nn.Module]:
        """The norms with running statistics that are meant: all their parameters are, or, without any, their name."""
        meant = {id(parameter) for parameter in matched}
        found = _bare_norms(model, self.patterns)
        for module in _statistical(model).values():
            own = list(module.parameters(recurse=False))
            frozen = all(id(parameter) in meant or not _trains(parameter) for parameter in own)
            if frozen and any(id(parameter) in meant for parameter in own):
                found.append(module)
        return list({id(module): module for module in found}.values())

    # -- refusing

    def _begin(self, runner: Runner) -> None:
        """Refuse what cannot be right with this model and these optimizers."""
        self._begun = True
        named = dict(runner.model.named_parameters(remove_duplicate=False))
        for pattern in self.patterns:
            bare = self.norm_stats and _bare_norms(runner.model, [pattern])
            if not bare and not matching(pattern, named):
                raise ConfigError(f"FreezeHook: {no_match(pattern, named)}")
        matched = self._matched(runner.model)
        meant = {name: parameter for name, parameter in matched.items() if _trains(parameter)}
        if self.limit is not None:
            self._refuse_lifeless(runner, matched, meant)
            self._warn_of_the_end(runner)
        ours = {id(parameter) for parameter in meant.values()}
        self._windows = [
            optim for optim in runner.optims.values() if any(id(each) in ours for each in optim.parameters())
        ]
        for name, optim in runner.optims.items():
            trains = [parameter for parameter in optim.parameters() if _trains(parameter)]
            if trains and all(id(parameter) in ours for parameter in trains):
                which = f" by the optim '{name}'" if name else ""
                raise ConfigError(
                    f"FreezeHook: every parameter that is trained{which} is matched by {self._quoted}, so its loss "
                    "would have no gradient while they are frozen; leave out what is to be trained"
                )

    def _refuse_lifeless(self, runner: Runner, matched: dict[str, Tensor], meant: dict[str, Tensor]) -> None:
        """Refuse parameters that would not train either when this hook lets them."""
        if matched and not meant:
            raise ConfigError(
                f"FreezeHook: everything matched by {self._quoted} has requires_grad=False already and stays frozen, "
                f"so {self.limited_by} has no effect; leave requires_grad at True, and freezing to this hook"
            )
        updated = {id(parameter) for optim in runner.optims.values() for parameter in optim.parameters()}
        lacking = [name for name, parameter in meant.items() if id(parameter) not in updated]
        if lacking:
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            raise ConfigError(
                f"FreezeHook: {lacking[0]}{more} would never train, because no optimizer has them; give the optimizer "
                "all parameters: it leaves those alone that are frozen"
            )

    def _warn_of_the_end(self, runner: Runner) -> None:
        end = runner.max_passes if self._by_epoch else runner.max_iters
        if end is not None and self.limit is not None and self.limit >= end:
            effect = f"{self._listed} never trained" if self._until else "nothing is ever frozen"
            log.warning(
                "FreezeHook: training ends after %s %s, and %s=%s, so %s",
                *(self._unit, end, self.limited_by, self.limit, effect),
            )

    def _place(self, runner: Runner) -> str:
        """Where training stands, unless it has just begun."""
        by_epoch = runner.train_loop.by_epoch and runner.position.batch == 0
        place = f"epoch {runner.epoch}" if by_epoch else f"iteration {runner.iter}"
        return f"after {place}  " if runner.iter else ""

    @property
    def _unit(self) -> str:
        return "epoch" if self._by_epoch else "iteration"

    @property
    def _quoted(self) -> str:
        return ", ".join(f"'{pattern}'" for pattern in self.patterns)

    @property
    def _listed(self) -> str:
        return f"{self._quoted} {'is' if len(self.patterns) == 1 else 'are'}"


def _hold(thing: Any, switch: str) -> bool:
    """Turn off a parameter's `requires_grad` or a module's `training`; False if somebody else had done so before."""
    holders = thing.__dict__.get(HOLDERS, 0)
    if not holders and not getattr(thing, switch):
        return False
    setattr(thing, switch, False)
    setattr(thing, HOLDERS, holders + 1)
    return True


def _let_go(thing: Any) -> bool:
    """Hold it no longer; whether nobody does now."""
    holders = thing.__dict__[HOLDERS] - 1
    if holders:
        setattr(thing, HOLDERS, holders)
    else:
        delattr(thing, HOLDERS)
    return not holders


def _trains(parameter: Tensor) -> bool:
    """Whether it would train if no hook froze it."""
    return parameter.requires_grad or HOLDERS in parameter.__dict__


def _statistical(model: nn.Module) -> dict[str, nn.Module]:
    """Modules that keep running statistics of what they normalise."""
    from torch.nn.modules.batchnorm import _NormBase

    named = model.named_modules(remove_duplicate=False)
    return {name: each for name, each in named if isinstance(each, _NormBase) and each.running_mean is not None}


def _bare_norms(model: nn.Module, patterns: list[str]) -> list[nn.Module]:
    """Those without parameters that are matched by name."""
    return [
        module
        for name, module in _statistical(model).items()
        if not list(module.parameters(recurse=False)) and matching(patterns, [name, f"{name}.running_mean"])
    ]


def _amount(parameters: list[Tensor], norms: list[nn.Module]) -> str:
    """For people: how much is frozen, or no longer."""
    numbers, tensors = sum(parameter.numel() for parameter in parameters), len(parameters)
    text = f"{numbers:,} parameters in {tensors} tensor{'s' * (tensors != 1)}"
    return text + (f", the statistics of {len(norms)} norm{'s' * (len(norms) != 1)}" if norms else "")
