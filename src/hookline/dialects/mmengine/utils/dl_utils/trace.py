"""Detect that a model is being traced."""

from __future__ import annotations

import torch


def is_jit_tracing() -> bool:
    """Return whether torch is tracing a model."""
    return bool(torch._C._is_tracing())
