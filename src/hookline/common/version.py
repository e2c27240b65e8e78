"""The version of hookline: set here, and nowhere else."""

from __future__ import annotations

VERSION = "0.1.0"
