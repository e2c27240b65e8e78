"""MessageHub: hookline's hub with MMEngine's names, which can be looked up anywhere in the process."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch

from hookline.common.plain import check_plain, without_numpy
from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError
from hookline.dialects.mmengine.instances import ManagerMixin
from hookline.dialects.mmengine.logging.history_buffer import HistoryBuffer
from hookline.errors import HookError, did_you_mean
from hookline.record import hub

log = logging.getLogger("hookline")


class MessageHub(hub.MessageHub, ManagerMixin):
    """The scalars of a run, with their histories, and its info.

    `MessageHub.get_current_instance()` returns the hub of the newest Runner.
    """

    def __init__(self, name: str = "mmengine") -> None:
        hub.MessageHub.__init__(self)
        ManagerMixin.__init__(self, name)
        self._warned: set[str] = set()

    @property
    def log_scalars(self) -> Mapping[str, hub.History]:
        """Return all histories that have values, by name."""
        return self.scalars

    @property
    def runtime_info(self) -> dict[str, Any]:
        """Return all info, by name."""
        return self.info

    def history(self, name: str) -> HistoryBuffer:
        """Return the history of a name, and create it if necessary."""
        found = self._scalars.get(name)
        if found is None:
            found = self._scalars[name] = HistoryBuffer()
            found.keep(self._kept)
        assert isinstance(found, HistoryBuffer)
        return found

    def update_scalar(self, key: str, value: Any, count: int = 1, resumed: bool = True) -> None:
        """Record a number, or an array or tensor with one element; `HistoryBuffer` explains the count."""
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
        """Restore the state that `state_dict` returned."""
        super().load_state_dict(state)
        for name, saved in state["scalars"].items():
            if "counts" in saved:
                self.history(name).set_counts(saved["counts"].tolist())

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
