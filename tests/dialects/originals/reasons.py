"""The reasons for which tests of the originals do not pass. docs/coming-from/originals.md shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch

PRIVATE = "looks into private attributes, or replaces private functions of a module"
BY_HAND = (
    "calls the methods of a built-in hook or an OptimWrapper by hand, or with a runner that does not train: in a run, "
    "hookline's loop does this part"
)
STATE = "reads the layout of a checkpoint or of a hub's state: hookline's has plain data only, and reads the original's"
EMA = (
    "expects the average as a second copy of the model and as `ema_state_dict`: hookline swaps weights, without a copy"
)
REFUSED = "expects a run that hookline refuses, because it would train nothing or never reach its goal"
FILES = "expects files with the original's names: hookline's are run.log, metrics.jsonl and config.yaml"
STORAGE = "uses storage on a server, which is not supported"
LENIENT = "expects an error where hookline accepts the value"
LOGGER = "expects a warning in the original's logger: hookline warns in its own, `hookline`, or decides otherwise"
ZERO = "uses ZeroRedundancyOptimizer, which is not supported: use hookline's strategy fsdp"
LOADER = "expects a torch DataLoader: hookline's loader has the same attributes, and resumes in the middle of an epoch"
LINES = "compares lines of text"
OVERWRITES = (
    "expects that a hook without a trainer lets accelerate overwrite the only checkpoint in `save_root`, and compares "
    "a line of text"
)

#: Per system: a reason, and the tests, as patterns of `file::Class::test` without the folder.
LISTED: Mapping[str, Mapping[str, Sequence[str]]] = {
    "mmengine": {
        PRIVATE: (
            *(
                "*test_profiler_hook.py",
                "*test_log_processor.py::*::test_collect_*",
                "*test_log_processor.py::*test_get_*",
            ),
            *("*test_log_processor.py::*test_log_val*", "*test_log_processor.py::*test_parse_windows_size"),
            *("*test_logger.py::*test_init_rank*", "*test_logger.py::test_get_device_id", "*::test_update_infos"),
            *("*test_runner.py::*test_build_logger", "*test_runner.py::*test_build_message_hub"),
            *("*test_runner.py::*test_build_visualizer", "*test_runner.py::*test_default_hooks"),
            *("*test_runner.py::*test_register_hook*", "*test_runner.py::*test_build_log_processor"),
            *("*test_runner.py::*test_train", "*test_runner.py::*test_val", "*test_runner.py::*test_test"),
            *("*test_runner.py::*test_init", "*test_runner.py::*test_build_param_scheduler"),
            *("*test_checkpoint.py::test_checkpoint_loader", "*test_checkpoint.py::test_load_state_dict_post_hooks"),
            *("*test_checkpoint.py::test_get_state_dict", "*test_amp.py::*test_autocast"),
            *("*test_runner.py::*test_build_optim_wrapper", "*test_runner.py::*test_scale_lr"),
            *(
                "*test_optimizer_wrapper.py::TestOptimWrapper::test_init",
                "*test_optimizer_wrapper.py::*test_update_params",
            ),
        ),
        BY_HAND: (
            *("*test_checkpoint_hook.py::*test_after_*", "*test_checkpoint_hook.py::*test_before_train"),
            *("*test_early_stopping_hook.py::*test_after_val_epoch", "*test_early_stopping_hook.py::*test_before_run"),
            *("*test_iter_timer_hook.py::*", "*test_logger_hook.py::*test_after_*", "*test_runtime_info_hook.py::*"),
            *("*test_sync_buffers_hook.py::*test_sync_buffers_hook", "*test_optimizer_wrapper.py::*test_optim_context"),
            *("*test_sampler_seed_hook.py::*test_before_train_epoch", "*test_param_scheduler_hook.py::*test_after_*"),
        ),
        EMA: ("*test_ema_hook.py::*",),
        STATE: (
            *("*test_checkpoint_hook.py::*test_with_runner*", "*test_message_hub.py::*test_state_dict"),
            *("*test_message_hub.py::*test_load_state_dict", "*test_runner.py::*test_checkpoint"),
        ),
        REFUSED: ("*test_early_stopping_hook.py::*test_with_runner",),
        FILES: ("*test_logger_hook.py::*test_with_runner", "*test_runner.py::*test_dump_config"),
        STORAGE: ("*::test_load_pavimodel_dist", "*test_checkpoint.py::test_save_checkpoint"),
        ZERO: ("*test_optimizer.py::TestZeroOptimizer::*",),
        LENIENT: (*("*test_early_stopping_hook.py::*test_init", "*test_runner.py::*test_build_evaluator"),),
        LOGGER: (
            *("*test_logger_hook.py::*test_init", "*test_evaluator.py::*test_prefix"),
            *("*test_evaluator.py::*test_single_metric", "*test_averaged_model.py::*test_ema"),
            *(
                "*test_optimizer_wrapper.py::*test_initialize_iter_status",
                "*::*test_default_optimizer_constructor_bypass*",
            ),
        ),
        LOADER: ("*test_runner.py::*test_build_dataloader",),
        LINES: ("*test_runner.py::*test_get_hooks_info",),
    },
    "robo_orchard_lab": {
        PRIVATE: ("*test_stats.py::test_estimate_*",),
        OVERWRITES: ("*test_checkpoint.py::test_on_step_end", "*test_checkpoint.py::test_on_epoch_end"),
    },
}


def reason_of(system: str, test: str) -> str:
    """Return the reason for which a test does not pass; empty if it is not listed."""
    for reason, patterns in LISTED[system].items():
        if any(fnmatch(test, pattern) for pattern in patterns):
            return reason
    return ""
