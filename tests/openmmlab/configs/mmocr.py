# A reader of words, which are patterns of stripes: by epochs, the base configs of mmocr.
_base_ = [
    "{{$MIM:}}/configs/textrecog/_base_/default_runtime.py",
    "{{$MIM:}}/configs/textrecog/_base_/schedules/schedule_adadelta_5e.py",
    "{{$MIM:}}/configs/textrecog/crnn/_base_crnn_mini-vgg.py",
]
model = dict(
    decoder=dict(
        dictionary=dict(
            type="Dictionary", dict_file="{{$MIM:}}/dicts/lower_english_digits.txt", with_padding=True, _delete_=True
        )
    )
)


def loader(stage):
    return dict(
        batch_size=4,
        num_workers=1,
        persistent_workers=True,
        dataset=dict(
            type="OCRDataset",
            data_root="words",
            data_prefix=dict(img_path=stage),
            ann_file=f"{stage}.json",
            test_mode=stage == "val",
            pipeline=_base_.train_pipeline if stage == "train" else _base_.test_pipeline,
        ),
        sampler=dict(type="DefaultSampler", shuffle=False),
    )


train_dataloader = loader("train")
val_dataloader = test_dataloader = loader("val")
val_evaluator = test_evaluator = dict(dataset_prefixes=["words"])
train_cfg = dict(type="EpochBasedTrainLoop", max_epochs=3, val_interval=1)
default_hooks = dict(logger=dict(interval=1))
randomness = dict(seed=7, _delete_=True)
custom_imports = dict(imports=["kill_at", "no_gpu", "record_modes"], allow_failed_imports=False)
custom_hooks = [dict(type="KillAt"), dict(type="RecordModes")]
