"""Loading with torch: a file of anyone after a scan, and a file that was just written as a proof that it can be loaded.

The proof is torch's decision alone. A save therefore does not depend on which functions this version of torch writes.
"""

from __future__ import annotations

import io
import pickle
import re
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
#: Everything in a pickle that looks like a name. Reading it as a pickle takes longer, but finds the true names only.
LIKE_A_NAME = re.compile(rb"c(?=([\w.\x80-\xff]+)\n([\w.\x80-\xff]+)\n)")
#: What looked like a name in files that were proven, and how many such files are remembered.
_looked: set[frozenset[Any]] = set()
MOST_LOOKED = 64


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
    safe = get_safe_globals()
    names: frozenset[Any] | None = None
    looks: frozenset[Any] | None = None
    try:
        pickled = _pickle_in(path)
        looks = frozenset([*LIKE_A_NAME.findall(pickled), *safe])
        if looks in _looked and not always:
            return
        names = frozenset([*_names_in(pickled), *safe])
    except Exception:  # torch decides whether a file can be loaded
        names = None
    if names not in _proven or always:
        try:
            _load(path, mmap=True)
        except UnreadableError:  # or the file system cannot map a file into memory
            _load(path)
    if names is not None and looks is not None:
        _proven.add(names)
        if len(_looked) == MOST_LOOKED:
            _looked.clear()
        _looked.add(looks)


def _load(source: Path | IO[bytes], *, mmap: bool = False) -> Any:
    try:
        return torch.load(source, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:  # torch's message advises running the code in the file
        raise UnreadableError(CODE) from error
    except Exception as error:  # a broken or hostile file can cause any error here
        raise UnreadableError(DAMAGED) from error


def _pickle_in(path: Path) -> bytes:
    with open(path, "rb", opener=regular) as file:
        return scan.read_pickle(file, find_entries(file))


def _names_in(pickled: bytes) -> set[str]:
    """Return the names in a pickle that this process wrote. For others, memory and time would not be limited."""
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
