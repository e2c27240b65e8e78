from toyseg.datasets import ByShape, Squares
from toyseg.loops import CountingLoop
from toyseg.models import PixelAccuracy
from toyseg.nowhere import NotInstalled

from hookline.dialects.mmengine.config import read_base
from hookline.dialects.mmengine.dataset import DefaultSampler

with read_base():
    from .new_base import *

model.merge(dict(backbone=dict(_delete_=True, type=Backbone, channels=channels, norm_eval=True), dropout=0.25))
train_dataloader = dict(
    dataset=dict(type=Squares, samples=11),
    sampler=dict(type=DefaultSampler, shuffle=True),
    batch_sampler=dict(type=ByShape),
    batch_size=2,
)
val_dataloader = test_dataloader = dict(
    dataset=dict(type=Squares, samples=4), sampler=dict(type=DefaultSampler, shuffle=False)
)
val_evaluator = test_evaluator = dict(type=PixelAccuracy)
train_cfg = dict(type=CountingLoop, max_epochs=train_cfg.max_epochs + 1)
not_used = dict(type=NotInstalled)
