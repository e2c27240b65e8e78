"""Alerts: rules about runs, and where to tell about them.

    train/loss > 3      the newest value of a metric: >, >=, < or <=; `loss` is any metric whose name ends in /loss
    nan                 a metric became NaN or Inf; `nan val/loss` for one metric
    stalled             no record for ten times the usual pace, and at least a minute; `stalled 600`: for 600 seconds
    died                the process of a run is gone, or an error ended it

Each rule tells once per run, and again only after its condition was over. Runs that had ended before are left out.
"""

from __future__ import annotations

import json
import math
import operator
import re
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hookline.common.durations import as_duration, seconds_of
from hookline.common.escape import escaped
from hookline.common.files import owned
from hookline.common.numbers import as_number
from hookline.errors import ConfigError, StorageError, nearest
from hookline.report.live.changes import Feed
from hookline.rundir.states import quiet_for

if TYPE_CHECKING:
    from pathlib import Path

FORMS = ("train/loss > 3", "nan", "nan train/loss", "stalled", "stalled 10m", "died")
#: A run is stalled after this many times its usual pace, and at least this many seconds.
TIMES, LEAST_SECONDS = 10, 60.0
#: The seconds that a webhook may take, and the alerts that may wait for it.
TIMEOUT, MOST_WAITING = 5.0, 100
_COMPARISON = re.compile(r"(?P<metric>[^<>=!]*?[^<>=!\s])\s*(?P<sign>[<>=!]+)\s*(?P<value>\S+)")
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}

#: Returns, for a run, why a rule holds; empty if it does not.
Check = Callable[[Feed, float], str]


@dataclass(frozen=True)
class Rule:
    """A rule: its text, the metric that it is about (if any), and the check."""

    text: str
    check: Check
    metric: str = ""


def parse(text: str) -> Rule:
    """Return the rule that a text describes; refuse any other text with the nearest form that works."""
    words = text.split()
    if (compared := _COMPARISON.fullmatch(text.strip())) is not None:
        return _comparison(text, compared["metric"], compared["sign"], compared["value"])
    if words == ["died"]:
        return Rule(text, _has_died)
    if words and words[0] == "nan" and len(words) <= 2:
        return Rule(text, lambda feed, now: _is_nan(feed, words[1:]), *words[1:])
    if words and words[0] == "stalled" and len(words) <= 2:
        seconds = seconds_of(f"--alert '{escaped(text)}'", words[1]) if words[1:] else None
        return Rule(text, lambda feed, now: _is_stalled(feed, now, seconds))
    raise ConfigError(f"--alert '{escaped(text)}' is not a rule; {_hint(words)}")


def _hint(words: Sequence[str]) -> str:
    word = nearest(words[0], ("nan", "stalled", "died")) if words else None
    if word is not None:
        return f"did you mean '{' '.join([word, *map(escaped, words[1:2])]) if word != 'died' else word}'?"
    if len(words) == 1:
        return f"did you mean '{escaped(words[0])} > 3'?"
    return f"write it like one of these: {', '.join(FORMS)}"


def _comparison(text: str, metric: str, sign: str, value: str) -> Rule:
    if sign not in _SIGNS:
        found = ">=" if ">" in sign else "<=" if "<" in sign else ">"
        raise ConfigError(f"--alert '{escaped(text)}': did you mean '{escaped(metric)} {found} {escaped(value)}'?")
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if math.isnan(limit):
        raise ConfigError(
            f"--alert '{escaped(text)}': expected a number after {sign}, not '{escaped(value)}'; "
            f"for example '{escaped(metric)} {sign} 3'"
        )
    holds = _SIGNS[sign]

    def check(feed: Feed, now: float) -> str:
        for name, (step, found) in _named(feed, [metric]):
            if found is not None and holds(found, limit):
                return f"{name} is {as_number(found)} at step {step}"
        return ""

    return Rule(text, check, metric)


def _named(feed: Feed, metrics: Sequence[str]) -> Iterable[tuple[str, tuple[int, float | None]]]:
    """Return the newest values of the metrics with these names, or with names that end in them."""
    for name, newest in feed.newest.items():
        if not metrics or name in metrics or any(name.endswith(f"/{metric}") for metric in metrics):
            yield name, newest


def _is_nan(feed: Feed, metrics: Sequence[str]) -> str:
    return next((f"{name} is NaN or Inf at step {step}" for name, (step, v) in _named(feed, metrics) if v is None), "")


def _has_died(feed: Feed, now: float) -> str:
    return f"{feed.state.name}: {feed.state.text}" if feed.state.name in ("killed", "failed") else ""


def _is_stalled(feed: Feed, now: float, seconds: float | None) -> str:
    if feed.state.name not in ("running", "unknown"):
        return ""
    if seconds is None:
        paces = sorted(feed.paces)
        seconds = max(LEAST_SECONDS, TIMES * paces[len(paces) // 2]) if paces else LEAST_SECONDS * TIMES
    since = now - feed.seen if feed.seen is not None else quiet_for(feed.state)
    if since is None or since < seconds:
        return ""
    return f"no record for {as_duration(seconds)}, since step {feed.step}"


def find_unknown(rule: Rule, feeds: Iterable[Feed]) -> str:
    """Return a note about a rule whose metric no run has recorded yet; empty if one has, or if there is none."""
    names = {name for feed in feeds for name in feed.newest}
    if not rule.metric or not names or any(name == rule.metric or name.endswith(f"/{rule.metric}") for name in names):
        return ""
    best = nearest(rule.metric, names)
    hint = f"; did you mean '{escaped(best)}'?" if best else ""
    return f"--alert '{escaped(rule.text)}': no run has recorded '{escaped(rule.metric)}' yet{hint}"


class Alerts:
    """Checks rules, and tells about each that begins to hold.

    Args:
        rules: The rules.
        tell: Functions that take an alert, as plain data.
    """

    def __init__(self, rules: Sequence[Rule], tell: Sequence[Callable[[dict[str, Any]], None]]) -> None:
        self.rules = rules
        self._tell = tell
        self._holding: set[tuple[str, str]] = set()

    def check(self, run: str, feed: Feed, now: float | None = None) -> list[dict[str, Any]]:
        """Check all rules for one run, and return the alerts that are new."""
        now = time.monotonic() if now is None else now
        found: list[dict[str, Any]] = []
        if not feed.was_running:
            return found
        for rule in self.rules:
            why, key = rule.check(feed, now), (run, rule.text)
            if why and key not in self._holding:
                found.append({"time": round(time.time(), 3), "run": run, "rule": rule.text, "text": why})
            (self._holding.add if why else self._holding.discard)(key)
        for alert in found:
            for tell in self._tell:
                tell(alert)
        return found


def describe(alert: dict[str, Any]) -> str:
    """Return an alert as a line for people."""
    return f"ALERT {escaped(alert['run'])}: {escaped(alert['text'])} (rule: {escaped(alert['rule'])})"


class AlertFile:
    """Appends alerts to a file, one JSON object per line. It is opened at the start, so that a mistake shows then."""

    def __init__(self, path: Path, report: Callable[[str], None]) -> None:
        try:
            self._file = open(path, "ab", buffering=0, opener=owned)  # noqa: SIM115  # until the server ends
        except OSError as error:
            raise StorageError(f"--alert-file {path} cannot be written: {error.strerror or error}") from error
        self._path = path
        self._report = report

    def __call__(self, alert: dict[str, Any]) -> None:
        """Write one alert. A failure is reported, and ends nothing."""
        try:
            self._file.write(json.dumps(alert).encode() + b"\n")
        except OSError as error:
            self._report(f"warning: {self._path} cannot be written: {error.strerror or error}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Webhook:
    """Posts alerts as JSON to an address, in a thread. A failure is reported once, until it works again."""

    def __init__(self, url: str, report: Callable[[str], None]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"--webhook must be an address that begins with http:// or https://, not '{escaped(url)}'"
            )
        self._url, self._name, self._report = url, f"{parts.scheme}://{parts.hostname}", report
        self._waiting: deque[dict[str, Any]] = deque(maxlen=MOST_WAITING)
        self._wake = threading.Condition()
        self._ends = self._failed = False
        self._thread = threading.Thread(target=self._run, name="hookline-webhook", daemon=True)
        self._thread.start()

    def __call__(self, alert: dict[str, Any]) -> None:
        """Send one alert soon. Nobody waits for it."""
        with self._wake:
            self._waiting.append(alert)
            self._wake.notify()

    def close(self) -> None:
        """Send the waiting alerts, for at most a little longer than one call may take."""
        with self._wake:
            self._ends = True
            self._wake.notify()
        self._thread.join(TIMEOUT + 1)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._ends:
                    self._wake.wait()
                if not self._waiting:
                    return
                alert = self._waiting.popleft()
            self._send(alert)

    def _send(self, alert: dict[str, Any]) -> None:
        body = json.dumps({**alert, "message": describe(alert)}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        try:
            with _opener.open(request, timeout=TIMEOUT) as response:
                response.read(1000)
            self._failed = False
        except (OSError, ValueError, urllib.error.URLError) as error:
            if not self._failed:
                self._failed = True
                why = getattr(error, "reason", None) or error
                self._report(f"warning: the webhook {self._name} does not work: {why}; alerts are still shown here")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: alerts go only to the address that the user gave."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Refuse."""


_opener = urllib.request.build_opener(_NoRedirects)
