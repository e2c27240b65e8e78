"""The names of the files of a run that are read by people and by pages."""

from __future__ import annotations

CONFIG, RECORDS, PLAN, LOG, PAGE = "config.yaml", "metrics.jsonl", "plan.txt", "run.log", "report.html"
