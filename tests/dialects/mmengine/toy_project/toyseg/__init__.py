"""A project in the shape of those of OpenMMLab: a scope with its registries, models, data sets and loops."""
