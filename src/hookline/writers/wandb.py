"""Weights & Biases, online or offline."""

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
from hookline.writers.extras import need

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("hookline")

# W&B writes what it was given to its own log so often, in seconds, and we count on it after a multiple of that.
FLUSHED, SETTLED = 1.0, 5.0
# So many rows of the history are saved at most with a checkpoint, until they have settled.
KEPT = 1000
MODES = ("online", "offline", "disabled")
# How long a run waits for the server, in seconds: when it starts, and at its end for what is still to be sent.
PATIENCE, LAST_PATIENCE = 30, 300
BINS = 64


@dataclass
class Row:
    """The numbers of one step; W&B keeps them back until a later step comes."""

    step: int
    values: dict[str, float] = field(default_factory=dict)
    complete_at: float | None = None


class WandbWriter(Writer):
    """Numbers, images, histograms, tables, texts and the config as a run of Weights & Biases.

    Its own records are in `wandb/` in the run's folder. Offline, nothing is sent; `wandb sync` brings it to the server
    later. So it is when the server does not answer at the start. Once it has answered, the library itself waits for a
    server that goes away.

    A resumed run goes on as the same run, by its id. W&B takes nothing back, so steps that are made again are not
    written again. It wants steps in order: a record of an earlier step, as validations by epoch are, stands at the
    current one and has its own beside it, as `val/step`.

    Args:
        project: The project.
        entity: The team or user; the account's own, unless given.
        name: The name of the run; that of the experiment, unless given.
        id: The id of the run, to go on with a certain one.
        group: The group of the run.
        tags: Tags of the run.
        mode: `online`, `offline`, or `disabled` to write nothing; what `WANDB_MODE` says, unless given, and else
            online.
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
            raise ConfigError(f"WandbWriter: tags is a list of names, not {tags!r}")
        need("WandbWriter", "wandb", "wandb", "PIL")
        self.project, self.entity, self.name, self.group = project, entity, name, group
        self.tags = list(tags)
        self.mode: Literal["online", "offline", "disabled"] = chosen
        self.id = id
        self._begun: tuple[Path, str] | None = None
        self._run: Any = None
        #: Whether its server did not answer; it is not asked again for this run.
        self._away = False
        self._step = 0
        #: The newest rows of the history, and when each was complete: a kill would take them.
        self._rows: deque[Row] = deque(maxlen=KEPT)
        #: The last step of each name that an earlier process has written.
        self._written: dict[str, int] = {}

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Get ready; the run starts when there is something to write, because a resumed one has to know its id."""
        self.close()
        self._begun = (work_dir, experiment_name)
        self.id = self.id or uuid.uuid4().hex[:8]

    @property
    def run(self) -> Any:
        """The run of W&B, started when it is first used."""
        if self._run is None:
            assert self._begun is not None, "begin() says where"
            os.environ.setdefault("WANDB_SILENT", "true")
            if self.mode == "offline":
                os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # reports go to a server, also offline
            self._run = self._start("offline" if self._away else self.mode)
        return self._run

    def _start(self, mode: Literal["online", "offline", "disabled"]) -> Any:
        import wandb

        assert self._begun is not None
        work_dir, experiment_name = self._begun
        quiet = mode == "offline"  # what it finds out about the machine, it asks servers for
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
            "x_transaction_log_flush_interval": FLUSHED,
        }
        known = wandb.Settings.model_fields  # those with an x may come and go
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
                f"W&B cannot be used: {reason_of(error)}; log in with 'wandb login', or write with mode: offline"
            ) from error
        except wandb.errors.CommError as error:
            if mode == "offline":
                raise
            log.warning("W&B does not answer: %s; it is written offline, for 'wandb sync'", reason_of(error))
            self._away = True
            wandb.teardown()  # its service still holds the run that could not start
            return self._start("offline")

    def _log(self, values: Mapping[str, Any], step: int) -> None:
        """Write what is not written yet."""
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
        """All of them in one row of the history."""
        self._log(scalars, step)

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """One number."""
        self._log({name: value}, step)

    def write_image(self, name: str, image: NDArray[np.uint8], step: int, caption: str | None = None) -> None:
        """An image with its caption."""
        import wandb

        self._log({name: wandb.Image(image, caption=caption)}, step)

    def write_histogram(self, name: str, values: NDArray[np.float64], step: int) -> None:
        """A histogram."""
        import numpy as np
        import wandb

        self._log({name: wandb.Histogram(np_histogram=np.histogram(values, bins=BINS))}, step)

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """A table."""
        import wandb

        cells = [list(row) for row in rows]
        self._log({name: wandb.Table(columns=list(columns), data=cells, allow_mixed_types=True)}, step)

    def write_text(self, name: str, text: str, step: int) -> None:
        """A text, as it is."""
        import wandb

        self._log({name: wandb.Html(f"<pre>{html.escape(text)}</pre>", inject=False)}, step)

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """The config of the run; another one stands under its name."""
        self.run.config.update(dict(config) if name == "config" else {name: dict(config)}, allow_val_change=True)

    def close(self) -> None:
        """End the run; what is still to be sent is sent."""
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=0 if self.outcome == "finished" else 1)

    def files(self) -> Iterable[str]:
        """The folder of the library."""
        return ["wandb"]

    def may_pass(self, error: Exception) -> bool:
        """A server that is away."""
        import wandb

        return isinstance(error, (OSError, wandb.errors.CommError))

    def state_dict(self) -> dict[str, Any]:
        """The id of the run, and the rows that W&B may not have written yet."""
        if self.id is None:
            return {}
        settled = time.monotonic() - SETTLED
        while self._rows and (self._rows[0].complete_at or settled) < settled:
            self._rows.popleft()
        return {"id": self.id, "step": self._step, "rows": [[row.step, dict(row.values)] for row in self._rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the same run."""
        from hookline.writers.wandb_log import last_steps

        assert self._begun is not None, "begin() says where"
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
        """What follows belongs to the run of this id."""
        self.id, self._step = str(state.get("id", self.id)), int(state.get("step", 0))


def reason_of(error: Exception) -> str:
    """What an error says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def step_key(name: str) -> str:
    """What the step of a name is called where it is not that of the row.

    >>> step_key("val/accuracy"), step_key("epoch")
    ('val/step', 'step')
    """
    group, _, inner = name.partition("/")
    return f"{group}/step" if inner else "step"
