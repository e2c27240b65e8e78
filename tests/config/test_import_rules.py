"""The rules about imports hold for everything that an object of a config imports for it, also during the run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hookline import Runner
from hookline.common.import_rules import check_import
from hookline.errors import ConfigError

Write = Callable[[str, str], Path]

MODULE = """
from hookline import Hook
from hookline.dialects.mmengine.dataset import BaseDataset
from hookline.dialects.mmengine.registry import TRANSFORMS
from hookline.dialects.mmengine.utils import get_object_from_string, import_modules_from_strings
from mynet import Data


class Own(Data):
    def __init__(self, pipeline: list):
        super().__init__(8)
        self.pipeline = [TRANSFORMS.build(each) for each in pipeline]


class Later(Hook):
    def __init__(self, how: str):
        self.how = how

    def before_train(self, runner):
        if self.how == "registry":
            TRANSFORMS.get("elsewhere.X")
        elif self.how == "imports":
            import_modules_from_strings(["elsewhere.registry"])
        else:
            get_object_from_string("elsewhere.registry.X")
"""
REFUSED = "the module 'elsewhere{}' is refused: it is neither next to the config nor under the working directory; "
DATASETS: list[dict[str, Any]] = [
    {"type": "hookline.dialects.mmengine.dataset:BaseDataset", "lazy_init": True},
    {"type": "lookups:Own"},
]


@pytest.fixture
def ran(mynet: Write, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that a module outside the project writes when it is imported."""
    mynet("lookups.py", MODULE)
    outside = tmp_path_factory.mktemp("outside")
    package = outside / "elsewhere"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "registry.py").write_text(
        f"""
from hookline.dialects.mmengine.registry import TRANSFORMS as PARENT, Registry
__import__("pathlib").Path({str(outside / "ran")!r}).touch()
TRANSFORMS = Registry("transform", parent=PARENT, scope="elsewhere")
@TRANSFORMS.register_module()
class X(dict):
    def __call__(self, data): return data
"""
    )
    monkeypatch.syspath_prepend(str(outside))
    for name in ("elsewhere", "elsewhere.registry"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    from hookline.dialects.mmengine.registry import TRANSFORMS

    monkeypatch.setattr(TRANSFORMS, "children", dict(TRANSFORMS.children))
    return outside / "ran"


def config(**changes: Any) -> dict[str, Any]:
    return {
        "imports": ["mynet", "lookups"],
        "model": {"type": "mynet:Net"},
        "train": {
            "dataloader": {"dataset": {"type": "mynet:Data", "n": 8}, "batch_size": 4},
            "step": "mynet:loss_of",
            "max_epochs": 1,
        },
        "optim": {"optimizer": {"type": "SGD", "lr": 0.1}},
        "work_dir": "out",
        **changes,
    }


@pytest.mark.parametrize("dataset", DATASETS, ids=["of the dialect", "own"])
def test_a_name_in_plain_data_imports_nothing_from_elsewhere(dataset: dict[str, Any], ran: Path) -> None:
    given = config()
    given["train"]["dataloader"]["dataset"] = {**dataset, "pipeline": [{"_plain_": True, "type": "elsewhere.X"}]}
    with pytest.raises(ConfigError) as caught:
        Runner.from_config(given)
    assert f"{REFUSED.format('.registry')}if you trust it, add --allow elsewhere.registry" in str(caught.value)
    assert not ran.exists()
    Runner.from_config(given, allow=["elsewhere"])
    assert ran.exists()


@pytest.mark.parametrize(("how", "module"), [("registry", ".registry"), ("imports", ".registry"), ("object", "")])
def test_the_rules_hold_during_the_run(how: str, module: str, ran: Path) -> None:
    given = config(custom_hooks=[{"type": "lookups:Later", "how": how}])
    with pytest.raises(ConfigError) as caught:
        Runner.from_config(given).train()
    assert str(caught.value).startswith(REFUSED.format(module))
    assert not ran.exists()
    Runner.from_config(given, allow=["elsewhere"]).train()
    assert ran.exists()


def test_python_code_may_import_anything(ran: Path) -> None:
    from hookline.dialects.mmengine.registry import TRANSFORMS

    with pytest.raises(ConfigError), Runner.from_config(config())._host.import_rules():
        check_import("elsewhere.registry")
    assert TRANSFORMS.get("elsewhere.X").__name__ == "X"
