# A classifier of short videos, which are folders of frames: by epochs, the base configs of mmaction2.
_base_ = ["{{$MIM:}}/configs/_base_/models/tsn_r50.py", "{{$MIM:}}/configs/_base_/default_runtime.py"]
model = dict(
    backbone=dict(depth=18, pretrained=None),
    cls_head=dict(num_classes=2, in_channels=512, dropout_ratio=0),
    data_preprocessor=dict(mean=[40, 40, 40], std=[50, 50, 50]),
)


def loader(stage):
    return dict(
        batch_size=4,
        num_workers=1,
        persistent_workers=True,
        dataset=dict(
            type="RawframeDataset",
            ann_file=f"videos/{stage}.txt",
            data_prefix=dict(img=f"videos/{stage}"),
            filename_tmpl="{:02}.png",
            test_mode=stage == "val",
            pipeline=[
                dict(type="SampleFrames", clip_len=1, frame_interval=1, num_clips=2, test_mode=True),
                dict(type="RawFrameDecode"),
                dict(type="Resize", scale=(32, 32), keep_ratio=False),
                dict(type="FormatShape", input_format="NCHW"),
                dict(type="PackActionInputs"),
            ],
        ),
        sampler=dict(type="DefaultSampler", shuffle=False),
    )


train_dataloader = loader("train")
val_dataloader = test_dataloader = loader("val")
val_evaluator = test_evaluator = dict(type="AccMetric", metric_options=dict(top_k_accuracy=dict(topk=(1,))))
optim_wrapper = dict(optimizer=dict(type="SGD", lr=0.01, momentum=0.9), clip_grad=dict(max_norm=40, norm_type=2))
param_scheduler = [dict(type="MultiStepLR", begin=0, end=3, by_epoch=True, milestones=[2], gamma=0.1)]
train_cfg = dict(type="EpochBasedTrainLoop", max_epochs=3, val_begin=1, val_interval=1)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
default_hooks = dict(logger=dict(interval=1, ignore_last=False), checkpoint=dict(interval=1, save_best="auto"))
randomness = dict(seed=7)
custom_imports = dict(imports=["kill_at", "no_gpu", "record_modes"], allow_failed_imports=False)
custom_hooks = [dict(type="KillAt"), dict(type="RecordModes")]
