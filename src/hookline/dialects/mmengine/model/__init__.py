"""Models that compute their own losses and predictions, weight initialization, and averaged models."""

from hookline.dialects.mmengine.model.averaged_model import (
    BaseAveragedModel,
    ExponentialMovingAverage,
    MomentumAnnealingEMA,
    StochasticWeightAverage,
)
from hookline.dialects.mmengine.model.base_model import BaseDataPreprocessor, BaseModel, ImgDataPreprocessor
from hookline.dialects.mmengine.model.base_module import BaseModule, ModuleDict, ModuleList, Sequential
from hookline.dialects.mmengine.model.utils import merge_dict, stack_batch
from hookline.dialects.mmengine.model.weight_init import (
    BaseInit,
    Caffe2XavierInit,
    ConstantInit,
    KaimingInit,
    NormalInit,
    PretrainedInit,
    TruncNormalInit,
    UniformInit,
    XavierInit,
    bias_init_with_prob,
    caffe2_xavier_init,
    constant_init,
    initialize,
    kaiming_init,
    normal_init,
    trunc_normal_init,
    uniform_init,
    xavier_init,
)
from hookline.dialects.mmengine.model.wrappers import is_model_wrapper

__all__ = [
    "BaseAveragedModel",
    "BaseDataPreprocessor",
    "BaseInit",
    "BaseModel",
    "BaseModule",
    "Caffe2XavierInit",
    "ConstantInit",
    "ExponentialMovingAverage",
    "ImgDataPreprocessor",
    "KaimingInit",
    "ModuleDict",
    "ModuleList",
    "MomentumAnnealingEMA",
    "NormalInit",
    "PretrainedInit",
    "Sequential",
    "StochasticWeightAverage",
    "TruncNormalInit",
    "UniformInit",
    "XavierInit",
    "bias_init_with_prob",
    "caffe2_xavier_init",
    "constant_init",
    "initialize",
    "is_model_wrapper",
    "kaiming_init",
    "merge_dict",
    "normal_init",
    "stack_batch",
    "trunc_normal_init",
    "uniform_init",
    "xavier_init",
]
