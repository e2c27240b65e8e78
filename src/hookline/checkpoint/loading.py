"""Loading with torch: a file of anyone after a scan, and a file that was just written as a proof that it can be loaded.

The proof is torch's decision alone. A save therefore does not depend on which functions this version of torch writes.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import IO, Any

import torch
from torch.serialization import get_safe_globals

from hookline.checkpoint import scan
from hookline.checkpoint.pickle_walk import CODE
from hookline.checkpoint.zip_entries import DAMAGED, UnreadableError, find_entries
from hookline.common.files import regular

#: What torch has loaded in this process: the names in a pickle, and the classes that were declared safe then.
_proven: set[frozenset[Any]] = set()


def load(source: Path | IO[bytes], *, mmap: bool = False) -> Any:
    """Load a file of torch without running code from it, and without more memory and time than its size explains.

    Raise UnreadableError with the reason if this is not possible. With `mmap`, the data of tensors is not read.
    """
    scan.scan(source)
    # torch checks the indices of sparse tensors only on request. Wrong ones would reach into other memory.
    with torch.sparse.check_sparse_tensor_invariants():  # type: ignore[no-untyped-call]  # torch has no types here
        return _load(source, mmap=mmap)


def prove_loadable(path: Path, *, always: bool = False) -> None:
    """Raise UnreadableError if torch cannot load a file that was just written.

    torch's loader takes longer than the save. So it is called only if it has not loaded a pickle with the same names of
    functions and classes before, if hookline cannot read these names, or if the caller wants it.
    """
    try:
        names = frozenset([*_names_in(path), *get_safe_globals()])
    except Exception:  # torch decides whether a file can be loaded
        names = None
    if names in _proven and not always:
        return
    try:
        _load(path, mmap=True)
    except UnreadableError:  # or the file system cannot map a file into memory
        _load(path)
    if names is not None:
        _proven.add(names)


def _load(source: Path | IO[bytes], *, mmap: bool = False) -> Any:
    try:
        return torch.load(source, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:  # torch's message advises running the code in the file
        raise UnreadableError(CODE) from error
    except Exception as error:  # a broken or hostile file can cause any error here
        raise UnreadableError(DAMAGED) from error


def _names_in(path: Path) -> set[str]:
    """Return the names in a file that this process wrote. For other files, memory and time would not be limited."""
    with open(path, "rb", opener=regular) as file:
        pickled = scan.read_pickle(file, find_entries(file))
    reader = _NameReader(io.BufferedReader(io.BytesIO(pickled)))  # many times faster than without a buffer
    reader.load()
    return reader.names


class _NameReader(pickle.Unpickler):
    """A reader that notes the names in a pickle, and imports and calls nothing."""

    def __init__(self, file: io.BufferedReader) -> None:
        super().__init__(file)
        self.names: set[str] = set()

    def find_class(self, module: str, name: str) -> type[_Inert]:
        self.names.add(f"{module}.{name}")
        return _Inert

    def persistent_load(self, storage: Any) -> None:
        """Leave out the memory of a tensor."""


class _Inert(dict[Any, Any]):
    """Stands for every function, class and object in a pickle, and does nothing."""

    def __init__(self, *arguments: Any) -> None:
        """Ignore the arguments of a call."""

    def __setstate__(self, state: Any) -> None:
        """Ignore a state."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # an object may be a key
