"""Values that no part of a run can use, and states that a checkpoint could store, but nobody could read back."""

from __future__ import annotations

from tests.faults.cases import Case
from tests.faults.mistakes import evaluation, training
from tests.faults.project import config

ODD = '''
"""Values that are not numbers, and states that cannot be read back."""

import torch
from hookline import Hook
from mynet import Net, loss_of


class Result:
    value = None
    def update(self, preds, target): ...
    def reset(self): ...
    def compute(self):
        return self.value

class Text(Result):
    value = "good"

class Nothing(Result): ...

class Complex(Result):
    value = 1 + 2j

class Mapping(Result):
    value = {"a": {"b": 1.0}}

class EmptyMapping(Result):
    value = {}

class List(Result):
    value = [0.5, "good"]

class Large(Result):
    value = 10**400

class Vector(Result):
    value = torch.zeros(3)

class Bytes(Result):
    value = b"good"

class Object(Result):
    value = object()

def nothing(preds, target): return None
def complex_number(preds, target): return 1 + 2j
def mapping(preds, target): return {"a": 1.0}
def large(preds, target): return 10**400
def no_values(preds, target): return torch.zeros(0)

def logs_text(model, batch): return {"loss": loss_of(model, batch), "note": "good", "more": None}
def logs_complex(model, batch): return {"loss": loss_of(model, batch), "part": torch.ones((), dtype=torch.complex64)}


# -- states

LARGE = 1 << 2041  # one bit more than torch can read

class LargeState(Hook):
    def state_dict(self): return {"seen": LARGE}
    def load_state_dict(self, state): assert state["seen"] == LARGE

class LargeKey(Hook):
    def state_dict(self): return {"seen": {LARGE: 1}}
    def load_state_dict(self, state): assert state["seen"] == {LARGE: 1}

class NegativeState(Hook):
    def state_dict(self): return {"seen": [-LARGE]}
    def load_state_dict(self, state): assert state["seen"] == [-LARGE]

class Mine(torch.Tensor): ...

class MineState(Hook):
    def state_dict(self): return {"seen": torch.zeros(2).as_subclass(Mine)}
    def load_state_dict(self, state): assert type(state["seen"]) is Mine

class AttributeState(Hook):
    def state_dict(self):
        seen = torch.zeros(2)
        seen.origin = Net
        return {"seen": seen}
    def load_state_dict(self, state): assert state["seen"].tolist() == [0, 0]

class Subclass(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(2).as_subclass(Mine))

class Attribute(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(2))
        self.seen.origin = Net

class AttributeOfAWeight(Net):
    def __init__(self):
        super().__init__()
        self.layers[0].weight.origin = Mine

class ExtraState(Net):
    def get_extra_state(self): return {"seen": LARGE}
    def set_extra_state(self, state): assert state == {"seen": LARGE}

class OddExtraState(Net):
    def get_extra_state(self): return {"seen": {1, 2}}
    def set_extra_state(self, state): assert state == {"seen": {1, 2}}

class Deep(Hook):
    def state_dict(self):
        value = []
        for _ in range(2000):
            value = [value]
        return {"seen": value}
    def load_state_dict(self, state): ...

class Endless(Hook):
    def state_dict(self):
        value = [1]
        value.append(value)
        return {"seen": value}
    def load_state_dict(self, state): ...

class Surrogate(Hook):
    def state_dict(self): return {"seen": "\\ud800"}
    def load_state_dict(self, state): assert state["seen"] == "\\ud800"

class Odd(torch.optim.SGD):
    def __init__(self, params):
        super().__init__(params, lr=0.1)
        self.param_groups[0]["seen"] = LARGE
'''


def cases() -> list[Case]:
    """Return all cases."""
    return [*_values(), *_states()]


def possible_cases() -> list[Case]:
    """Return metrics that are not numbers. A run may leave them out or refuse them, but must do it properly."""
    classes = ("Text", "Nothing", "Complex", "Mapping", "EmptyMapping", "List", "Large", "Vector", "Bytes")
    functions = ("nothing", "complex_number", "mapping", "large", "no_values")

    def metric(name: str, text: str, label: str = "val", **changes: str) -> Case:
        section = {label: evaluation(metrics=f"{{odd: {text}}}")}
        return Case(f"metric_{label}_{name}", None, config=config(**section, **changes), files={"odd.py": ODD})

    best = "{checkpoint: {save_best: odd, rule: greater}}"
    plateau = "{optimizer: {type: SGD, lr: 0.1}, schedulers: [{type: ReduceLROnPlateau}]}"
    return [
        *(metric(name, f'{{type: "odd:{name}"}}') for name in (*classes, "Object")),
        *(metric(f"{name}_as_best", f'{{type: "odd:{name}"}}', default_hooks=best) for name in classes),
        *(metric(f"{name}_of_a_scheduler", f'{{type: "odd:{name}"}}', optim=plateau) for name in classes[:5]),
        *(metric(f"function_{name}", f'"odd:{name}"') for name in functions),
        *(metric(name, f'{{type: "odd:{name}"}}', "test") for name in classes[:4]),
        *(
            Case(
                f"metric_step_{name}", None, config=config(train=training(step=f'"odd:{name}"')), files={"odd.py": ODD}
            )
            for name in ("logs_text", "logs_complex")
        ),
    ]


def _values() -> list[Case]:
    """Return cases with values that YAML can write, but that nothing can use."""

    def value(name: str, mentions: str, code: int | None = 2, **changes: str | None) -> Case:
        return Case(f"value_{name}", code, mentions=("hookline: ", mentions), config=config(**changes))

    def rate(value: str) -> str:
        return f"{{optimizer: {{type: SGD, lr: {value}}}}}"

    def records(name: str) -> str:
        return f'[{{type: jsonl, filename: "{name}"}}]'

    digits = "0x" + "f" * 100_000
    return [
        value("no_character_as_key", "config.yaml:7", 2, **{'"\\UFFFFFFFF"': "1"}),
        value("no_character_in_a_list", "config.yaml:", imports='["\\U00110000"]'),
        value("surrogate", "config.yaml:7", experiment_name='"\\uD800"'),
        value("hex_digits", "config.yaml:7", seed=digits),
        value("hex_digits_of_a_rate", "config.yaml:5", optim=rate(digits)),
        value("octal_digits", "config.yaml:7", seed="0o" + "7" * 100_000),
        value("binary_digits", "config.yaml:7", seed="0b" + "1" * 100_000),
        value("sexagesimal", "config.yaml:7", seed=":".join(["59"] * 20_000)),
        value("many_digits", "config.yaml:7", seed="9" * 4_000),
        value("seed_too_large", "seed", seed="18446744073709551616"),
        value("device_meta", "meta", device="meta"),
        value("rate_nan", "", None, optim=rate(".nan")),
        value("rate_infinite", "", None, optim=rate(".inf")),
        value("clip_nan", "clip_norm", optim="{optimizer: {type: SGD, lr: 0.1}, clip_norm: .nan}"),
        value("clip_infinite_value", "clip_value", optim="{optimizer: {type: SGD, lr: 0.1}, clip_value: .nan}"),
        value("records_as_lock", ".lock", writers=records(".lock")),
        value("records_as_checkpoint", "epoch_1.pth", writers=records("epoch_1.pth")),
        value("records_as_iteration", "iter_2.pth", writers=records("iter_2.pth")),
        value("records_as_pointer", "last_checkpoint", writers=records("last_checkpoint")),
        value("records_as_log", "run.log", writers=records("run.log")),
        value("records_as_config", "config.yaml", writers=records("config.yaml")),
        value("records_as_partial", ".epoch_1.pth.partial", writers=records(".epoch_1.pth.partial")),
        value("records_twice", "metrics.jsonl", writers='[jsonl, {type: csv, filename: "metrics.jsonl"}]'),
    ]


def _states() -> list[Case]:
    """Return cases with states that torch can write but not read.

    The run may refuse such a state or save it in another form. It must not leave a checkpoint that cannot be resumed.
    """
    again = ("train", "config.yaml", "train.max_epochs=2", "--resume")

    def state(name: str, **changes: str) -> Case:
        return Case(f"state_{name}", None, config=config(**changes), files={"odd.py": ODD}, then=again)

    hooks = ("LargeState", "LargeKey", "NegativeState", "MineState", "AttributeState", "Deep", "Endless", "Surrogate")
    models = ("Subclass", "Attribute", "AttributeOfAWeight", "ExtraState", "OddExtraState")
    return [
        *(state(f"of_a_hook_{name}", custom_hooks=f"['odd:{name}']") for name in hooks),
        *(state(f"of_a_model_{name}", model=f'{{type: "odd:{name}"}}') for name in models),
        state("of_an_optimizer", optim='{optimizer: {type: "odd:Odd"}}'),
    ]
