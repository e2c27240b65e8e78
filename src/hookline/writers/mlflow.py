"""MlflowWriter: a run of MLflow, on any tracking server or, by default, in a local sqlite file.

A call waits 20 milliseconds or more for a database or a server. Therefore calls are made in the background, and all
waiting numbers are sent together.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hookline.writers.base import Outcome, Writer
from hookline.writers.extras import require_libraries
from hookline.writers.values import flatten

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("hookline")

DATABASE, ARTIFACTS = "mlflow.db", "mlflow"
NEW = ".new"
# The tag that finds a run again, even if the run did not exist yet when the checkpoint was saved.
TAG = "hookline.run"
# MLflow's limits: entries per call, and the length of names and values.
METRICS_AT_ONCE, PARAMS_AT_ONCE = 1000, 100
NAME_LENGTH, VALUE_LENGTH = 250, 500
MAX_PARAMS = 1000
STATUS: dict[Outcome, str] = {"finished": "FINISHED", "failed": "FAILED", "killed": "KILLED"}


class MlflowWriter(Writer):
    """Writes numbers, images, tables, texts and the config as a run of MLflow.

    To look at a local run: `mlflow ui --backend-store-uri sqlite:///...`. Numbers become metrics. The config becomes
    params, one per value, and the file `config.json`. Images, tables and texts become files of the run
    (`images/<name>/<step>.png`). MLflow allows only letters, digits and `_-./ :` in names; other characters become `_`.

    A resumed run continues as the same run. MLflow cannot delete records, so repeated steps are not written again, and
    a param keeps its first value.

    Args:
        tracking_uri: Where runs are tracked. Default: `mlflow.db` in the run's folder.
        experiment: The experiment.
        name: The name of the run. Default: the experiment name of the hookline run.
        tags: Tags of the run.
    """

    in_background = True

    default_files = (DATABASE, ARTIFACTS)

    def __init__(
        self,
        tracking_uri: str | None = None,
        experiment: str = "hookline",
        name: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        require_libraries("MlflowWriter", "mlflow", "mlflow", *(() if tracking_uri else ("sqlalchemy", "alembic")))
        self.tracking_uri, self.experiment, self.name = tracking_uri, experiment, name
        self.tags = {str(key): str(value) for key, value in (tags or {}).items()}
        self.run_id: str | None = None
        self._key = uuid.uuid4().hex
        self._begun: tuple[Path, str] | None = None
        self._client: Any = None
        #: Whether an earlier process may have written to this run, and the last step that it wrote of each name.
        self._resumed = False
        self._written: dict[str, int] = {}
        #: The number of metrics of a failed call that are written, and the last step and value written of each name.
        self._sent = 0
        self._newest: dict[str, tuple[int, float]] = {}

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Remember the folder and the name. The MLflow run starts with the first record, in the background."""
        self._begun, self._client, self._sent = (work_dir, experiment_name), None, 0

    def _ensure_started(self) -> Any:
        """Return the client, after finding the run again or creating it."""
        if self._client is None:
            client = self._connect()
            self.run_id = self.run_id or self._find(client) or self._create(client)
            client.update_run(self.run_id, status="RUNNING")
            self._client = client
        return self._client

    def _connect(self) -> Any:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        # Its jitter would draw random numbers from the generator that the run uses.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_JITTER", "0")
        # It would retry for minutes before it reports an error. Delivery retries failed calls anyway.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        from mlflow.tracking import MlflowClient

        for name in ("mlflow.store.db.utils", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)  # keep messages about creating tables off the screen
        assert self._begun is not None, "begin() sets the folder"
        if self.tracking_uri:
            return MlflowClient(self.tracking_uri)
        path = self._begun[0].resolve() / DATABASE
        if not path.exists():
            # Created under another name first: MLflow cannot use a database if a kill left its tables incomplete.
            fresh = path.with_name(path.name + NEW)
            fresh.unlink(missing_ok=True)
            MlflowClient(sqlite_uri(fresh)).search_experiments()
            os.replace(fresh, path)
        return MlflowClient(sqlite_uri(path))

    def _experiment(self, client: Any) -> str | None:
        experiment = client.get_experiment_by_name(self.experiment)
        return experiment.experiment_id if experiment is not None else None

    def _find(self, client: Any) -> str | None:
        """Return the id of the run that an earlier process created, if there is one."""
        experiment = self._experiment(client)
        if not self._resumed or experiment is None:
            return None
        matches = client.search_runs([experiment], f"tags.`{TAG}` = '{self._key}'", max_results=1)
        return matches[0].info.run_id if matches else None

    def _create(self, client: Any) -> str:
        assert self._begun is not None
        work_dir, experiment_name = self._begun
        experiment = self._experiment(client)
        if experiment is None:
            artifacts = None if self.tracking_uri else (work_dir.resolve() / ARTIFACTS).as_uri()
            experiment = client.create_experiment(self.experiment, artifact_location=artifacts)
        tags = {**self.tags, TAG: self._key}
        run_id: str = client.create_run(experiment, run_name=self.name or experiment_name, tags=tags).info.run_id
        return run_id

    # -- records

    def write_records(self, records: Sequence[tuple[Mapping[str, float], int]]) -> None:
        """Write the numbers of several steps in as few calls as possible."""
        from mlflow.entities import Metric

        client, now, newest = self._ensure_started(), int(time.time() * 1000), dict(self._newest)
        metrics = []
        for scalars, step in records:
            for name, value in ((as_name(name), float(value)) for name, value in scalars.items()):
                # training and validation both record the epoch: once per step is enough
                if step > self._last_step(name) and newest.get(name) != (step, value):
                    newest[name] = (step, value)
                    metrics.append(Metric(name, value, now, step))
        try:
            for at in range(self._sent, len(metrics), METRICS_AT_ONCE):
                client.log_batch(self.run_id, metrics=metrics[at : at + METRICS_AT_ONCE])
                self._sent = at + METRICS_AT_ONCE
        except Exception as error:
            if not self.may_pass(error):  # a retry would start with the same records
                self._sent = 0
            raise
        self._sent, self._newest = 0, newest

    def _last_step(self, name: str) -> int:
        """Return the last step of a name that an earlier process has written."""
        if not self._resumed:
            return -1
        if name not in self._written:
            steps = (metric.step for metric in self._client.get_metric_history(self.run_id, name))
            self._written[name] = max(steps, default=-1)
        return self._written[name]

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Write the numbers of one step."""
        self.write_records([(scalars, step)])

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """Write one number."""
        self.write_records([({name: value}, step)])

    def write_image(self, name: str, image: NDArray[np.uint8], step: int, caption: str | None = None) -> None:
        """Write a PNG file, and the caption as a text file beside it."""
        from hookline.record.images import as_png

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{step:08d}.png"
            file.write_bytes(as_png(image))
            self._ensure_started().log_artifact(self.run_id, str(file), f"images/{as_name(name)}")
        if caption:
            self._ensure_started().log_text(self.run_id, caption, f"images/{as_name(name)}/{step:08d}.txt")

    def write_text(self, name: str, text: str, step: int) -> None:
        """Write a text file."""
        self._ensure_started().log_text(self.run_id, text, f"texts/{as_name(name)}/{step:08d}.txt")

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """Write a JSON file in the format of MLflow's tables."""
        text = json.dumps({"columns": list(columns), "data": [list(row) for row in rows]}, default=str)
        self._ensure_started().log_text(self.run_id, text, f"tables/{as_name(name)}/{step:08d}.json")

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """Write the config as a file and its values as params. Only the file has what exceeds MLflow's limits."""
        from mlflow.entities import Param

        client = self._ensure_started()
        client.log_text(self.run_id, json.dumps(config, indent=2, default=str), f"{as_name(name)}.json")
        prefix = "" if name == "config" else f"{as_name(name)}."
        wanted = {prefix + as_name(path): str(value)[:VALUE_LENGTH] for path, value in flatten(config)}
        known = client.get_run(self.run_id).data.params
        if changed := [path for path, value in wanted.items() if known.get(path, value) != value]:
            log.warning("MLflow cannot change a param; these keep their first value: %s", ", ".join(changed[:8]))
        fresh = [Param(path, value) for path, value in wanted.items() if path not in known][:MAX_PARAMS]
        for at in range(0, len(fresh), PARAMS_AT_ONCE):
            client.log_batch(self.run_id, params=fresh[at : at + PARAMS_AT_ONCE])

    # -- ending and resuming

    def close(self) -> None:
        """Set the final status of the run."""
        if self._client is not None:
            client, self._client = self._client, None
            client.set_terminated(self.run_id, status=STATUS[self.outcome])

    def files(self) -> Iterable[str]:
        """Return the local database, with sqlite's extra files, and the artifact folder; none with a tracking_uri."""
        if self.tracking_uri:
            return []
        databases = (DATABASE, DATABASE + NEW)
        return [database + end for database in databases for end in ("", "-journal", "-wal", "-shm")] + [ARTIFACTS]

    def may_pass(self, error: Exception) -> bool:
        """Return True for a server or database that is down or busy, and False for what MLflow rejects."""
        from mlflow.exceptions import MlflowException

        refused = ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS")
        return isinstance(error, OSError) or (isinstance(error, MlflowException) and error.error_code not in refused)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that finds the run again."""
        return {"key": self._key, "run_id": self.run_id or ""}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the same run."""
        if "key" in state:
            self._key, self.run_id = str(state["key"]), str(state["run_id"]) or None
        self._resumed, self._written, self._client = True, {}, None

    rejoin = load_state_dict


def sqlite_uri(path: Path) -> str:
    """Return the URI of a sqlite file, for any characters in its path.

    >>> sqlite_uri(Path("/runs/digits/mlflow.db"))
    'sqlite:////runs/digits/mlflow.db'
    """
    from sqlalchemy.engine import URL, make_url

    plain = f"sqlite:///{path}"
    if make_url(plain).database == str(path):
        return plain
    # For a URI that starts with sqlite:///, MLflow creates folders without decoding escapes.
    escaped: str = URL.create("sqlite+pysqlite", database=str(path)).render_as_string()
    if make_url(escaped).database == str(path):
        return escaped
    # SQLAlchemy 2.0 ends the name at a question mark. sqlite itself decodes escapes.
    return f"sqlite+pysqlite:///file:{quote(str(path))}?uri=true"


def as_name(name: str) -> str:
    """Return a name with only the characters that MLflow allows.

    >>> as_name("val/F1 (macro)"), as_name("../a//b")
    ('val/F1 _macro_', 'a/b')
    """
    clean = "".join(character if character.isalnum() or character in "_-./ :" else "_" for character in name)
    return "/".join(part for part in clean.split("/") if part not in ("", ".", ".."))[:NAME_LENGTH] or "_"
