_base_ = ["base.py"]
model = dict(backbone=dict(norm_eval=True), dropout=0.25)
train_dataloader = dict(
    dataset=dict(type="Squares", samples=11),
    sampler=dict(type="DefaultSampler", shuffle=True),
    batch_sampler=dict(type="ByShape"),
    batch_size=2,
)
val_dataloader = test_dataloader = dict(
    dataset=dict(type="Squares", samples=4), sampler=dict(type="DefaultSampler", shuffle=False)
)
val_evaluator = test_evaluator = dict(type="PixelAccuracy")
train_cfg = dict(_delete_=True, type="CountingLoop", max_epochs={{_base_.train_cfg.max_epochs}} + 1)
