# A detector of two classes: by epochs, with a batch sampler by aspect ratio, frozen batch norms (norm_eval) and NMS.
_base_ = ["{{$MIM:}}/configs/_base_/models/retinanet_r50_fpn.py", "{{$MIM:}}/configs/_base_/default_runtime.py"]
model = dict(
    backbone=dict(depth=18, base_channels=8, frozen_stages=1, init_cfg=None),
    neck=dict(in_channels=[8, 16, 32, 64], out_channels=8),
    bbox_head=dict(num_classes=2, in_channels=8, feat_channels=8, stacked_convs=1),
    test_cfg=dict(score_thr=0.0, max_per_img=20),
)
pipeline = [
    dict(type="LoadImageFromFile", backend_args=None),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(type="Resize", scale=(96, 64), keep_ratio=True),
    dict(type="PackDetInputs"),
]


def loader(stage):
    return dict(
        batch_size=2,
        num_workers=1,
        persistent_workers=True,
        dataset=dict(
            type="CocoDataset",
            data_root="boxes",
            ann_file=f"{stage}.json",
            data_prefix=dict(img=f"{stage}/"),
            metainfo=dict(classes=("even", "odd")),
            test_mode=stage == "val",
            pipeline=pipeline,
        ),
        sampler=dict(type="DefaultSampler", shuffle=False),
    )


train_dataloader = dict(batch_sampler=dict(type="AspectRatioBatchSampler"), **loader("train"))
val_dataloader = test_dataloader = loader("val")
val_evaluator = test_evaluator = dict(type="CocoMetric", ann_file="boxes/val.json", metric="bbox")
optim_wrapper = dict(type="OptimWrapper", optimizer=dict(type="SGD", lr=0.01, momentum=0.9, weight_decay=0.0001))
param_scheduler = [
    dict(type="LinearLR", start_factor=0.1, by_epoch=False, begin=0, end=5),
    dict(type="MultiStepLR", begin=0, end=3, by_epoch=True, milestones=[2], gamma=0.1),
]
train_cfg = dict(type="EpochBasedTrainLoop", max_epochs=3, val_interval=1)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
default_hooks = dict(logger=dict(interval=1), checkpoint=dict(by_epoch=False, interval=4))
randomness = dict(seed=7)
custom_imports = dict(imports=["kill_at", "no_gpu", "record_modes"], allow_failed_imports=False)
custom_hooks = [dict(type="KillAt"), dict(type="RecordModes")]
