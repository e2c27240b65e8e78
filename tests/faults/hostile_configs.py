"""Configs and overrides that try to execute code. Each would create the file `ran-code` if anything in it ran."""

from __future__ import annotations

from typing import Any

from tests.faults.cases import CANARY, Case, listed
from tests.faults.project import CONFIG, config

SHELL = f"touch {CANARY}"
TRUST = "if you trust it, add --allow"


def cases() -> list[Case]:
    """Return all cases."""
    return [*_tags(), *_names(), *_nested(), *_imports(), *_bases(), *_references(), *_bombs()]


def _tags() -> list[Case]:
    """Return cases with YAML tags that other readers turn into calls."""

    def tagged(name: str, value: str, says: str, **given: Any) -> Case:
        return Case(f"fault_18_tag_{name}", 2, says, **{"config": config(model=value), **given})

    def refused(tag: str, at: str = "config.yaml:1:8 model") -> str:
        return f"{at}: the tag '{tag}' is not allowed; a config must contain only plain values"

    apply = "!!python/object/apply:os.system"
    alias = "%TAG !p! tag:yaml.org,2002:python/\n---\n"
    return [
        tagged("apply_os_system", f"{apply} ['{SHELL}']", refused(apply)),
        tagged("new_os_system", f"!!python/object/new:os.system ['{SHELL}']", refused("!!python/object/new:os.system")),
        tagged("name", "!!python/name:os.system", refused("!!python/name:os.system")),
        tagged("module", "!!python/module:antigravity", refused("!!python/module:antigravity")),
        tagged(
            "popen",
            f"!!python/object/apply:subprocess.Popen [[touch, {CANARY}]]",
            refused("!!python/object/apply:subprocess.Popen"),
        ),
        tagged(
            "eval",
            f"!!python/object/apply:builtins.eval [\"__import__('os').system('{SHELL}')\"]",
            refused("!!python/object/apply:builtins.eval"),
        ),
        tagged(
            "verbatim",
            f"!<tag:yaml.org,2002:python/object/apply:os.system> ['{SHELL}']",
            refused(apply),
        ),
        tagged(
            "by_another_prefix",
            "",
            refused(apply, "config.yaml:3:8 model"),
            config=alias + config(model=f"!p!object/apply:os.system ['{SHELL}']"),
        ),
        tagged("of_the_author", "!include /etc/passwd", refused("!include")),
        tagged(
            "deep_inside",
            f"{{type: 'mynet:Net', hidden: [1, {{a: {apply} ['{SHELL}']}}]}}",
            refused(apply, "config.yaml:1:44 model.hidden[1].a"),
        ),
        tagged(
            "as_a_key",
            f"{{? {apply} ['{SHELL}'] : 1}}",
            "config.yaml:1:11 model: a key must be a string, not a list, a mapping or an alias",
        ),
        tagged(
            "in_a_merge", f"{{<<: {apply} ['{SHELL}'], type: 'mynet:Net'}}", refused(apply, "config.yaml:1:13 model.<<")
        ),
        tagged(
            "in_a_base",
            "",
            refused(apply, "../elsewhere/base.yaml:1:7 seed"),
            config=f"_base_: ../elsewhere/base.yaml\n{config()}",
            files={"../elsewhere/base.yaml": f"seed: {apply} ['{SHELL}']\n"},
        ),
        tagged(
            "in_an_override",
            CONFIG["model"],
            refused(apply, f"override \"seed={apply} ['{SHELL}']\""),
            words=("train", "config.yaml", f"seed={apply} ['{SHELL}']"),
        ),
    ]


def _not_yours(module: str) -> str:
    return (
        f"the module '{module}' is refused: it is neither next to the config nor under the working directory; "
        f"{TRUST} {module}"
    )


def _listed(place: str, message: str) -> str:
    return listed(f"{place}: {message}")


def _names() -> list[Case]:
    """Return cases that name shells, evaluators or pickle readers, in every place of a config that takes a name."""

    def model(name: str, target: str, message: str, /, **parameters: str) -> Case:
        given = "".join(f", {key}: {value}" for key, value in parameters.items())
        text = f'{{type: "{target}"{given}}}'
        says = _listed("1:9  model.type", message)
        return Case(f"fault_18_model_{name}", 2, says, config=config(model=text))

    def in_torch(target: str, module: str) -> str:
        rule = "the model must be a subclass of torch.nn.Module if it comes from torch"
        return f"'{target}' is refused: {rule}; {TRUST} {module}"

    def walked(target: str, part: str) -> str:
        return f"'{target}' is refused: '{part}' is inside something that is neither this module nor a class"

    def imported(target: str, origin: str) -> str:
        module = origin.rpartition(".")[0]
        return (
            f"'{target}' is refused: it is {origin}, which is not defined in one of your own modules; {TRUST} {module}"
        )

    def hidden(target: str) -> str:
        return f"'{target}' is refused: a config cannot use names that begin with an underscore"

    def slot(name: str, place: str, message: str, **changes: str) -> Case:
        return Case(f"fault_18_{name}", 2, _listed(place, message), config=config(**changes))

    loader = 'dataset: {type: "mynet:Data"}'
    return [
        model("os_system", "os:system", _not_yours("os"), command=SHELL),
        model("os_system_with_a_dot", "os.system", _not_yours("os"), command=SHELL),
        model("posix_system", "posix:system", _not_yours("posix"), command=SHELL),
        model("subprocess", "subprocess:Popen", _not_yours("subprocess"), args=f"[touch, {CANARY}]"),
        model("eval", "builtins:eval", _not_yours("builtins")),
        model("exec", "builtins.exec", _not_yours("builtins")),
        model("pty", "pty:spawn", _not_yours("pty"), argv=f"[touch, {CANARY}]"),
        model("runpy", "runpy:run_path", _not_yours("runpy"), path_name="../elsewhere/evil.py"),
        model("importlib", "importlib:import_module", _not_yours("importlib"), name="antigravity"),
        model("ctypes", "ctypes:CDLL", _not_yours("ctypes"), name="./evil.so"),
        model("pickle", "pickle:load", _not_yours("pickle")),
        model("torch_load", "torch:load", in_torch("torch:load", "torch"), f="evil.pth", weights_only="false"),
        model("hub", "torch.hub:load", in_torch("torch.hub:load", "torch.hub"), repo_or_dir=".", source="local"),
        model(
            "cpp_extension",
            "torch.utils.cpp_extension:load_inline",
            in_torch("torch.utils.cpp_extension:load_inline", "torch.utils.cpp_extension"),
            name="x",
        ),
        model(
            "collect_env",
            "torch.utils.collect_env:run",
            in_torch("torch.utils.collect_env:run", "torch.utils.collect_env"),
            command=SHELL,
        ),
        model("jit_load", "torch.jit:load", in_torch("torch.jit:load", "torch.jit"), f="evil.pth"),
        model(
            "package",
            "torch.package:PackageImporter",
            in_torch("torch.package:PackageImporter", "torch.package"),
            file_or_buffer="evil.pt",
        ),
        model("os_inside_of_torch", "torch.hub:os.system", walked("torch.hub:os.system", "system"), command=SHELL),
        model(
            "os_inside_of_hookline",
            "hookline.checkpoint.store:os.system",
            walked("hookline.checkpoint.store:os.system", "system"),
            command=SHELL,
        ),
        model("os_inside_of_mine", "mynet:os.system", walked("mynet:os.system", "system"), command=SHELL),
        model("imported_by_mine", "mynet:system", imported("mynet:system", "posix.system"), command=SHELL),
        model("builtins_of_mine", "mynet:__builtins__.eval", hidden("mynet:__builtins__.eval")),
        model("globals_of_mine", "mynet:Net.__init__.__globals__", hidden("mynet:Net.__init__.__globals__")),
        model("main", "__main__:main", hidden("__main__")),
        model(
            "code_in_the_name",
            f"os:system('{SHELL}')",
            f"'os:system('{SHELL}')' is not a valid name; write 'module:Name', with the module next to the config",
        ),
        slot(
            "step",
            "2:84  train.step",
            _not_yours("os"),
            train=f'{{dataloader: {{{loader}, batch_size: 4}}, max_epochs: 1, step: "os:system"}}',
        ),
        slot(
            "step_of_torch",
            "2:84  train.step",
            f"'torch:load' is refused: the step cannot come from torch; {TRUST} torch",
            train=f'{{dataloader: {{{loader}, batch_size: 4}}, max_epochs: 1, step: "torch:load"}}',
        ),
        slot(
            "dataset",
            "2:32  train.dataloader.dataset.type",
            _not_yours("os"),
            train='{dataloader: {dataset: {type: "os:popen"}}, max_epochs: 1}',
        ),
        slot(
            "dataloader",
            "2:22  train.dataloader.type",
            _not_yours("subprocess"),
            train=f'{{dataloader: {{type: "subprocess:Popen", args: [touch, {CANARY}]}}, max_epochs: 1}}',
        ),
        slot(
            "collate_fn",
            "2:53  train.dataloader.collate_fn",
            _not_yours("os"),
            train=f'{{dataloader: {{{loader}, collate_fn: "os:system"}}, step: "mynet:loss_of", max_epochs: 1}}',
        ),
        slot(
            "optimizer",
            "5:21  optim.optimizer.type",
            _not_yours("os"),
            optim=f'{{optimizer: {{type: "os:system", command: {SHELL}}}}}',
        ),
        slot(
            "scheduler",
            "5:56  optim.schedulers[0].type",
            _not_yours("os"),
            optim=f'{{optimizer: {{type: SGD, lr: 0.1}}, schedulers: [{{type: "os:system", command: {SHELL}}}]}}',
        ),
        slot(
            "metric",
            "3:85  val.metrics.bad",
            _not_yours("subprocess"),
            val=f'{{dataloader: {{{loader}}}, step: "mynet:predict", metrics: {{bad: "subprocess:getoutput"}}}}',
        ),
        slot(
            "hook",
            "7:17  custom_hooks[0].type",
            _not_yours("os"),
            custom_hooks=f'[{{type: "os:system", command: {SHELL}}}]',
        ),
        slot(
            "default_hook",
            "7:26  default_hooks.logger.type",
            _not_yours("os"),
            default_hooks=f'{{logger: {{type: "os:system", command: {SHELL}}}}}',
        ),
        slot("writer", "7:12  writers[0].type", _not_yours("os"), writers=f'[{{type: "os:system", command: {SHELL}}}]'),
        Case(
            "fault_18_override",
            2,
            f"config.yaml: 1 error\n  override 'model.type=os:system'  model.type: {_not_yours('os')}",
            words=("train", "config.yaml", "model.type=os:system"),
        ),
        Case(
            "fault_18_lambda_of_a_scheduler",
            2,
            _listed("5:72  optim.schedulers[0].lr_lambda", _not_yours("os")),
            config=config(
                optim='{optimizer: {type: SGD, lr: 0.1}, schedulers: [{type: LambdaLR, lr_lambda: "os:system"}]}'
            ),
        ),
    ]


def _nested() -> list[Case]:
    """Return cases that name shells inside other objects: in mappings, in lists, and around plain mappings."""

    def model(name: str, text: str, place: str, message: str) -> Case:
        says = _listed(place, message)
        return Case(f"fault_18_nested_{name}", 2, says, config=config(model=f'{{type: "mynet:Wrap", {text}}}'))

    def shell(target: str) -> str:
        return f'{{type: "{target}", command: {SHELL}}}'

    run = "torch.utils.collect_env:run"
    kinds = "must be a model, a dataset, a sampler, a metric, ... if it comes from torch"
    popen = f'{{type: "subprocess:Popen", args: [touch, {CANARY}]}}'
    loader = 'type: DataLoader, dataset: {type: "mynet:Data"}'
    cases = [
        model("module", f"net: {shell('os:system')}", "1:35  model.net.type", _not_yours("os")),
        model(
            "torch_module",
            f"net: {shell(run)}",
            "1:35  model.net.type",
            f"'{run}' is refused: the model must be a subclass of torch.nn.Module if it comes from torch; "
            f"{TRUST} torch.utils.collect_env",
        ),
        model("module_by_name", 'net: "os:system"', "1:29  model.net", _not_yours("os")),
        model("list", f"nets: [{popen}]", "1:37  model.nets[0].type", _not_yours("subprocess")),
        model("dict", f"table: {{a: {popen}}}", "1:41  model.table.a.type", _not_yours("subprocess")),
        model("untyped", f"more: {shell('os:system')}", "1:36  model.more.type", _not_yours("os")),
        model(
            "untyped_torch",
            f"more: [[{{a: {shell(run)}}}]]",
            "1:42  model.more[0][0].a.type",
            f"'{run}' is refused: the object {kinds}; {TRUST} torch.utils.collect_env",
        ),
        model("keyword", f"other: {shell('posix:system')}", "1:37  model.other.type", _not_yours("posix")),
        model("function", f"call: {shell('os:system')}", "1:36  model.call.type", _not_yours("os")),
        model("function_by_name", 'call: "os:system"', "1:29  model.call", _not_yours("os")),
        model(
            "function_of_torch",
            f'call: "{run}"',
            "1:29  model.call",
            f"'{run}' is refused: the function cannot come from torch; {TRUST} torch.utils.collect_env",
        ),
        model(
            "imported_by_mine",
            f"more: {shell('mynet:system')}",
            "1:36  model.more.type",
            "'mynet:system' is refused: it is posix.system, which is not defined in one of your own modules; "
            f"{TRUST} posix",
        ),
        model(
            "around_plain",
            'more: {type: "os:system", command: {_plain_: true, type: "mynet:Net"}}',
            "1:36  model.more.type",
            _not_yours("os"),
        ),
        model(
            "forced",
            f"cfg: {{a: {{_plain_: false, {shell('os:system')[1:]}}}",
            "1:55  model.cfg.a.type",
            _not_yours("os"),
        ),
        model(
            "deep",
            "net: " + '{type: "mynet:Wrap", net: ' * 3 + popen + "}" * 3,
            "1:113  model.net.net.net.net.type",
            _not_yours("subprocess"),
        ),
    ]
    sampler = _listed("2:81  train.dataloader.sampler.type", _not_yours("os"))
    train = f"{{dataloader: {{{loader}, sampler: {shell('os:system')}}}, max_epochs: 1}}"
    cases.append(Case("fault_18_nested_sampler", 2, sampler, config=config(train=train)))
    return cases


EVIL = f"import os\nos.system('{SHELL}')\n"


def _imports() -> list[Case]:
    """Return cases that name modules outside the allowed folders; importing one would already execute code."""

    def imports(name: str, module: str, message: str, **given: Any) -> Case:
        # `work_dir` is line 6, so this is line 7.
        return Case(
            f"fault_18_imports_{name}",
            2,
            _listed("7:11  imports[0]", message),
            config=config(imports=f"['{module}']"),
            files={"../elsewhere/evil.py": EVIL, "../elsewhere/evilpackage/__init__.py": EVIL},
            **given,
        )

    no_name = "is not a valid module name; write package.module, not a path"
    return [
        imports(
            "elsewhere",
            "evil",
            "the module 'evil' was not found next to the config or under the working directory; looked in {here}",
        ),
        imports("a_path", "../elsewhere/evil", f"'../elsewhere/evil' {no_name}"),
        imports("upwards", "..elsewhere.evil", f"'..elsewhere.evil' {no_name}"),
        imports("a_file", "evil.py; import os", f"'evil.py; import os' {no_name}"),
        imports("on_the_path", "evil", _not_yours("evil"), environment={"PYTHONPATH": "../elsewhere"}),
        imports(
            "package_on_the_path",
            "evilpackage.part",
            _not_yours("evilpackage.part"),
            environment={"PYTHONPATH": "../elsewhere"},
        ),
        imports("of_the_standard_library", "antigravity", _not_yours("antigravity")),
        imports(
            "hidden",
            "_posixsubprocess",
            "'_posixsubprocess' is refused: a config cannot use names that begin with an underscore",
        ),
    ]


def _bases() -> list[Case]:
    """Return cases with a hostile `_base_`, which must be read as YAML or not at all."""

    def base(name: str, value: str, says: str, **given: Any) -> Case:
        return Case(f"fault_18_base_{name}", 2, says, config=f"_base_: {value}\n{config()}", **given)

    return [
        base(
            "remote",
            "http://127.0.0.1:9/evil.yaml",
            "config.yaml:1:1 _base_: file not found: http:/127.0.0.1:9/evil.yaml; there is no folder http:/127.0.0.1:9",
        ),
        base("command", f"'|{SHELL}'", f"config.yaml:1:1 _base_: file not found: |{SHELL}"),
        base("substitution", f"'$({SHELL})'", f"config.yaml:1:1 _base_: file not found: $({SHELL})"),
        base(
            "python",
            "evil.py",
            f"evil.py:1:1: a config must be a mapping of keys to values, not \"import os os.system('{SHELL}')\"",
            files={"evil.py": EVIL},
        ),
        base("endless", "/dev/zero", "/dev/zero: the file cannot be read: it is a device, not a regular file"),
        base("itself", "config.yaml", "config.yaml: _base_ is circular: config.yaml -> config.yaml"),
        Case(
            "fault_18_base_override",
            2,
            "override '_base_=../elsewhere/base.yaml': '_base_' cannot be overridden; it is read from the file",
            words=("train", "config.yaml", "_base_=../elsewhere/base.yaml"),
        ),
    ]


def _references() -> list[Case]:
    """Return cases with hostile `${...}` references, which must call nothing and be expanded only once."""

    def reference(name: str, value: str, says: str, **given: Any) -> Case:
        return Case(f"fault_18_reference_{name}", 2, says, config=config(experiment_name=value), **given)

    def resolver(name: str) -> str:
        hint = "use ${key.path} or ${oc.env:NAME,default}"
        return f"config.yaml:7:1 experiment_name: ${{{name}:...}} is not allowed; {hint}"

    return [
        reference("eval", "\"${eval:__import__('os').system('touch ran-code')}\"", resolver("eval")),
        reference("python", '"${python:os.system}"', resolver("python")),
        reference("create", '"${oc.create:os.system}"', resolver("oc.create")),
        reference(
            "nested",
            '"${oc.env:NOTHING,${eval:1}}"',
            "config.yaml:7:1 experiment_name: '${oc.env:NOTHING,$' is not a valid reference; write ${key.path}, "
            "without braces in it",
        ),
        reference(
            "attribute",
            '"${model.__class__.__init__}"',
            "config.yaml:7:1 experiment_name: ${model.__class__.__init__} does not exist; available: model.type",
        ),
        reference(
            "climbs",
            '"${oc.env:WHERE}"',
            "config.yaml: 1 error\n  config.yaml:7:1  experiment_name: this becomes part of file names, so it "
            "cannot be '..' or contain '/' or '\\'",
            environment={"WHERE": "../../elsewhere"},
        ),
        Case(
            "fault_18_reference_to_a_target",
            2,
            _listed("1:9  model.type", _not_yours("os")),
            config=config(model='{type: "${oc.env:TARGET}", command: touch ran-code}'),
            environment={"TARGET": "os:system"},
        ),
        Case(
            "fault_18_format_in_a_file_name",
            2,
            "config.yaml:7:17 default_hooks.checkpoint: CheckpointHook: filename_tmpl must be a file name with one {} "
            "that ends with .pth, not '{0.__class__}.pth'",
            config=config(default_hooks='{checkpoint: {filename_tmpl: "{0.__class__}.pth"}}'),
        ),
    ]


def _bombs() -> list[Case]:
    """Return cases in which a few bytes expand to billions of values; they must be refused before the expansion."""

    def bomb(name: str, text: str, says: str, **given: Any) -> Case:
        return Case(f"fault_18_bomb_{name}", 2, says, config=text, **given)

    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    merges = ["m0: &m0 {" + ", ".join(f"k{n}: x" for n in range(10)) + "}"]
    merges += [f"m{n}: &m{n} {{a: *m{n - 1}, b: *m{n - 1}, <<: *m{n - 1}}}" for n in range(1, 30)]
    texts = ["t0: xxxxxxxxxx"] + [f't{n}: "{("${t" + str(n - 1) + "}") * 10}"' for n in range(1, 12)]
    return [
        bomb(
            "aliases",
            "\n".join(lines),
            "config.yaml:5:5 a4: more than 20,000 values, counting repeated ones; this is not a config",
        ),
        bomb(
            "merges",
            "\n".join(merges),
            "config.yaml:11:6 m10: more than 20,000 values, counting repeated ones; this is not a config",
        ),
        bomb(
            "references",
            "\n".join(texts),
            "config.yaml:6:1 t5: the references expand to more than 1,000,000 characters",
        ),
        bomb("itself", "model: &a [*a]\n", "config.yaml:1:12 model[0]: '*a' is used inside its own anchor '&a'"),
        bomb(
            "deep", "model: " + "[" * 20_000, "config.yaml:1:108 model: more than 100 levels deep; this is not a config"
        ),
        bomb(
            "wide",
            "model: [" + "x," * 400_000 + "]",
            "config.yaml:1:40005 model: more than 20,000 values; this is not a config",
        ),
        bomb(
            "large",
            "# " + "x" * 1_100_000,
            "config.yaml: the file is larger than 1,000,000 bytes; this is not a config",
        ),
        bomb(
            "digits", "seed: " + "9" * 100_000, "config.yaml:1:7 seed: the number has 100000 digits, too many to read"
        ),
        Case(
            "fault_18_bomb_override",
            2,
            f"override 'model={'[' * 190}... [0]: more than 100 levels deep; this is not a config",
            words=("train", "config.yaml", "model=" + "[" * 20_000),
        ),
    ]
