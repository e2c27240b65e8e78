"""Tracing of models."""

from __future__ import annotations

import torch


def is_jit_tracing() -> bool:
    """Whether torch is tracing a model."""
    return bool(torch._C._is_tracing())
