"""Python's garbage collector during imports.

A full collection looks at everything that torch has imported. It takes a tenth of a second and finds nothing, because
modules stay.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Collect no garbage inside the `with` block. Everything that is there at its end counts as old then."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():  # else the user has frozen objects, which must stay frozen
                gc.freeze()
                gc.unfreeze()  # into the oldest generation, without looking at them
            gc.enable()
