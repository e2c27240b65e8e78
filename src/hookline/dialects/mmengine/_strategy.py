"""The strategies of FlexibleRunner. Here, the `strategy` of a native Runner decides how a model is distributed."""

from hookline.dialects.mmengine.not_included import not_included, stands_for

ParamSchedulerType = object
__path__: list[str] = []  # its modules are this one
modules = ("base", "colossalai", "deepspeed", "distributed", "fsdp", "single_device", "utils")
stands_for(__name__, *(f"_strategy.{name}" for name in modules))
not_included(
    globals(),
    *("BaseStrategy", "SingleDeviceStrategy", "DDPStrategy", "FSDPStrategy", "DeepSpeedStrategy", "ColossalAIStrategy"),
    *("FSDP", "FSDP_CONFIGS", "MIXED_PRECISIONS", "PLUGINS", "MetaTensorContext", "MMDeepSpeedEngineWrapper"),
    *("DeepSpeedOptimWrapper", "ColossalAIModelWrapper", "ColossalAIOptimWrapper", "register_deepspeed_optimizers"),
    *("register_mixed_precisions", "register_optimizers", "register_plugins"),
)
