"""The training pipeline of `robo_orchard_lab` 0.4.0: its trainer, its batch processors and its hooks."""
