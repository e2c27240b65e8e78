# The keypoints of one object per image: by epochs, with heatmaps and the base config of mmpose.
_base_ = ["{{$MIM:}}/configs/_base_/default_runtime.py"]
codec = dict(type="MSRAHeatmap", input_size=(32, 32), heatmap_size=(8, 8), sigma=1)
model = dict(
    type="TopdownPoseEstimator",
    data_preprocessor=dict(type="PoseDataPreprocessor", mean=[40, 40, 40], std=[50, 50, 50], bgr_to_rgb=True),
    backbone=dict(type="ResNet", depth=18, stem_channels=8, base_channels=8),
    head=dict(
        type="HeatmapHead",
        in_channels=64,
        out_channels=17,
        deconv_out_channels=(8, 8, 8),
        deconv_kernel_sizes=(4, 4, 4),
        loss=dict(type="KeypointMSELoss", use_target_weight=True),
        decoder=codec,
    ),
    test_cfg=dict(flip_test=True, flip_mode="heatmap", shift_heatmap=True),
)
pipeline = [
    dict(type="LoadImage"),
    dict(type="GetBBoxCenterScale"),
    dict(type="TopdownAffine", input_size=codec["input_size"]),
]


def loader(stage, more):
    return dict(
        batch_size=4,
        num_workers=1,
        persistent_workers=True,
        dataset=dict(
            type="CocoDataset",
            data_root="keypoints",
            data_mode="topdown",
            ann_file=f"{stage}.json",
            data_prefix=dict(img=f"{stage}/"),
            test_mode=stage == "val",
            pipeline=[*pipeline, *more, dict(type="PackPoseInputs")],
        ),
        sampler=dict(type="DefaultSampler", shuffle=False),
    )


train_dataloader = loader("train", [dict(type="GenerateTarget", encoder=codec)])
val_dataloader = test_dataloader = loader("val", [])
val_evaluator = test_evaluator = [dict(type="PCKAccuracy", thr=0.2), dict(type="EPE")]
optim_wrapper = dict(optimizer=dict(type="Adam", lr=5e-4))
param_scheduler = [
    dict(type="LinearLR", start_factor=0.1, by_epoch=False, begin=0, end=5),
    dict(type="MultiStepLR", begin=0, end=3, milestones=[2], gamma=0.1, by_epoch=True),
]
train_cfg = dict(by_epoch=True, max_epochs=3, val_interval=1)
default_hooks = dict(logger=dict(interval=1), checkpoint=dict(interval=1, save_best="PCK", rule="greater"))
randomness = dict(seed=7)
custom_imports = dict(imports=["kill_at", "no_gpu", "record_modes"], allow_failed_imports=False)
custom_hooks = [dict(type="SyncBuffersHook"), dict(type="KillAt"), dict(type="RecordModes")]
