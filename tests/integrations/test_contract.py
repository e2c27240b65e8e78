"""One contract over every built-in hook and every engine: the same records as in a Runner, or refused by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hookline.errors import HookError
from hookline.integrations.refusals import HARMLESS, REASONS
from tests.integrations.engines import run_in_runner
from tests.integrations.hosts import CALLBACKS, HOSTS, NAMES, PAGE, PARAMETERS, find_refusal, given, page

REFUSED = {
    "DistSamplerSeedHook",
    "EMAHook",
    "FreezeHook",
    "GradClipHook",
    "ParamSchedulerHook",
    "ProgressHook",
    "SyncBuffersHook",
}
#: Hooks that one engine alone refuses.
REFUSED_IN = {"Lightning": REFUSED, "Transformers": REFUSED | {"RankTimesHook", "VisualizationHook"}}
ALLOWED = [(name, host) for host in HOSTS for name in NAMES if name not in REFUSED_IN[host]]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def depends_on_the_clock(name: str) -> bool:
    return name.endswith("time") or name.startswith(("train/stats/", "train/ranks/"))


def records(folder: str) -> list[dict[str, Any]]:
    """Return the records without durations, and without the loss that only Transformers adds to a validation."""
    found = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    left = [{name: value for name, value in record.items() if not depends_on_the_clock(name)} for record in found]
    return [{name: value for name, value in record.items() if name != "val/loss"} for record in left]


def events(folder: str) -> list[tuple[Any, ...]]:
    """Return the saves, validations and stops of a run."""
    found = [json.loads(line) for line in (Path(folder) / "events.jsonl").read_text().splitlines()]
    kinds = ("save", "validation", "stop")
    return [(each["kind"], each.get("file"), each.get("reason")) for each in found if each["kind"] in kinds]


@pytest.mark.parametrize(("name", "host"), ALLOWED)
def test_a_hook_records_the_same_as_in_a_runner(name: str, host: str) -> None:
    hooks, default = given(name)
    HOSTS[host](Path("theirs/run"), hooks, default)
    run_in_runner(Path("ours/run"), *given(name))
    assert records("theirs/run") == records("ours/run")
    assert len(records("theirs/run")) >= 3
    assert events("theirs/run") == events("ours/run")


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", ["GradNormHook", "LoggerHook", "CheckpointHook", "EvaluateHook"])
def test_a_hook_records_the_same_with_accumulation(name: str, host: str) -> None:
    hooks, default = given(name)
    HOSTS[host](Path("theirs/run"), hooks, default, accumulate=5, samples=40)  # ten full batches
    run_in_runner(Path("ours/run"), *given(name), accumulate=5, samples=40)
    assert records("theirs/run") == records("ours/run")
    assert records("theirs/run")[-1]["step"] == 20
    assert events("theirs/run") == events("ours/run")


@pytest.mark.parametrize("host", HOSTS)
def test_the_others_are_refused_by_name_when_the_callback_is_created(host: str) -> None:
    refused = {name: find_refusal(name, host) for name in NAMES}
    assert {name for name, message in refused.items() if message} == REFUSED_IN[host]
    for name in REFUSED_IN[host]:
        assert refused[name].startswith(f"{name} cannot be used inside {host}: ")


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("policy", ["skip", "stop"])
def test_a_policy_that_skips_is_refused(host: str, policy: str) -> None:
    with pytest.raises(HookError, match=f"CheckInvalidLossHook cannot be used inside {host}: policy: {policy} skips a"):
        CALLBACKS[host]([{"type": "CheckInvalidLossHook", "policy": policy}])


def test_the_message_says_what_to_use_instead() -> None:
    assert find_refusal("GradClipHook", "Lightning") == (
        "GradClipHook cannot be used inside Lightning: it clips the gradients; use Trainer(gradient_clip_val=...)"
    )
    assert find_refusal("GradClipHook", "Transformers") == (
        "GradClipHook cannot be used inside Transformers: it clips the gradients; use "
        "TrainingArguments(max_grad_norm=...)"
    )


def test_every_name_in_the_tables_is_a_built_in_hook() -> None:
    assert {*HARMLESS, *REASONS, *PARAMETERS} <= set(NAMES)


def test_the_page_about_hosts_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(), "the page is out of date; run: make docs"
    assert len(re.findall(r"^\| `", text, re.MULTILINE)) == len(NAMES)
