# A classifier of images of two classes: by epochs, with batch norms, the base configs of mmpretrain.
_base_ = [
    "{{$MIM:}}/configs/_base_/models/resnet18_cifar.py",
    "{{$MIM:}}/configs/_base_/schedules/cifar10_bs128.py",
    "{{$MIM:}}/configs/_base_/default_runtime.py",
]
model = dict(backbone=dict(stem_channels=4, base_channels=4), head=dict(in_channels=32, num_classes=2, topk=(1,)))
data_preprocessor = dict(num_classes=2, mean=[40, 40, 40], std=[50, 50, 50], to_rgb=True)
pipeline = [dict(type="LoadImageFromFile"), dict(type="PackInputs")]


def loader(stage):
    return dict(
        batch_size=4,
        num_workers=1,
        dataset=dict(type="CustomDataset", data_root=f"classes/{stage}", pipeline=pipeline),
        sampler=dict(type="DefaultSampler", shuffle=False),
    )


train_dataloader = loader("train")
val_dataloader = test_dataloader = loader("val")
val_evaluator = test_evaluator = dict(type="Accuracy", topk=1)
optim_wrapper = dict(optimizer=dict(lr=0.05))
param_scheduler = dict(milestones=[2])
train_cfg = dict(max_epochs=3)
default_hooks = dict(logger=dict(interval=1), checkpoint=dict(save_best="auto"))
randomness = dict(seed=7)
custom_imports = dict(imports=["kill_at", "no_gpu", "record_modes"], allow_failed_imports=False)
custom_hooks = [dict(type="KillAt"), dict(type="RecordModes")]
