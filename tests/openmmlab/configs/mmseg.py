# A segmentation of pixels into two classes: by iterations, with an endless sampler, the base configs of mmsegmentation.
_base_ = ["{{$MIM:}}/configs/_base_/models/fcn_unet_s5-d16.py", "{{$MIM:}}/configs/_base_/default_runtime.py"]
norm_cfg = dict(type="BN", requires_grad=True)
data_preprocessor = dict(size=(32, 32))
model = dict(
    data_preprocessor=data_preprocessor,
    backbone=dict(base_channels=4, norm_cfg=norm_cfg),
    decode_head=dict(in_channels=4, channels=4, norm_cfg=norm_cfg, dropout_ratio=0),
    auxiliary_head=dict(in_channels=8, channels=4, norm_cfg=norm_cfg, dropout_ratio=0),
    test_cfg=dict(mode="whole", _delete_=True),
)
train_pipeline = [dict(type="LoadImageFromFile"), dict(type="LoadAnnotations"), dict(type="PackSegInputs")]
test_pipeline = [dict(type="LoadImageFromFile"), dict(type="LoadAnnotations"), dict(type="PackSegInputs")]
tta_model = dict(type="SegTTAModel")
tta_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(
        type="TestTimeAug",
        transforms=[
            [dict(type="RandomFlip", prob=0.0), dict(type="RandomFlip", prob=1.0, direction="horizontal")],
            [dict(type="LoadAnnotations")],
            [dict(type="PackSegInputs")],
        ],
    ),
]


def loader(stage, sampler, pipeline):
    return dict(
        batch_size=4,
        num_workers=1,
        persistent_workers=True,
        dataset=dict(
            type="BaseSegDataset",
            data_root="masks",
            img_suffix=".png",
            metainfo=dict(classes=("noise", "square"), palette=[[0, 0, 0], [255, 255, 255]]),
            data_prefix=dict(img_path=f"images/{stage}", seg_map_path=f"masks/{stage}"),
            pipeline=pipeline,
        ),
        sampler=dict(type=sampler, shuffle=False),
    )


train_dataloader = loader("train", "InfiniteSampler", train_pipeline)
val_dataloader = test_dataloader = loader("val", "DefaultSampler", test_pipeline)
val_evaluator = test_evaluator = dict(type="IoUMetric", iou_metrics=["mIoU"])
optim_wrapper = dict(
    type="OptimWrapper", optimizer=dict(type="SGD", lr=0.01, momentum=0.9), clip_grad=dict(max_norm=1.0)
)
param_scheduler = [dict(type="PolyLR", eta_min=1e-4, power=0.9, begin=0, end=9, by_epoch=False)]
train_cfg = dict(type="IterBasedTrainLoop", max_iters=9, val_interval=3)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
default_hooks = dict(
    timer=dict(type="IterTimerHook"),
    logger=dict(type="LoggerHook", interval=1, log_metric_by_epoch=False),
    param_scheduler=dict(type="ParamSchedulerHook"),
    checkpoint=dict(type="CheckpointHook", by_epoch=False, interval=3),
    sampler_seed=dict(type="DistSamplerSeedHook"),
    visualization=dict(type="SegVisualizationHook", interval=1),
)
randomness = dict(seed=7)
custom_imports = dict(imports=["kill_at", "no_gpu", "record_modes"], allow_failed_imports=False)
custom_hooks = [dict(type="KillAt"), dict(type="RecordModes")]
