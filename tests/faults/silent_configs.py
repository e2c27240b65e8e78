"""Bad configs, and bad modules that they name. They must be refused before training."""

from __future__ import annotations

from typing import Any

from tests.faults.cases import Case, listed
from tests.faults.mistakes import bad, evaluation, training
from tests.faults.project import CONFIG, config


def cases() -> list[Case]:
    """Return all cases."""
    return [*_keys(), *_values(), *_files(), *_modules()]


def _keys() -> list[Case]:
    """Return cases with misspelled keys and parameters, at every level."""
    loader = 'dataset: {type: "mynet:Data"}, batch_size: 2'
    return [
        bad("key_at_the_top", 2, listed("7:1  sede: unknown key 'sede'; did you mean 'seed'?"), sede="1"),
        bad(
            "key_of_the_model_section",
            2,
            listed("6:1  modle: unknown key 'modle'; did you mean 'model'?"),
            model=None,
            modle=CONFIG["model"],
        ),
        bad(
            "key_of_train",
            2,
            listed("2:92  train.max_epoch: unknown key 'max_epoch'; did you mean 'max_epochs'?"),
            train=training(max_epochs=None, max_epoch="1"),
        ),
        bad(
            "key_of_val",
            2,
            listed("3:90  val.metric: unknown key 'metric'; did you mean 'metrics'?"),
            val=evaluation(metrics=None, metric="{accuracy: accuracy}"),
        ),
        bad(
            "key_of_test",
            2,
            listed("4:122  test.limit_batch: unknown key 'limit_batch'; did you mean 'limit_batches'?"),
            test=evaluation(limit_batch="1"),
        ),
        bad(
            "key_of_optim",
            2,
            listed("5:42  optim.acumulate: unknown key 'acumulate'; did you mean 'accumulate'?"),
            optim="{optimizer: {type: SGD, lr: 0.1}, acumulate: 2}",
        ),
        bad(
            "key_of_a_loader",
            2,
            listed("2:68  train.dataloader.shufle: unknown key 'shufle'; did you mean 'shuffle'?"),
            train=training(dataloader=f"{{{loader}, shufle: true}}"),
        ),
        bad(
            "key_of_default_hooks",
            2,
            listed("7:17  default_hooks.chekpoint: unknown key 'chekpoint'; did you mean 'checkpoint'?"),
            default_hooks="{chekpoint: {interval: 1}}",
        ),
        bad(
            "parameter_of_a_model",
            2,
            listed("1:28  model.hiden: Net has no parameter 'hiden'; did you mean 'hidden'?"),
            model='{type: "mynet:Net", hiden: 5}',
        ),
        bad(
            "parameter_of_a_dataset",
            2,
            listed("2:52  train.dataloader.dataset.sample: Data has no parameter 'sample'; did you mean 'samples'?"),
            train=training(dataloader='{dataset: {type: "mynet:Data", sample: 9}}'),
        ),
        bad(
            "parameter_of_an_optimizer",
            2,
            listed("5:41  optim.optimizer.momentun: SGD has no parameter 'momentun'; did you mean 'momentum'?"),
            optim="{optimizer: {type: SGD, lr: 0.1, momentun: 0.9}}",
        ),
        bad(
            "parameter_of_a_scheduler",
            2,
            listed("5:70  optim.schedulers[0].stepsize: StepLR has no parameter 'stepsize'; did you mean 'step_size'?"),
            optim="{optimizer: {type: SGD, lr: 0.1}, schedulers: [{type: StepLR, stepsize: 1}]}",
        ),
        bad(
            "parameter_of_a_group",
            2,
            listed(
                "5:75  optim.param_groups[0].wieght_decay: SGD has no parameter 'wieght_decay'; did you mean "
                "'weight_decay'?"
            ),
            optim='{optimizer: {type: SGD, lr: 0.1}, param_groups: [{match: "*.bias", wieght_decay: 0}]}',
        ),
        bad(
            "fault_27_parameter_of_a_hook",
            2,
            listed(
                "7:26  default_hooks.logger.intervall: LoggerHook has no parameter 'intervall'; did you mean "
                "'interval'?"
            ),
            default_hooks="{logger: {intervall: 5}}",
        ),
        bad(
            "fault_27_parameter_of_a_custom_hook",
            2,
            listed(
                "7:37  custom_hooks[0].colour: ProgressHook has no parameter 'colour'; available: window, "
                "smoothing_factor, monitor, rule, type, priority, on_error, ranks, budget"
            ),
            custom_hooks="[{type: ProgressHook, colour: red}]",
        ),
        bad(
            "parameter_of_a_writer",
            2,
            listed("7:25  writers[0].file_name: JsonlWriter has no parameter 'file_name'; did you mean 'filename'?"),
            writers="[{type: jsonl, file_name: x}]",
        ),
        bad("section_missing", 2, listed("1:1  the key 'model' is missing"), model=None),
        bad(
            "no_training", 2, "this run has no training; add it: Runner(..., train=TrainLoop(loader, ...))", train=None
        ),
        bad("no_optimizer", 2, "training needs an optim; add one: Runner(..., optim=Optim(optimizer))", optim=None),
    ]


def _values() -> list[Case]:
    """Return cases with values of the wrong type or out of range."""
    return [
        bad(
            "value_epochs_in_words",
            2,
            listed("2:92  train.max_epochs: expected an int, found 'five'"),
            train=training(max_epochs="five"),
        ),
        bad(
            "value_no_epochs",
            2,
            listed("2:92  train.max_epochs: expected a number of at least 1, found 0"),
            train=training(max_epochs="0"),
        ),
        bad(
            "value_both_lengths",
            2,
            listed("2:1  train: expected either max_epochs or max_iters, found both"),
            train=training(max_iters="3"),
        ),
        bad(
            "value_no_length",
            2,
            listed("2:1  train: expected either max_epochs or max_iters, found neither"),
            train=training(max_epochs=None),
        ),
        bad(
            "value_batch_size",
            2,
            listed("2:53  train.dataloader.batch_size: expected a number of at least 1, found 0"),
            train=training(dataloader='{dataset: {type: "mynet:Data"}, batch_size: 0}'),
        ),
        bad(
            "value_workers",
            2,
            listed("2:53  train.dataloader.num_workers: expected a number of at least 0, found -1"),
            train=training(dataloader='{dataset: {type: "mynet:Data"}, num_workers: -1}'),
        ),
        bad(
            "value_accumulate",
            2,
            listed("5:42  optim.accumulate: expected a number of at least 1, found 0"),
            optim="{optimizer: {type: SGD, lr: 0.1}, accumulate: 0}",
        ),
        bad(
            "value_clip_twice",
            2,
            listed("5:1  optim: expected clip_norm or clip_value, not both"),
            optim="{optimizer: {type: SGD, lr: 0.1}, clip_norm: 1, clip_value: 1}",
        ),
        bad(
            "value_learning_rate",
            2,
            listed("5:32  optim.optimizer.lr: expected a number, found 'fast'"),
            optim="{optimizer: {type: SGD, lr: fast}}",
        ),
        bad(
            "value_negative_learning_rate",
            2,
            "config.yaml:5:9 optim.optimizer: SGD(...) failed: ValueError: Invalid learning rate: -1.0",
            optim="{optimizer: {type: SGD, lr: -1}}",
        ),
        bad("value_seed", 2, listed("7:1  seed: expected a number of at least 0, found -1"), seed="-1"),
        bad("value_seed_with_a_point", 2, listed("7:1  seed: expected an int, found 1.5"), seed="1.5"),
        bad(
            "value_of_a_hook",
            2,
            listed("7:26  default_hooks.logger.interval: expected an int, found 'often'"),
            default_hooks="{logger: {interval: often}}",
        ),
        bad(
            "value_interval_of_the_logger",
            2,
            "config.yaml:7:17 default_hooks.logger: LoggerHook: interval must be an int of at least 1, not 0",
            default_hooks="{logger: {interval: 0}}",
        ),
        bad(
            "value_save_begin",
            2,
            "config.yaml:7:17 default_hooks.checkpoint: CheckpointHook: save_begin must be an int of at least 0, "
            "not -1",
            default_hooks="{checkpoint: {save_begin: -1}}",
        ),
        bad(
            "value_by_epoch",
            2,
            "CheckpointHook: by_epoch=True needs training by epochs, but this run trains by iterations",
            train=training(max_epochs=None, max_iters="2"),
            default_hooks="{checkpoint: {by_epoch: true}}",
        ),
        bad(
            "value_file_name_of_checkpoints",
            2,
            "config.yaml:7:17 default_hooks.checkpoint: CheckpointHook: filename_tmpl must be a file name with one {} "
            "that ends with .pth, not '{}{x}.pth'",
            default_hooks='{checkpoint: {filename_tmpl: "{}{x}.pth"}}',
        ),
        bad(
            "value_hidden",
            2,
            listed("1:28  model.hidden: expected an int, found 'wide'"),
            model='{type: "mynet:Net", hidden: wide}',
        ),
        bad(
            "value_hidden_negative",
            2,
            "config.yaml:1:1 model: Net(...) failed: RuntimeError: Trying to create tensor with "
            "negative dimension -2: [-2, 4]",
            model='{type: "mynet:Net", hidden: -2}',
        ),
        Case("value_device", 2, mentions=("hookline: unknown device 'gpu': ",), config=config(device="gpu")),
        bad(
            "value_device_not_here",
            2,
            "the device 'xla:0' is not available with this torch on this machine; available: cpu",
            device="xla:0",
        ),
        bad(
            "value_device_without_data",
            2,
            "the device 'meta' holds no data, so it cannot train; available: cpu",
            device="meta",
        ),
        bad(
            "value_lr_nan",
            2,
            listed("5:32  optim.optimizer.lr: expected a finite number, found .nan"),
            optim="{optimizer: {type: SGD, lr: .nan}}",
        ),
        bad(
            "value_gamma_negative",
            2,
            "config.yaml:5:1 optim: ExponentialLR: gamma must be a number of at least 0, not -1.0",
            optim="{optimizer: {type: SGD, lr: 0.1}, schedulers: [{type: ExponentialLR, gamma: -1}]}",
        ),
        bad(
            "value_no_character",
            2,
            "config.yaml:7:21: invalid YAML: the escape \\UFFFFFFFF stands for no character; the last one is "
            "\\U0010FFFF",
            experiment_name='"\\UFFFFFFFF"',
        ),
        bad(
            "value_hex",
            2,
            "config.yaml:7:7 seed: the number has 100000 digits, too many to read",
            seed="0x" + "F" * 100_000,
        ),
        bad(
            "value_writer_on_the_lock",
            2,
            "CsvWriter would write .lock, which the run itself already writes; give it another filename",
            writers="[{type: csv, filename: .lock}]",
        ),
        bad(
            "value_precision",
            2,
            listed("7:1  precision: expected 'fp32', 'bf16' or 'fp16', found 'fp8'"),
            precision="fp8",
        ),
        bad("value_strategy", 2, "unknown strategy 'dpp'; did you mean 'ddp'?", strategy="dpp"),
        bad(
            "value_match",
            2,
            "config.yaml:5:58 optim.param_groups[0].match: '*.bais' matches no parameter of the model; the "
            "closest name is 'layers.2.bias'",
            optim='{optimizer: {type: SGD, lr: 0.1}, param_groups: [{match: "*.bais", lr: 1}]}',
        ),
        bad(
            "value_when",
            2,
            listed("5:84  optim.schedulers[0].when: expected 'epoch', 'iter', 'step' or 'val', found 'batch'"),
            optim="{optimizer: {type: SGD, lr: 0.1}, schedulers: [{type: StepLR, step_size: 1, when: batch}]}",
        ),
        bad(
            "value_reference",
            2,
            "config.yaml:7:1 experiment_name: ${experiment} does not exist; did you mean 'experiment_name'?",
            experiment_name='"${experiment}"',
        ),
        bad("value_to_be_given", 2, listed("7:1  seed: this value is ??? and must be set"), seed='"???"'),
        bad(
            "fault_19_run_name",
            2,
            listed(
                "7:1  experiment_name: this becomes part of file names, so it cannot be '..' or contain '/' or '\\'"
            ),
            experiment_name="../../elsewhere/x",
        ),
        bad(
            "fault_19_run_name_with_nul",
            2,
            "config.yaml:7:18 experiment_name: the text has a character that files cannot store (NUL or an "
            "unpaired surrogate)",
            experiment_name='"run\\0.txt"',
        ),
        bad(
            "fault_19_metric_name",
            2,
            listed(
                "3:100  val.metrics.../../../elsewhere/x: this becomes part of file names, so it cannot be '..' or "
                "contain '/' or '\\'"
            ),
            val=evaluation(metrics='{"../../../elsewhere/x": accuracy}'),
        ),
        bad(
            "fault_19_metric_name_absolute",
            2,
            listed(
                "3:100  val.metrics./tmp/x: this becomes part of file names, so it cannot be '..' or contain '/' or "
                "'\\'"
            ),
            val=evaluation(metrics='{"/tmp/x": accuracy}'),
        ),
        bad(
            "fault_19_data_set_name",
            2,
            listed("3:7  val.../x: this becomes part of file names, so it cannot be '..' or contain '/' or '\\'"),
            val="{../x: " + evaluation() + "}",
        ),
        bad(
            "fault_19_records",
            2,
            "config.yaml:7:11 writers[0]: JsonlWriter: filename must be the name of a file in the run's folder, not "
            "'../../../elsewhere/x.jsonl'",
            writers='[{type: jsonl, filename: "../../../elsewhere/x.jsonl"}]',
        ),
        bad(
            "fault_19_checkpoint_name",
            2,
            "config.yaml:7:17 default_hooks.checkpoint: CheckpointHook: filename_tmpl must be a file name with one {} "
            "that ends with .pth, not '../{}.pth'",
            default_hooks='{checkpoint: {filename_tmpl: "../{}.pth"}}',
        ),
        Case(
            "value_world_size",
            6,
            "this process is one of 2 (WORLD_SIZE), but RANK, MASTER_ADDR, MASTER_PORT is not set; start the "
            "processes with hookline train --nproc, or with torchrun",
            environment={"WORLD_SIZE": "2"},
        ),
        Case(
            "value_world_size_in_words",
            2,
            "the environment variable WORLD_SIZE must be the number of processes, not 'two'",
            environment={"WORLD_SIZE": "two"},
        ),
    ]


def _files() -> list[Case]:
    """Return cases with files that are not configs."""

    def file(name: str, content: str | bytes | None, says: str, **given: Any) -> Case:
        return Case(f"config_{name}", 2, says, config=content, **given)

    return [
        file("missing", None, "config.yaml: file not found; to create a project with a config: hookline init FOLDER"),
        file(
            "misspelled",
            None,
            "config.yaml: file not found; did you mean 'confg.yaml'?",
            files={"confg.yaml": config()},
        ),
        file("empty", "", "config.yaml: the file is empty; a config must be a mapping of keys to values"),
        file(
            "only_a_comment",
            "# nothing\n",
            "config.yaml: the file is empty; a config must be a mapping of keys to values",
        ),
        file("list", "[1, 2]\n", "config.yaml:1:1: a config must be a mapping of keys to values, not a list"),
        file("text", "hello\n", "config.yaml:1:1: a config must be a mapping of keys to values, not 'hello'"),
        file("binary", b"\x7fELF\0\0\0", "config.yaml: this is a binary file, not YAML"),
        file("latin", "seed: caf\xe9\n".encode("latin-1"), "config.yaml:1:10: the file is not UTF-8 text"),
        file(
            "too_deep",
            f"model: {'[' * 200}{']' * 200}\n",
            "config.yaml:1:108 model: more than 100 levels deep; this is not a config",
        ),
        file(
            "not_yaml",
            "model: {type: x\ntrain: 5\n",
            "config.yaml:2:6: invalid YAML: expected ',' or '}', but got ':'",
        ),
        file(
            "tab",
            "model:\n\ttype: x\n",
            "config.yaml:2:1: invalid YAML: found character '\\t' that cannot start any token",
        ),
        file(
            "twice",
            config() + "seed: 1\nseed: 2\n",
            "config.yaml:8:1 seed: duplicate key, already given at config.yaml:7:1",
        ),
        file(
            "two_documents",
            config() + "---\nseed: 1\n",
            "config.yaml:7:1: a second document starts here; a config must be a single document",
        ),
        file(
            "folder",
            None,
            "config.yaml: this is a folder, not a YAML file",
            prepare=lambda project: (project / "config.yaml").mkdir(),
        ),
        file(
            "base_missing",
            f"_base_: bse.yaml\n{config()}",
            "config.yaml:1:1 _base_: file not found: bse.yaml; did you mean 'base.yaml'?",
            files={"base.yaml": ""},
        ),
    ]


def _modules() -> list[Case]:
    """Return cases with modules and names that do not exist or that fail."""

    def module(name: str, content: str, says: str, code: int = 2) -> Case:
        return Case(f"module_{name}", code, says, config=config(imports="[mine]"), files={"mine.py": content})

    return [
        bad(
            "name_of_a_module",
            2,
            listed(
                "1:9  model.type: the module 'mynt' was not found next to the config or under the working directory; "
                "did you mean 'mynet'?"
            ),
            model='{type: "mynt:Net"}',
        ),
        bad(
            "name_in_a_module",
            2,
            listed("1:9  model.type: the module 'mynet' has no 'Nett'; did you mean 'Net'?"),
            model='{type: "mynet:Nett"}',
        ),
        bad(
            "name_of_an_optimizer",
            2,
            listed("5:21  optim.optimizer.type: unknown optimizer 'SDG'; did you mean 'SGD'?"),
            optim="{optimizer: {type: SDG, lr: 0.1}}",
        ),
        bad(
            "name_of_a_step",
            2,
            listed("2:69  train.step: the module 'mynet' has no 'los_of'; did you mean 'loss_of'?"),
            train=training(step='"mynet:los_of"'),
        ),
        bad(
            "name_of_a_dataset",
            2,
            listed("2:32  train.dataloader.dataset.type: unknown dataset 'Digit'; did you mean 'Digits'?"),
            train=training(dataloader="{dataset: {type: Digit}}"),
        ),
        bad(
            "name_of_a_writer",
            2,
            listed("7:11  writers[0]: unknown writer 'json'; did you mean 'jsonl'?"),
            writers="[json]",
        ),
        bad(
            "no_module_at_all",
            2,
            "config.yaml:1:1 model: expected a torch.nn.Module, but this creates a Plain",
            model='{type: "bad:Plain"}',
        ),
        bad(
            "model_without_parameters",
            1,
            "the loss has no gradient: it was detached (.item(), .detach(), no_grad), or it does not depend on "
            "a trainable parameter of the model; return the loss as computed from the model's outputs"
            "\n  in the step, epoch=0 iter=0 rank=0",
            model='{type: "bad:Empty"}',
        ),
        bad(
            "model_that_exits",
            1,
            "__init__ (bad.py:78) called sys.exit() before the command was finished",
            model='{type: "bad:Exits"}',
        ),
        module(
            "exits",
            "import sys\nsys.exit(0)\n",
            listed("7:11  imports[0]: the module 'mine' cannot be imported: SystemExit: 0 (mine.py:2)"),
        ),
        module(
            "exits_for_a_reason",
            "raise SystemExit('done')\n",
            listed("7:11  imports[0]: the module 'mine' cannot be imported: SystemExit: done (mine.py:1)"),
        ),
        module(
            "fails",
            "import nowhere\n",
            listed(
                "7:11  imports[0]: the module 'mine' cannot be imported: ModuleNotFoundError: No module named "
                "'nowhere' (mine.py:1)"
            ),
        ),
        module(
            "broken",
            "def f(:\n",
            listed(
                "7:11  imports[0]: the module 'mine' cannot be imported: SyntaxError: invalid syntax (mine.py, line 1)"
            ),
        ),
        module("interrupted", "raise KeyboardInterrupt\n", "", 130),
    ]
