"""Storages of studies that several processes open at the same time."""

from collections.abc import Iterator
from pathlib import Path

import optuna
import psutil
import pytest
from optuna.storages._rdb.models import BaseModel
from sqlalchemy import event

from hookline.common import studies
from hookline.errors import ConfigError, StorageError


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(studies, "PAUSE", 0)


@pytest.fixture
def overtaken() -> Iterator[list[str]]:
    """Create the tables in another connection, right before Optuna does, and collect the tables where that happened."""
    tables: list[str] = []

    def create(table: object, connection: object, **_: object) -> None:
        if not tables:
            tables.append(str(table))
            optuna.storages.RDBStorage("sqlite:///study.db")

    for table in BaseModel.metadata.tables.values():
        event.listen(table, "before_create", create)
    yield tables
    for table in BaseModel.metadata.tables.values():
        event.remove(table, "before_create", create)


def test_a_study_in_a_file_keeps_no_connection_open() -> None:
    study = optuna.create_study(storage=studies.open_storage("sqlite:///study.db"))
    trial = study.ask()
    trial.report(1.0, 1)
    study.tell(trial, 1.0)
    assert [trial.value for trial in study.trials] == [1.0]
    assert [Path(file.path).name for file in psutil.Process().open_files() if "study.db" in file.path] == []


def test_a_storage_whose_tables_another_process_creates_at_the_same_time_is_opened(overtaken: list[str]) -> None:
    storage = studies.open_storage("sqlite:///study.db")
    assert overtaken == ["studies"]
    study = optuna.create_study(study_name="mine", storage=storage)
    assert studies.find_study("mine", studies.open_storage("sqlite:///study.db")) is not None
    assert study.trials == []


def test_a_table_that_is_always_in_the_way_is_an_error(overtaken: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "ATTEMPTS", 1)
    with pytest.raises(StorageError) as error:
        studies.open_storage("sqlite:///study.db")
    message = "the storage sqlite:///study.db cannot be used: table studies already exists"
    assert (str(error.value), overtaken) == (message, ["studies"])


def test_another_error_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def refuse(url: str, **_: object) -> None:
        tried.append(url)
        raise ValueError("no such database")

    monkeypatch.setattr(optuna.storages, "RDBStorage", refuse)
    with pytest.raises(StorageError, match=r"the storage sqlite:///study.db cannot be used: no such database"):
        studies.open_storage("sqlite:///study.db")
    assert tried == ["sqlite:///study.db"]


@pytest.mark.parametrize(
    ("storage", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:sec/r@t@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me@x:secret@host/db", "postgresql://me@x:***@host/db"),
        ("postgresql:/me:secret@host/db", "postgresql:***@host/db"),
        ("postgresql//me:secret@host/db", "***@host/db"),
        ("me:secret@host", "me:***@host"),
        ("postgresql://me:secret", "postgresql://me:***"),
        ("mysql://u:p@h/d?password=secret", "mysql://u:***@h/d?password=***"),
        ("mysql://host:3306/db", "mysql://host:3306/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("sqlite:////home/me@work/study.db", "sqlite:////home/me@work/study.db"),
        ("journal:study.log", "journal:study.log"),
    ],
)
def test_the_password_of_a_storage_is_hidden_also_in_a_malformed_url(storage: str, shown: str) -> None:
    assert studies.without_password(storage) == shown


@pytest.mark.parametrize(
    "storage",
    ["postgresql:/me:secret@host/db", "postgresql//me:secret@host/db", "nosuch://me:secret@host/db", "a:secret@b"],
)
def test_no_error_shows_a_part_of_the_password(storage: str) -> None:
    with pytest.raises((StorageError, ConfigError)) as refused:
        studies.open_storage(storage)
    assert "secret" not in str(refused.value)
    assert "@" in str(refused.value)
