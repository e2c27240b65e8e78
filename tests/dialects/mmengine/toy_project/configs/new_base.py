from toyseg.models import Backbone, Segmentor, Stack
from torch.optim import SGD

from hookline.dialects.mmengine.optim import MultiStepLR

default_scope = "toyseg"
channels = 3
model = dict(
    type=Segmentor,
    data_preprocessor=dict(type=Stack),
    backbone=dict(type=Backbone, channels=channels),
    channels=channels,
)
optim_wrapper = dict(optimizer=dict(type=SGD, lr=0.1, momentum=0.9), clip_grad=dict(max_norm=1.0))
param_scheduler = [dict(type=MultiStepLR, milestones=[2], by_epoch=True)]
train_cfg = dict(by_epoch=True, max_epochs=2)
val_cfg = test_cfg = dict()
randomness = dict(seed=3)
log_level = "WARNING"
