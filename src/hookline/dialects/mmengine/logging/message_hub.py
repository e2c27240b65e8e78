"""MessageHub: hookline's hub with MMEngine's names, which can be looked up anywhere in the process."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch

from hookline.common.forwarding import forwarded
from hookline.common.plain import check_plain, without_numpy
from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError
from hookline.dialects.mmengine.instances import ManagerMixin
from hookline.dialects.mmengine.logging.history_buffer import HistoryBuffer
from hookline.errors import HookError, did_you_mean
from hookline.record import hub
from hookline.record.history import KEPT, History

log = logging.getLogger("hookline")


class MessageHub(hub.MessageHub, ManagerMixin):
    """The scalars of a run, with their histories, and its info.

    `MessageHub.get_current_instance()` returns the hub of the newest Runner.

    Args:
        name: The name to look it up by.
        log_scalars: The first histories, by name.
        runtime_info: The first pieces of info, by name.
        resumed_keys: Whether each of these names is saved in checkpoints.
    """

    def __init__(
        self,
        name: str = "mmengine",
        log_scalars: Mapping[str, HistoryBuffer] | None = None,
        runtime_info: Mapping[str, Any] | None = None,
        resumed_keys: Mapping[str, bool] | None = None,
    ) -> None:
        hub.MessageHub.__init__(self)
        ManagerMixin.__init__(self, name)
        self._warned: set[str] = set()
        for key, history in (log_scalars or {}).items():
            if not isinstance(history, HistoryBuffer):
                raise ConfigTypeError(f"log_scalars must hold HistoryBuffers; '{key}' is {history!r}")
        self._scalars.update(log_scalars or {})
        self.info.update(runtime_info or {})
        for key in resumed_keys or {}:
            if key not in self._scalars and key not in self.info:
                known = [*self._scalars, *self.info]
                raise ConfigKeyError(f"resumed_keys has '{key}', which is not recorded; {did_you_mean(key, known)}")
        self._not_resumed.update(key for key, resumed in (resumed_keys or {}).items() if not resumed)

    log_scalars: Mapping[str, History] = forwarded("scalars", "Return all histories that have values, by name.")
    runtime_info: dict[str, Any] = forwarded("info", "Return all info, by name.")

    def history(self, name: str) -> HistoryBuffer:
        """Return the history of a name, and create it if necessary."""
        found = self._scalars.get(name)
        if found is None:
            found = self._scalars[name] = HistoryBuffer(max_length=KEPT)
            found.keep(self._kept)
        assert isinstance(found, HistoryBuffer)
        return found

    def update_scalar(self, key: str, value: Any, count: int = 1, resumed: bool = True) -> None:
        """Record a number, or an array or tensor with one element; `HistoryBuffer` explains the count."""
        if isinstance(value, (str, list, tuple, dict)):
            raise ConfigTypeError(f"the scalar '{key}' must be a number or a tensor with one element, not {value!r}")
        value = value.item() if getattr(value, "size", None) == 1 else value  # a numpy value
        if count == 1:
            super().update_scalar(key, value, resumed=resumed)
            return
        if not resumed:
            self._not_resumed.add(key)
        self.history(key).update(value.detach() if isinstance(value, torch.Tensor) else value, count)

    def update_scalars(self, log_dict: Mapping[str, Any], resumed: bool = True, prefix: str = "") -> None:  # type: ignore[override]
        """Record several scalars; each is a number, or a dict with `value` and `count`."""
        for name, value in log_dict.items():
            if isinstance(value, Mapping):
                if "value" not in value:
                    raise ConfigKeyError(f"the scalar '{name}' is given as a dict, but the dict has no 'value'")
                self.update_scalar(prefix + name, value["value"], value.get("count", 1), resumed)
            else:
                self.update_scalar(prefix + name, value, resumed=resumed)

    def get_scalar(self, key: str) -> HistoryBuffer:
        """Return the history of a name."""
        if not len(self._scalars.get(key, ())):
            raise ConfigKeyError(f"no scalar is recorded as '{key}'; {did_you_mean(key, self._scalars)}")
        return self.history(key)

    def update_info(self, key: str, value: Any, resumed: bool = True) -> None:
        """Set a piece of info; `resumed=False` keeps it out of checkpoints. As in MMEngine, it may be any object."""
        self.info[key] = value
        if not resumed:
            self._not_resumed.add(key)

    def update_info_dict(self, info_dict: Mapping[str, Any], resumed: bool = True) -> None:
        """Set several pieces of info."""
        if not isinstance(info_dict, Mapping):
            raise ConfigTypeError(f"update_info_dict takes a dict, not {info_dict!r}")
        for name, value in info_dict.items():
            self.update_info(name, value, resumed)

    def pop_info(self, key: str, default: Any = None) -> Any:
        """Remove a piece of info and return it."""
        return self.info.pop(key, default)

    def state_dict(self) -> dict[str, Any]:
        """Return histories and info as plain data; info that a checkpoint cannot hold is left out, with one warning."""
        counts = {name: history.counts() for name, history in self._histories_with_counts().items()}
        state = super().state_dict()
        for name, found in counts.items():
            if name in state["scalars"]:
                state["scalars"][name]["counts"] = torch.tensor(found, dtype=torch.float64)
        state["info"] = {
            name: value for name, value in without_numpy(state["info"]).items() if self._can_save(name, value)
        }
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned, or the original's, with `log_scalars` and `runtime_info`."""
        if "log_scalars" in state or "runtime_info" in state:
            self._load_original(state)
            return
        super().load_state_dict(state)
        for name, saved in state["scalars"].items():
            if "counts" in saved:
                self.history(name).set_counts(saved["counts"].tolist())

    def _load_original(self, state: Mapping[str, Any]) -> None:
        """Restore the state of the original's hub. What is not a HistoryBuffer among its scalars is left out."""
        resumed = state.get("resumed_keys", {})
        for name, history in state.get("log_scalars", {}).items():
            if isinstance(history, HistoryBuffer):
                self._scalars[name] = history
            else:
                log.warning("the scalar '%s' is left out: it must be a HistoryBuffer, not %r", name, history)
        for name, value in state.get("runtime_info", {}).items():
            self.update_info(name, value, resumed.get(name, True))

    def _histories_with_counts(self) -> dict[str, HistoryBuffer]:
        return {
            name: history
            for name, history in self._scalars.items()
            if isinstance(history, HistoryBuffer) and history.has_counts
        }

    def _can_save(self, name: str, value: Any) -> bool:
        try:
            check_plain(value, f"the info '{name}'")
        except HookError as error:
            if name not in self._warned:
                self._warned.add(name)
                log.warning(
                    "%s. It is left out; to avoid this warning, call update_info('%s', ..., resumed=False).",
                    error,
                    name,
                )
            return False
        return True
