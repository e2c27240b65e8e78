"""LogProcessor, which decides how the numbers of a run are smoothed and formatted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from hookline.data.batches import length_of
from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigValueError
from hookline.errors import did_you_mean
from hookline.record.smoothing import Smoothing, rules_of

#: Matching names are shown as a mean, all others as their newest value.
USUAL_PATTERN = r".*(loss|time|data_time|grad_norm).*"
KEYS = ("data_src", "log_name", "method_name", "window_size")


class LogProcessor:
    """Decides how the numbers of a run are shown.

    Args:
        window_size: The number of newest values to average.
        by_epoch: Count epochs in the lines of `get_log_after_iter` and `get_log_after_epoch`.
        custom_cfg: Rules for single names: dicts with a `data_src`, and optionally a `method_name` (mean, min, max,
            current), a `window_size` (a number, `epoch` or `global`), and a `log_name` for an additional name.
        num_digits: The number of digits after the decimal point.
        log_with_hierarchy: Keep the prefixes `train/`, `val/` and `test/` in names.
        mean_pattern: The names that are shown as a mean, in the form `.*(one|other).*`.
    """

    def __init__(
        self,
        window_size: int = 10,
        by_epoch: bool = True,
        custom_cfg: Sequence[Mapping[str, Any]] | None = None,
        num_digits: int = 4,
        log_with_hierarchy: bool = False,
        mean_pattern: str = USUAL_PATTERN,
    ) -> None:
        self.window_size = window_size
        self.by_epoch = by_epoch
        self.custom_cfg = list(custom_cfg or [])
        self.num_digits = num_digits
        self.log_with_hierarchy = log_with_hierarchy
        words = re.fullmatch(r"\.\*\(([\w|]+)\)\.\*", mean_pattern)
        if words is None:
            raise ConfigValueError(
                f"LogProcessor: mean_pattern must have the form '.*(one|other).*', not {mean_pattern!r}; "
                "use custom_cfg for single names"
            )
        self.mean_pattern = re.compile(mean_pattern)
        self._words = words[1].split("|")
        names = [each.get("log_name", each.get("data_src")) for each in self.custom_cfg]
        for each in self.custom_cfg:
            if not by_epoch and each.get("window_size") == "epoch":
                raise ConfigValueError("LogProcessor: window_size='epoch' in custom_cfg needs by_epoch=True")
        for number, name in enumerate(names):
            if name in names[:number]:
                raise ConfigKeyError(f"LogProcessor: two entries of custom_cfg have the name '{name}'")
        rules_of(self.rules(), "LogProcessor")

    def rules(self) -> list[dict[str, Any]]:
        """Return the settings as rules of hookline's LoggerHook."""
        custom = [self._rule(each) for each in self.custom_cfg if each.get("data_src") != ""]  # no number has this name
        usual = [{"match": f"train/*{word}*", "window_size": self.window_size} for word in self._words]
        return sorted(custom, key=lambda rule: "log_name" not in rule) + usual

    def _rule(self, given: Mapping[str, Any]) -> dict[str, Any]:
        for key in given:
            if key not in KEYS:
                raise ConfigKeyError(f"LogProcessor: custom_cfg has no option '{key}'; {did_you_mean(str(key), KEYS)}")
        if "data_src" not in given:
            raise ConfigKeyError("LogProcessor: an entry of custom_cfg needs 'data_src', the name it applies to")
        name = f"train/{given['data_src']}"
        rule: dict[str, Any] = {"match": name, "method": given.get("method_name", "mean")}
        rule["window_size"] = given.get("window_size", self.window_size)
        if given.get("log_name", given["data_src"]) != given["data_src"]:
            rule["log_name"] = f"train/{given['log_name']}"
        return rule

    # -- lines for hooks that write their own logs

    def get_log_after_iter(self, runner: Any, batch_idx: int, mode: str) -> tuple[dict[str, Any], str]:
        """Return the numbers after an iteration, by name, and a log line with them."""
        tag = self._collect_numbers(runner, mode)
        total = self._total(runner, mode)
        if mode == "train" and not (self.by_epoch and runner.train_loop.by_epoch):
            place = f"Iter(train) [{runner.iter + 1}/{runner.max_iters}]"
        elif mode == "train":
            place = f"Epoch(train) [{runner.epoch + 1}][{batch_idx + 1}/{total}]"
        else:
            place = f"{'Epoch' if self.by_epoch else 'Iter'}({mode}) [{batch_idx + 1}/{total}]"
        eta = runner.message_hub.get_info("eta")
        parts = [place]
        if "lr" in tag:
            parts.append(f"lr: {tag['lr']:.{self.num_digits}e}")
        if eta is not None:
            parts.append(f"eta: {timedelta(seconds=int(eta))}")
        parts += [self._format_number(name, value) for name, value in tag.items() if name != "lr"]
        return tag, "  ".join(parts)

    def get_log_after_epoch(
        self, runner: Any, batch_idx: int, mode: str, with_non_scalar: bool = False
    ) -> tuple[dict[str, Any], str]:
        """Return the numbers after a validation or a test, by name, and a log line with them."""
        if mode not in ("val", "test"):
            raise ConfigValueError(f"get_log_after_epoch: mode must be 'val' or 'test', not {mode!r}")
        tag = self._collect_numbers(runner, mode)
        if with_non_scalar:
            facts = runner.message_hub.runtime_info
            tag |= {name.removeprefix(f"{mode}/"): facts[name] for name in facts if name.startswith(f"{mode}/")}
        counted = f"[{runner.epoch}]" if self.by_epoch else f"[{runner.iter}]"
        place = f"{'Epoch' if self.by_epoch else 'Iter'}({mode}) {counted if mode == 'val' else ''}"
        total = self._total(runner, mode)
        line = [f"{place}[{total}/{total}]", *(self._format_number(name, value) for name, value in tag.items())]
        return tag, "  ".join(line)

    def _collect_numbers(self, runner: Any, mode: str) -> dict[str, Any]:
        smoothing, found = Smoothing(rules_of(self.rules(), "LogProcessor")), {}
        for name, history in runner.message_hub.log_scalars.items():
            if not name.startswith(f"{mode}/"):
                continue
            for log_name, rule in smoothing._decide(name):
                window = () if rule.method == "current" or isinstance(rule.window_size, str) else (rule.window_size,)
                found[log_name] = history.statistics(rule.method, *window)
        return found if self.log_with_hierarchy else {name.partition("/")[2]: value for name, value in found.items()}

    def _format_number(self, name: str, value: Any) -> str:
        return f"{name}: {value:.{self.num_digits}f}" if isinstance(value, float) else f"{name}: {value}"

    def _total(self, runner: Any, mode: str) -> Any:
        return length_of(getattr(runner, f"{mode}_dataloader"))
