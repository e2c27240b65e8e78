"""Optuna's studies: opened quietly, with one clear error for everything that can go wrong.

Optuna is optional, so it is imported inside functions.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.files import storage_errors
from hookline.errors import ConfigError, HooklineError, StorageError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.storages import BaseStorage
    from optuna.study import Study
    from optuna.trial import Trial

#: The file of a study, in the folder of the study, unless another storage was chosen.
STUDY_FILE = "study.db"
#: A storage that is one file with a line per change. Unlike sqlite, it is safe on a disk that several machines share.
JOURNAL = "journal:"
PRUNERS = ("median", "hyperband", "none")
#: Another process may be writing to the same sqlite file. Wait this many seconds for it.
BUSY_SECONDS = 60
#: Two processes may create the tables of a database at the same time. Try again this often, after a pause in seconds.
ATTEMPTS, PAUSE = 20, 0.1


def import_optuna() -> Any:
    """Return the module, with its log reduced to errors. A missing package is reported with the extra to install."""
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("this needs Optuna, which is not installed: pip install 'hookline[optuna]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def default_storage(folder: Path) -> str:
    """Return the storage of a study in this folder, if no other was chosen."""
    if "?" in str(folder):  # the rest would be read as options of the database
        raise ConfigError(f"the folder of the study, {folder}, must not have a '?', which a sqlite URL cannot have")
    return f"sqlite:///{folder / STUDY_FILE}"


def without_password(storage: str) -> str:
    """Return a storage as it may be shown. In a URL with a mistake, more than the password may be hidden.

    >>> without_password("postgresql://me:secret@host/db")
    'postgresql://me:***@host/db'
    >>> without_password("postgresql:/me:secret@host/db")
    'postgresql:***@host/db'
    """
    if storage.startswith(("sqlite:", JOURNAL)):  # a file has no password
        return storage
    shown = re.sub(r"(://[^:/]*):.*@", r"\1:***@", storage)
    if shown == storage and not re.match(r"[\w+.-]+://[^:@]*@", storage):  # maybe there is one where none belongs
        shown = re.sub(r"^([\w+.-]+:(?://)?)?.*@", r"\1***@", storage)
    shown = re.sub(r"(://[^:/@]*):(?!\*|\d+(?:[/?#]|$))[^/?#]*", r"\1:***", shown)  # a port is a number
    return re.sub(r"(?i)(passw(?:or)?d=|pwd=)[^&\s]*", r"\1***", shown)


def _hide_secrets(text: str, storage: str) -> str:
    """Return a message of a library without the password of a storage, which it may repeat."""
    text = text.replace(storage, without_password(storage))
    for secret in re.findall(r"[^/:@]*:([^@]*)@", storage):
        for part in sorted({secret, *re.split(r"[/:]", secret)}, key=len, reverse=True):
            text = text.replace(part, "***") if len(part) > 2 else text
    return re.sub(r"(://[^:/]*):.*@", r"\1:***@", text)


@contextmanager
def study_errors(storage: str) -> Iterator[None]:
    """Turn any error of Optuna and of the database below it into a StorageError. Optuna's warnings are not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except HooklineError:
            raise
        except Exception as error:
            cause = error.__cause__ or error
            lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
            reason = _hide_secrets(lines[0], storage) if lines else type(error).__name__
            if isinstance(cause, ModuleNotFoundError):
                reason = f"it needs the Python package '{cause.name}', which is not installed"
            raise StorageError(f"the storage {without_password(storage)} cannot be used: {reason}") from error


def open_storage(storage: str) -> BaseStorage:
    """Open a storage: a URL of a database, or `journal:FILE`."""
    optuna = import_optuna()
    if not re.match(r"[A-Za-z][\w+.-]*:", storage):
        raise ConfigError(
            f"the storage {without_password(storage)!r} is not a URL; write sqlite:///FILE, journal:FILE, or the URL "
            "of a database, such as postgresql://user:password@host/name"
        )
    if re.fullmatch(r"sqlite(\+\w+)?:/{2,3}(\?.*|:memory:.*|file::memory:.*)?", storage):
        raise ConfigError(
            f"the storage {storage!r} is in the memory of one process, but every trial is a separate process; write "
            "sqlite:///FILE"
        )
    with study_errors(storage):
        if storage.startswith(JOURNAL):
            file = Path(storage.removeprefix(JOURNAL))
            with storage_errors(file):
                file.parent.mkdir(parents=True, exist_ok=True)
            backend = optuna.storages.journal.JournalFileBackend(str(file))
            return optuna.storages.JournalStorage(backend)  # type: ignore[no-any-return]  # optuna is Any here
        if storage.startswith("sqlite:///"):
            file = Path(storage.removeprefix("sqlite:///").partition("?")[0])
            with storage_errors(file):
                file.parent.mkdir(parents=True, exist_ok=True)
            from sqlalchemy.pool import NullPool

            # A connection that stays open would be closed by nobody, and workers of a loader would inherit it.
            options = {"connect_args": {"timeout": BUSY_SECONDS}, "poolclass": NullPool}
            return _connect(lambda: optuna.storages.RDBStorage(storage, engine_kwargs=options))
        return _connect(lambda: optuna.storages.get_storage(storage))


def _connect(connect: Callable[[], BaseStorage]) -> BaseStorage:
    """Connect to a database; try again if another process created a table of it between Optuna's look and its own."""
    for _ in range(ATTEMPTS - 1):
        try:
            return connect()
        except Exception as error:
            if not _is_taken(error):
                raise
        time.sleep(PAUSE)
    return connect()


def _is_taken(error: BaseException | None) -> bool:
    """Return whether a database refused a table or a row because it exists."""
    from sqlalchemy.exc import DBAPIError, IntegrityError

    while error is not None:
        if isinstance(error, IntegrityError) or (isinstance(error, DBAPIError) and "already exists" in str(error)):
            return True
        error = error.__cause__
    return False


def make_pruner(name: str) -> BasePruner:
    """Return a pruner by its name in `PRUNERS`."""
    pruners = import_optuna().pruners
    makers: dict[str, Callable[[], BasePruner]] = {
        "median": pruners.MedianPruner,
        "hyperband": pruners.HyperbandPruner,
        "none": pruners.NopPruner,
    }
    return makers[name]()


def find_study(name: str, storage: BaseStorage, pruner: BasePruner | None = None) -> Study | None:
    """Return a study; None if the storage does not have it."""
    optuna = import_optuna()
    try:
        return optuna.load_study(study_name=name, storage=storage, pruner=pruner)  # type: ignore[no-any-return]  # as above
    except KeyError:
        return None


def find_trial(study: Study, number: int) -> Trial | None:
    """Return a trial that a process can report to; None if the study has no such trial."""
    optuna = import_optuna()
    for trial in study.get_trials(deepcopy=False):
        if trial.number == number:
            return optuna.trial.Trial(study, trial._trial_id)  # type: ignore[no-any-return]  # as above
    return None


def suggest(trial: Trial, name: str, distribution: BaseDistribution) -> Any:
    """Return the value of a parameter of a trial. optuna has a public method for each kind of distribution only."""
    return trial._suggest(name, distribution)
