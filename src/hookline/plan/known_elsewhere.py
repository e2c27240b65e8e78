"""Names that people know from Lightning, the Transformers Trainer and Keras, with the names of the same thing here.

The tables only serve messages: a method or a hook with such a name would never be called or found, and the message says
what to use instead. `docs/coming-from` explains the differences.
"""

from __future__ import annotations

from collections.abc import Collection

LIGHTNING, TRANSFORMERS, KERAS = "Lightning", "the Transformers Trainer", "Keras"

_BOTH = f"{LIGHTNING} and {KERAS}"

#: Points of other libraries: name -> (whose, the point here). The second is a sentence if there is no such point.
POINTS_ELSEWHERE: dict[str, tuple[str, str]] = {
    # Lightning's Callback
    "on_fit_start": (LIGHTNING, "before_run"),
    "on_fit_end": (LIGHTNING, "after_run"),
    "on_sanity_check_start": (LIGHTNING, "the trial batch before training calls no points"),
    "on_sanity_check_end": (LIGHTNING, "the trial batch before training calls no points"),
    "on_train_start": (LIGHTNING, "before_train"),
    "on_train_end": (f"{LIGHTNING}, {TRANSFORMERS} and {KERAS}", "after_train"),
    "on_train_epoch_start": (LIGHTNING, "before_train_epoch"),
    "on_train_epoch_end": (LIGHTNING, "after_train_epoch"),
    "on_train_batch_start": (LIGHTNING, "before_train_iter"),
    "on_train_batch_end": (_BOTH, "after_train_iter"),
    "on_validation_start": (LIGHTNING, "before_val"),
    "on_validation_end": (LIGHTNING, "after_val"),
    "on_validation_epoch_start": (LIGHTNING, "before_val_epoch"),
    "on_validation_epoch_end": (LIGHTNING, "after_val_epoch"),
    "on_validation_batch_start": (LIGHTNING, "before_val_iter"),
    "on_validation_batch_end": (LIGHTNING, "after_val_iter"),
    "on_test_start": (LIGHTNING, "before_test"),
    "on_test_end": (_BOTH, "after_test"),
    "on_test_epoch_start": (LIGHTNING, "before_test_epoch"),
    "on_test_epoch_end": (LIGHTNING, "after_test_epoch"),
    "on_test_batch_start": (LIGHTNING, "before_test_iter"),
    "on_test_batch_end": (_BOTH, "after_test_iter"),
    "on_predict_start": (LIGHTNING, "runner.predict() calls no points"),
    "on_predict_end": (_BOTH, "runner.predict() calls no points"),
    "on_predict_epoch_start": (LIGHTNING, "runner.predict() calls no points"),
    "on_predict_epoch_end": (LIGHTNING, "runner.predict() calls no points"),
    "on_predict_batch_start": (LIGHTNING, "runner.predict() calls no points"),
    "on_predict_batch_end": (_BOTH, "runner.predict() calls no points"),
    "on_save_checkpoint": (LIGHTNING, "before_save_checkpoint"),
    "on_load_checkpoint": (LIGHTNING, "after_load_checkpoint"),
    "on_before_backward": (LIGHTNING, "before_backward"),
    "on_after_backward": (LIGHTNING, "after_backward"),
    "on_before_optimizer_step": (LIGHTNING, "before_optimizer_step"),
    "on_before_zero_grad": (LIGHTNING, "after_optimizer_step"),
    "on_keyboard_interrupt": (LIGHTNING, "on_exception"),
    "on_init_start": (LIGHTNING, "before_run"),
    "on_pretrain_routine_start": (LIGHTNING, "before_train"),
    "on_pretrain_routine_end": (LIGHTNING, "before_train"),
    "on_configure_sharded_model": (LIGHTNING, "the strategy wraps the model: Runner(strategy=...)"),
    # methods of Lightning's LightningModule
    "training_step": (LIGHTNING, "a training step is a function: TrainLoop(loader, step=...)"),
    "validation_step": (LIGHTNING, "an evaluation step is a function: EvalLoop(loader, step=...)"),
    "test_step": (LIGHTNING, "an evaluation step is a function: EvalLoop(loader, step=...)"),
    "predict_step": (LIGHTNING, "an evaluation step is a function: EvalLoop(loader, step=...)"),
    "configure_optimizers": (LIGHTNING, "the optimizer is a part of the run: Runner(optim=Optim(optimizer))"),
    # the TrainerCallback of Transformers
    "on_init_end": (f"{LIGHTNING} and {TRANSFORMERS}", "before_run"),
    "on_train_begin": (f"{TRANSFORMERS} and {KERAS}", "before_train"),
    "on_epoch_begin": (f"{TRANSFORMERS} and {KERAS}", "before_train_epoch"),
    "on_epoch_end": (f"{LIGHTNING}, {TRANSFORMERS} and {KERAS}", "after_train_epoch"),
    "on_step_begin": (TRANSFORMERS, "before_train_iter"),
    "on_step_end": (TRANSFORMERS, "after_train_iter"),
    "on_substep_end": (TRANSFORMERS, "after_backward"),
    "on_pre_optimizer_step": (TRANSFORMERS, "before_optimizer_step"),
    "on_optimizer_step": (TRANSFORMERS, "after_optimizer_step"),
    "on_evaluate": (TRANSFORMERS, "after_val_epoch"),
    "on_predict": (TRANSFORMERS, "runner.predict() calls no points"),
    "on_prediction_step": (TRANSFORMERS, "after_val_iter"),
    "on_save": (TRANSFORMERS, "before_save_checkpoint"),
    "on_log": (TRANSFORMERS, "numbers go to writers: write a Writer, or read runner.hub at after_train_iter"),
    "on_push_begin": (TRANSFORMERS, "hookline uploads nothing; runs.md has the files of a run"),
    # Keras' Callback
    "on_epoch_start": (LIGHTNING, "before_train_epoch"),
    "on_batch_start": (LIGHTNING, "before_train_iter"),
    "on_batch_begin": (KERAS, "before_train_iter"),
    "on_batch_end": (_BOTH, "after_train_iter"),
    "on_train_batch_begin": (KERAS, "before_train_iter"),
    "on_test_begin": (KERAS, "before_test"),
    "on_test_batch_begin": (KERAS, "before_test_iter"),
    "on_predict_begin": (KERAS, "runner.predict() calls no points"),
    "on_predict_batch_begin": (KERAS, "runner.predict() calls no points"),
}

#: Arguments of other libraries: name -> the argument here.
ARGUMENTS_ELSEWHERE: dict[str, str] = {
    "batch": "data_batch",
    "data": "data_batch",
    "inputs": "data_batch",
    "batch_index": "batch_idx",
    "step": "batch_idx",
    "logs": "metrics",
}

#: Callbacks and loggers of other libraries: name -> what to use here.
HOOKS_ELSEWHERE: dict[str, str] = {
    "ModelCheckpoint": "CheckpointHook is a default hook; set it with default_hooks: {checkpoint: {...}}",
    "BackupAndRestore": "CheckpointHook is a default hook; continue a run with resume=True",
    "EarlyStopping": "use EarlyStoppingHook",
    "EarlyStoppingCallback": "use EarlyStoppingHook",
    "LearningRateMonitor": "RuntimeInfoHook, a default hook, records the learning rate",
    "LearningRateScheduler": "schedules belong to the optim: optim.schedulers",
    "ReduceLROnPlateau": "schedules belong to the optim: optim.schedulers",
    "DeviceStatsMonitor": "use StatsMonitorHook",
    "StochasticWeightAveraging": "use EMAHook with ema_type: StochasticWeightAverage",
    "SwapEMAWeights": "use EMAHook",
    "EMAWeightAveraging": "use EMAHook",
    "BaseFinetuning": "use FreezeHook",
    "BackboneFinetuning": "use FreezeHook",
    "GradientAccumulationScheduler": "accumulation belongs to the optim: optim.accumulate",
    "RichProgressBar": "use ProgressHook",
    "TQDMProgressBar": "use ProgressHook",
    "ProgressCallback": "use ProgressHook",
    "ProgbarLogger": "use ProgressHook",
    "PrinterCallback": "LoggerHook is a default hook",
    "TerminateOnNaN": "a NaN loss ends every run; CheckInvalidLossHook can check every step",
    "Timer": "use TimeLimitHook",
    "CSVLogger": "use a writer: writers: [csv]",
    "TensorBoard": "use a writer: writers: [tensorboard]",
    "TensorBoardLogger": "use a writer: writers: [tensorboard]",
    "TensorBoardCallback": "use a writer: writers: [tensorboard]",
    "WandbLogger": "use a writer: writers: [wandb]",
    "WandbCallback": "use a writer: writers: [wandb]",
    "MLFlowLogger": "use a writer: writers: [mlflow]",
    "MLflowCallback": "use a writer: writers: [mlflow]",
    "LambdaCallback": "use a function: @runner.on('after_train_iter')",
    "Callback": "write a class that inherits from hookline.Hook",
}

#: Loggers of other libraries in the list of writers: name -> the writer.
WRITERS_ELSEWHERE: dict[str, str] = {
    name: f"did you mean '{writer}'?"
    for name, writer in {
        "CSVLogger": "csv",
        "TensorBoardLogger": "tensorboard",
        "WandbLogger": "wandb",
        "MLFlowLogger": "mlflow",
    }.items()
}


def point_elsewhere(name: str, known: Collection[str]) -> str | None:
    """Return the end of a message about a point of another library; None if no library has it.

    >>> point_elsewhere("on_train_batch_end", ["after_train_iter"])
    "did you mean 'after_train_iter'? (on_train_batch_end is the name in Lightning and Keras.)"
    """
    if name not in POINTS_ELSEWHERE:
        return None
    whose, here = POINTS_ELSEWHERE[name]
    if here.isidentifier() and here not in known:  # a host with other points
        return None
    if here.isidentifier():
        return f"did you mean '{here}'? ({name} is the name in {whose}.)"
    return f"{name} is a name of {whose}; {here}."
