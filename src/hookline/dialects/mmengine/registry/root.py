"""The root registries of every project, with their built-in entries."""

from hookline.dialects.mmengine.registry.build_functions import (
    build_model_from_cfg,
    build_runner_from_cfg,
    build_scheduler_from_cfg,
)
from hookline.dialects.mmengine.registry.registry import Registry

_HERE = "hookline.dialects.mmengine"


def _in(module: str, *names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names}


def _schedulers() -> dict[str, str]:
    kinds = (
        *("Constant", "CosineAnnealing", "CosineRestart", "Exponential", "Linear", "MultiStep", "Poly"),
        *("ReduceOnPlateau", "Step"),
    )
    names = [f"{kind}{what}" for kind in kinds for what in ("LR", "Momentum", "ParamScheduler")]
    return _in(f"{_HERE}.optim.scheduler", *names, "OneCycleLR", "OneCycleParamScheduler")


RUNNERS = Registry("runner", build_runner_from_cfg, builtin=_in(f"{_HERE}.runner", "Runner"))
RUNNER_CONSTRUCTORS = Registry("runner constructor")
LOOPS = Registry(
    "loop", builtin=_in(f"{_HERE}.runner.loops", "EpochBasedTrainLoop", "IterBasedTrainLoop", "ValLoop", "TestLoop")
)
HOOKS = Registry(
    "hook",
    builtin=_in(
        f"{_HERE}.hooks",
        *("CheckpointHook", "DistSamplerSeedHook", "EMAHook", "EarlyStoppingHook", "EmptyCacheHook", "IterTimerHook"),
        *(
            "LoggerHook",
            "NaiveVisualizationHook",
            "ParamSchedulerHook",
            "PrepareTTAHook",
            "ProfilerHook",
            "RuntimeInfoHook",
            "SyncBuffersHook",
        ),
    )
    | _in(  # hookline's own hooks, which can be named like any other
        "hookline.hooks",
        *("AutogradAnomalyHook", "CheckInvalidLossHook", "EvaluateHook", "FreezeHook", "GradClipHook", "GradNormHook"),
        *("ProgressHook", "StatsMonitorHook", "TimeLimitHook", "VisualizationHook"),
    ),
)
STRATEGIES = Registry("strategy")
DATASETS = Registry(
    "dataset",
    builtin=_in(f"{_HERE}.dataset", "BaseDataset", "ClassBalancedDataset", "ConcatDataset", "RepeatDataset"),
)
DATA_SAMPLERS = Registry("data sampler", builtin=_in(f"{_HERE}.dataset", "DefaultSampler", "InfiniteSampler"))
TRANSFORMS = Registry("transform")
MODELS = Registry(
    "model",
    build_model_from_cfg,
    builtin=_in(
        f"{_HERE}.model",
        *("BaseDataPreprocessor", "BaseTTAModel", "ImgDataPreprocessor"),
        *("ExponentialMovingAverage", "MomentumAnnealingEMA", "StochasticWeightAverage"),
    ),
)
MODEL_WRAPPERS = Registry(
    "model wrapper",
    builtin=_in("torch.nn.parallel", "DataParallel", "DistributedDataParallel")
    | _in(f"{_HERE}.model", "MMDistributedDataParallel", "MMSeparateDistributedDataParallel"),
)
WEIGHT_INITIALIZERS = Registry(
    "weight initializer",
    builtin={
        name: f"{_HERE}.model.weight_init:{name}Init"
        for name in ("Caffe2Xavier", "Constant", "Kaiming", "Normal", "Pretrained", "TruncNormal", "Uniform", "Xavier")
    },
)
OPTIMIZERS = Registry(
    "optimizer",
    builtin=_in(
        "torch.optim",
        *("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "RAdam"),
        *("RMSprop", "Rprop", "SGD", "SparseAdam"),
    )
    | {"TorchAdafactor": "torch.optim:Adafactor"},
)
OPTIM_WRAPPERS = Registry("optim_wrapper", builtin=_in(f"{_HERE}.optim", "AmpOptimWrapper", "OptimWrapper"))
OPTIM_WRAPPER_CONSTRUCTORS = Registry(
    "optimizer wrapper constructor", builtin=_in(f"{_HERE}.optim", "DefaultOptimWrapperConstructor")
)
PARAM_SCHEDULERS = Registry("parameter scheduler", build_scheduler_from_cfg, builtin=_schedulers())
METRICS = Registry("metric", builtin=_in(f"{_HERE}.evaluator", "DumpResults"))
EVALUATOR = Registry("evaluator", builtin=_in(f"{_HERE}.evaluator", "Evaluator"))
TASK_UTILS = Registry("task util")
VISUALIZERS = Registry("visualizer", builtin=_in(f"{_HERE}.visualization", "Visualizer"))
VISBACKENDS = Registry(
    "vis_backend",
    builtin=_in(
        f"{_HERE}.visualization", "LocalVisBackend", "MLflowVisBackend", "TensorboardVisBackend", "WandbVisBackend"
    ),
)
LOG_PROCESSORS = Registry("log processor", builtin=_in(f"{_HERE}.runner.log_processor", "LogProcessor"))
INFERENCERS = Registry("inferencer")
FUNCTIONS = Registry("function", builtin=_in(f"{_HERE}.dataset", "default_collate", "pseudo_collate", "worker_init_fn"))
