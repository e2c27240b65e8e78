"""The points of the trainer's loop, and its scopes.

    DefaultTrainer(cfg, exp_dir, device)
      before_run                       the trainer has only cfg, exp_dir and device

    train_loop()
      after_load_checkpoint ?          if the run resumes; hooks may grow the model to fit
      before_train
      *  before_train_iter
         after_train_iter
         before_save_checkpoint ?      global_step has already advanced
         before_val ?
         *  before_val_iter
            after_val_iter
         after_val
      after_train
      after_run

`exception` is called once when anything fails, including the constructor. `around_train`, `around_train_iter`,
`around_val` and `around_val_iter` wrap these parts of the loop. `around_forward`, `around_backward` and
`around_optimizer_step` wrap the parts of a step, which the ledger measures.
"""

from __future__ import annotations

from hookline.plan.points import Point

POINTS: dict[str, Point] = {
    point.name: point
    for point in [
        Point("before_run"),
        Point("after_load_checkpoint", ("checkpoint",)),
        Point("before_train"),
        Point("before_train_iter", (), "iteration"),
        Point("after_train_iter", (), "iteration"),
        Point("before_val", (), "validation"),
        Point("before_val_iter", (), "validation"),
        Point("after_val_iter", (), "validation"),
        Point("after_val", (), "validation"),
        Point("before_save_checkpoint", ("checkpoint",)),
        Point("after_train"),
        Point("after_run"),
        Point("exception"),
    ]
}

SCOPES: dict[str, Point] = {
    scope.name: scope
    for scope in [
        Point("around_train"),
        Point("around_train_iter", (), "iteration"),
        Point("around_forward", (), "iteration"),
        Point("around_backward", (), "iteration"),
        Point("around_optimizer_step", (), "iteration"),
        Point("around_val", (), "validation"),
        Point("around_val_iter", (), "validation"),
    ]
}
