# A YOLO of two classes on mmdet's data: by epochs, with its own optimizer constructor, rates, EMA and NMS.
_base_ = ["{{$MIM:}}/configs/yolov5/yolov5_s-v61_syncbn_8xb16-300e_coco.py"]
widen_factor = 0.125
norm_cfg = dict(type="BN", momentum=0.03, eps=0.001)
model = dict(
    data_preprocessor=dict(type="YOLOv5DetDataPreprocessor"),
    backbone=dict(widen_factor=widen_factor, norm_cfg=norm_cfg),
    neck=dict(widen_factor=widen_factor, norm_cfg=norm_cfg),
    bbox_head=dict(head_module=dict(widen_factor=widen_factor, num_classes=2)),
    test_cfg=dict(score_thr=0.0, max_per_img=20),
)
resized = [
    dict(type="YOLOv5KeepRatioResize", scale=(96, 96)),
    dict(type="LetterResize", scale=(96, 96), allow_scale_up=False, pad_val=dict(img=114)),
]
kept = ("img_id", "img_path", "ori_shape", "img_shape", "scale_factor", "pad_param")
pipeline = [
    dict(type="LoadImageFromFile", backend_args=None),
    *resized,
    dict(type="LoadAnnotations", with_bbox=True, _scope_="mmdet"),
    dict(type="mmdet.PackDetInputs", meta_keys=kept),
]
train_pipeline = [pipeline[0], pipeline[3], *resized, dict(type="mmdet.PackDetInputs", meta_keys=kept[:4])]


def loader(stage, steps, collate):
    return dict(
        _delete_=True,
        batch_size=4,
        num_workers=1,
        persistent_workers=True,
        collate_fn=collate,
        dataset=dict(
            type="YOLOv5CocoDataset",
            data_root="boxes",
            ann_file=f"{stage}.json",
            data_prefix=dict(img=f"{stage}/"),
            metainfo=dict(classes=("even", "odd")),
            test_mode=stage == "val",
            pipeline=steps,
        ),
        sampler=dict(type="DefaultSampler", shuffle=False),
    )


train_dataloader = loader("train", train_pipeline, dict(type="yolov5_collate"))
val_dataloader = test_dataloader = loader("val", pipeline, dict(type="pseudo_collate"))
val_evaluator = test_evaluator = dict(
    _delete_=True, type="mmdet.CocoMetric", ann_file="boxes/val.json", metric="bbox", proposal_nums=(100, 1, 10)
)
optim_wrapper = dict(optimizer=dict(batch_size_per_gpu=4))
train_cfg = dict(max_epochs=3, val_interval=1, _delete_=True, type="EpochBasedTrainLoop")
default_hooks = dict(
    logger=dict(interval=1),
    param_scheduler=dict(max_epochs=3),
    checkpoint=dict(_delete_=True, type="CheckpointHook", interval=1, save_best="auto"),
)
randomness = dict(seed=7)
env_cfg = dict(cudnn_benchmark=False)
custom_imports = dict(imports=["kill_at", "no_gpu", "record_modes"], allow_failed_imports=False)
custom_hooks = [
    dict(type="EMAHook", ema_type="ExpMomentumEMA", momentum=0.0001, update_buffers=True, priority=49),
    dict(type="KillAt"),
    dict(type="RecordModes"),
]
