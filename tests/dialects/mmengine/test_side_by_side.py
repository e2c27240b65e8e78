from __future__ import annotations

import json
import subprocess
import sys

from tests.dialects.mmengine import base_changes, side_by_side


def test_schedulers_groups_configs_rules_and_modes_match_the_real_package_to_the_last_bit() -> None:
    command = [sys.executable, "-m", "tests.dialects.mmengine.side_by_side"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    pairs, further, converted, others, plateaus, groups, config, modes = 9 * 9 * 4, 5, 9, 8 * 3, 4, 6, 1, 2 * 2
    changes = len(base_changes.CHANGES) + len(base_changes.CHANGES_OF_IMPORTS)
    rules = len(side_by_side.NAMES)
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "cases": pairs + further + converted + others + plateaus + groups + config + changes + rules + modes,
        "different": {},
    }
