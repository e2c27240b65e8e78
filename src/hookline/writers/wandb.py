"""WandbWriter: a run of Weights & Biases (W&B), online or offline."""

from __future__ import annotations

import html
import logging
import os
import time
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_choice
from hookline.errors import ConfigError
from hookline.writers.base import Writer
from hookline.writers.extras import require_libraries

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("hookline")

# The seconds between two writes of W&B's own log, and the seconds after which a row is surely in it.
FLUSH_INTERVAL, SETTLED = 1.0, 5.0
# The most rows of the history that a checkpoint saves, until they are surely in W&B's log.
KEPT = 1000
MODES = ("online", "offline", "disabled")
# The seconds that a run waits for the server: at its start, and at its end for data that is not sent yet.
PATIENCE, LAST_PATIENCE = 30, 300
BINS = 64


@dataclass
class Row:
    """The numbers of one step. W&B holds them back until it receives a later step."""

    step: int
    values: dict[str, float] = field(default_factory=dict)
    complete_at: float | None = None


class WandbWriter(Writer):
    """Writes numbers, images, histograms, tables, texts and the config as a run of Weights & Biases.

    W&B keeps its files in `wandb/` in the run's folder. Offline, nothing is sent; upload the run later with
    `wandb sync`. If the server does not answer at the start, the run is written offline, too. If the server goes down
    later, the library itself waits for it.

    A resumed run continues as the same run, by its id. W&B cannot delete records, so repeated steps are not written
    again. W&B requires steps in order: a record of an earlier step, such as a validation counted in epochs, is written
    at the current step, with its own step beside it as `val/step`.

    Args:
        project: The project.
        entity: The team or user. Default: the entity of the account.
        name: The name of the run. Default: the experiment name of the run.
        id: The id of the run, to continue an existing one.
        group: The group of the run.
        tags: Tags of the run.
        mode: `online`, `offline`, or `disabled` to write nothing. Default: `WANDB_MODE` if it is set, otherwise
            `online`.
    """

    default_files = ("wandb",)

    def __init__(
        self,
        project: str = "hookline",
        entity: str | None = None,
        name: str | None = None,
        id: str | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        mode: Literal["online", "offline", "disabled"] | None = None,
    ) -> None:
        chosen: Any = mode or os.environ.get("WANDB_MODE", "online")
        check_choice("WandbWriter: mode", chosen, MODES)
        if isinstance(tags, str):
            raise ConfigError(f"WandbWriter: tags must be a list of names, not {tags!r}")
        require_libraries("WandbWriter", "wandb", "wandb", "PIL")
        self.project, self.entity, self.name, self.group = project, entity, name, group
        self.tags = list(tags)
        self.mode: Literal["online", "offline", "disabled"] = chosen
        self.id = id
        self._begun: tuple[Path, str] | None = None
        self._run: Any = None
        #: Whether the server did not answer. This run does not try again.
        self._away = False
        self._step = 0
        #: The newest rows of the history, which a kill could lose, and when each was complete.
        self._rows: deque[Row] = deque(maxlen=KEPT)
        #: The last step that an earlier process has written of each name.
        self._written: dict[str, int] = {}

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Remember the folder and the name. The W&B run starts with the first record, when a resumed id is known."""
        self.close()
        self._begun = (work_dir, experiment_name)
        self.id = self.id or uuid.uuid4().hex[:8]

    @property
    def run(self) -> Any:
        """Return the W&B run; start it on first use."""
        if self._run is None:
            assert self._begun is not None, "begin() sets the folder"
            os.environ.setdefault("WANDB_SILENT", "true")
            if self.mode == "offline":
                os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # error reports are sent even offline
            self._run = self._start("offline" if self._away else self.mode)
        return self._run

    def _start(self, mode: Literal["online", "offline", "disabled"]) -> Any:
        import wandb

        assert self._begun is not None
        work_dir, experiment_name = self._begun
        quiet = mode == "offline"  # collecting facts about the machine contacts servers
        settings = {
            "silent": True,
            "console": "off",
            "init_timeout": PATIENCE,
            "finish_timeout": LAST_PATIENCE,
            "finish_timeout_raises": True,
            "save_code": False,
            "x_disable_stats": quiet,
            "x_disable_meta": quiet,
            "x_disable_machine_info": quiet,
            "x_transaction_log_flush_interval": FLUSH_INTERVAL,
        }
        known = wandb.Settings.model_fields  # settings that start with x_ differ between versions
        try:
            return wandb.init(
                project=self.project,
                entity=self.entity,
                name=self.name or experiment_name,
                id=self.id,
                group=self.group,
                tags=self.tags,
                dir=str(work_dir.resolve()),
                mode=mode,
                resume="allow",
                reinit="create_new",
                settings=wandb.Settings(**{name: value for name, value in settings.items() if name in known}),
            )
        except (wandb.errors.UsageError, wandb.errors.AuthenticationError) as error:
            raise ConfigError(
                f"W&B cannot be used: {first_line_of(error)}; log in with 'wandb login', or set mode: offline"
            ) from error
        except wandb.errors.CommError as error:
            if mode == "offline":
                raise
            then = "writing the run offline; upload it later with 'wandb sync'"
            log.warning("W&B does not answer: %s; %s", first_line_of(error), then)
            self._away = True
            wandb.teardown()  # its service process still holds the run that could not start
            return self._start("offline")

    def _log(self, values: Mapping[str, Any], step: int) -> None:
        """Write the values whose step is not written yet."""
        fresh = {name: value for name, value in values.items() if step > self._written.get(name, -1)}
        if step < self._step:
            fresh |= {step_key(name): step for name in fresh}
        if fresh:
            self._log_row(fresh, max(step, self._step))

    def _log_row(self, fresh: Mapping[str, Any], step: int) -> None:
        self._step = step
        self.run.log(dict(fresh), step=step)
        if not self._rows or self._rows[-1].step != self._step:
            if self._rows:
                self._rows[-1].complete_at = time.monotonic()
            self._rows.append(Row(self._step))
        self._rows[-1].values.update({name: value for name, value in fresh.items() if isinstance(value, (int, float))})

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Write all numbers in one row of the history."""
        self._log(scalars, step)

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """Write one number."""
        self._log({name: value}, step)

    def write_image(self, name: str, image: NDArray[np.uint8], step: int, caption: str | None = None) -> None:
        """Write an image with its caption."""
        import wandb

        self._log({name: wandb.Image(image, caption=caption)}, step)

    def write_histogram(self, name: str, values: NDArray[np.float64], step: int) -> None:
        """Write a histogram."""
        import numpy as np
        import wandb

        self._log({name: wandb.Histogram(np_histogram=np.histogram(values, bins=BINS))}, step)

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """Write a table."""
        import wandb

        cells = [list(row) for row in rows]
        self._log({name: wandb.Table(columns=list(columns), data=cells, allow_mixed_types=True)}, step)

    def write_text(self, name: str, text: str, step: int) -> None:
        """Write a text unchanged."""
        import wandb

        self._log({name: wandb.Html(f"<pre>{html.escape(text)}</pre>", inject=False)}, step)

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """Write the config of the run; put any other config under its name."""
        self.run.config.update(dict(config) if name == "config" else {name: dict(config)}, allow_val_change=True)

    def close(self) -> None:
        """End the run and send the remaining data."""
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=0 if self.outcome == "finished" else 1)

    def files(self) -> Iterable[str]:
        """Return the folder of the library."""
        return ["wandb"]

    def may_pass(self, error: Exception) -> bool:
        """Return True for a server that is down."""
        import wandb

        return isinstance(error, (OSError, wandb.errors.CommError))

    def state_dict(self) -> dict[str, Any]:
        """Return the id of the run, and the rows that may not be in W&B's log yet."""
        if self.id is None:
            return {}
        settled = time.monotonic() - SETTLED
        while self._rows and (self._rows[0].complete_at or settled) < settled:
            self._rows.popleft()
        return {"id": self.id, "step": self._step, "rows": [[row.step, dict(row.values)] for row in self._rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the same run, and write the rows that its log lacks."""
        from hookline.writers.wandb_log import last_steps

        assert self._begun is not None, "begin() sets the folder"
        self.close()
        self.id, self._step = str(state.get("id", self.id)), 0
        self._rows.clear()
        self._written = last_steps(self._begun[0] / "wandb", self.id)
        for step, values in state.get("rows", ()):
            steps = {name: int(values.get(step_key(name), step)) for name in values}
            if lacking := {name: values[name] for name, at in steps.items() if at > self._written.get(name, -1)}:
                self._log_row(lacking, step)
        self._step = int(state.get("step", 0))

    def rejoin(self, state: Mapping[str, Any]) -> None:
        """Continue the run of this id, because one of its checkpoints is evaluated."""
        self.id, self._step = str(state.get("id", self.id)), int(state.get("step", 0))


def first_line_of(error: Exception) -> str:
    """Return the first line of an error message."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def step_key(name: str) -> str:
    """Return the name for the step of a value, where it differs from the step of its row.

    >>> step_key("val/accuracy"), step_key("epoch")
    ('val/step', 'step')
    """
    group, _, inner = name.partition("/")
    return f"{group}/step" if inner else "step"
