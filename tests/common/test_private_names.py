"""Names of other libraries that these do not document: each has a test, and only one module may use it.

A test that fails here names what a new version of a library has changed, and the module to adapt.
"""

from __future__ import annotations

import ast
import importlib
import pickle
from collections.abc import Callable, Iterator
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed import ProcessGroup, distributed_c10d, fsdp
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from torch.optim.lr_scheduler import ChainedScheduler, ConstantLR, LRScheduler, SequentialLR, StepLR
from torch.utils.data import DataLoader

import hookline
from hookline.common import torch_private

SOURCE = Path(hookline.__file__).parent


def part(module: str, name: str) -> Callable[[], Any]:
    """Return a function that imports a part of a module, so that a missing one fails in its own test."""
    return lambda: getattr(importlib.import_module(module), name)


def nested(kind: type[LRScheduler] | type[ChainedScheduler]) -> Any:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    inner = [ConstantLR(optimizer), StepLR(optimizer, 1)]
    return ChainedScheduler(inner) if kind is ChainedScheduler else SequentialLR(optimizer, inner, [2])


def names_in_the_compiler() -> Any:
    """Return an object with the attributes that torch.compile gives to a module. Importing it would take seconds."""
    text = (Path(torch.__file__).parent / "_dynamo" / "eval_frame.py").read_text()
    kind = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ClassDef) and n.name == "OptimizedModule")
    return type("OptimizedModule", (), {n.attr: 1 for n in ast.walk(kind) if isinstance(n, ast.Attribute)})


def annotated(module: str, name: str) -> Callable[[], Any]:
    """Return a class with the annotations of another one as attributes."""
    return lambda: type(name, (), dict(part(module, name)().__annotations__))


def agent() -> Any:
    handler = DynamicRendezvousHandler.__new__(DynamicRendezvousHandler)
    spec = WorkerSpec(role="", local_world_size=1, rdzv_handler=handler, entrypoint="python", max_restarts=0)
    return LocalElasticAgent(spec, DefaultLogsSpecs())


STATE = part("torch.distributed.fsdp._fully_shard._fsdp_state", "FSDPState")
TORCH: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"), lambda: nn.Linear(1, 1)),
    **dict.fromkeys(("_load_state_dict_pre_hooks", "_load_from_state_dict"), lambda: nn.Linear(1, 1)),
    "_metadata": lambda: nn.Linear(1, 1).state_dict(),
    "_orig_mod": names_in_the_compiler,
    "_compiled_call_impl": lambda: nn.Linear(1, 1),
    **dict.fromkeys(("_current_autograd_node", "_current_graph_task_id"), lambda: torch._C),
    "_get_sequence_nr": lambda: torch._C._autograd,
    "_sequence_nr": lambda: torch.ones(1, requires_grad=True).mul(2).grad_fn,
    "_schema": lambda: torch.ops.aten.add.Tensor,
    "TorchDispatchMode": lambda: importlib.import_module("torch.utils._python_dispatch"),
    "_NormBase": lambda: nn.modules.batchnorm,
    **{f"_foreach_{name}": lambda: torch for name in ("lerp_", "mul", "mul_", "add_", "sub", "div_")},
    "_get_fused_kernels_supported_devices": lambda: importlib.import_module("torch.utils._foreach_utils"),
    **dict.fromkeys(
        ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"), lambda: torch.optim.SGD([torch.zeros(1)])
    ),
    "_profiler_enabled": lambda: torch._C._autograd,
    "_schedulers": lambda: nested(ChainedScheduler),
    "_milestones": lambda: nested(SequentialLR),
    "_get_closed_form_lr": lambda: StepLR,
    "_DataLoader__initialized": lambda: DataLoader([1]),  # type: ignore[arg-type]  # a list is a data set
    "ExceptionWrapper": lambda: importlib.import_module("torch._utils"),
    "compute_local_shape_and_global_offset": lambda: importlib.import_module("torch.distributed.tensor._utils"),
    **dict.fromkeys(("_world", "_get_default_store", "_rank_not_in_group"), lambda: distributed_c10d),
    "_get_sequence_number_for_group": lambda: ProcessGroup,
    "_get_fsdp_state": lambda: fsdp.FSDPModule,
    **dict.fromkeys(("_lazy_init", "_root_post_backward_final_callback"), STATE),
    **dict.fromkeys(("_fsdp_param_group", "_state_ctx"), lambda: STATE()()),
    "_unsharded_param": annotated("torch.distributed.fsdp._fully_shard._fsdp_param", "FSDPParam"),
}
#: Names that a class of hookline inherits, or that only one function of hookline needs.
ELSEWHERE: dict[str, tuple[str, Callable[[], Any]]] = {
    "_stop_heartbeats": ("launching/rendezvous.py", lambda: DynamicRendezvousHandler),
    **{
        name: ("launching/agent.py", lambda: LocalElasticAgent)
        for name in ("_rendezvous", "_start_workers", "_monitor_workers")
    },
    "_worker_group": ("launching/agent.py", agent),
    "_pcontext": ("launching/agent.py", agent),
    "_Unpickler": ("checkpoint/pickle_walk.py", lambda: pickle),
    "_on_queue_feeder_error": ("data/workers.py", lambda: Queue),
    "_trial_id": ("common/studies.py", lambda: pytest.importorskip("optuna").create_study().ask()),
    "_suggest": ("common/studies.py", lambda: pytest.importorskip("optuna").trial.Trial),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch_has_the_name(name: str) -> None:
    assert hasattr(TORCH[name](), name), f"torch {torch.__version__} has no {name}: adapt {torch_private.__file__}"


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_library_has_the_name(name: str) -> None:
    file, owner = ELSEWHERE[name]
    assert hasattr(owner(), name), f"{name} is gone: adapt {file}"


def used_in(path: Path) -> Iterator[str]:
    """Yield the attributes, the imported names and the texts of a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("hookline"):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_other_module_uses_these_names() -> None:
    """A dialect has the private names of the system that it replaces, so dialects are left out."""
    places = dict.fromkeys(TORCH, "common/torch_private.py") | {name: file for name, (file, _) in ELSEWHERE.items()}
    found = {
        (name, file)
        for path in SOURCE.rglob("*.py")
        if (file := path.relative_to(SOURCE).as_posix()).partition("/")[0] != "dialects"
        for name in set(used_in(path)) & set(places)
        if file != places[name]
    }
    assert found == set()
