"""Datasets, samplers, loaders, and collate functions."""

from hookline.dialects.mmengine.dataset.base_dataset import BaseDataset, Compose, force_full_init
from hookline.dialects.mmengine.dataset.dataset_wrapper import ClassBalancedDataset, ConcatDataset, RepeatDataset
from hookline.dialects.mmengine.dataset.loader import MMDataLoader, build_dataloader
from hookline.dialects.mmengine.dataset.sampler import DefaultSampler, InfiniteSampler
from hookline.dialects.mmengine.dataset.utils import (
    COLLATE_FUNCTIONS,
    default_collate,
    pseudo_collate,
    worker_init_fn,
)

__all__ = [
    "COLLATE_FUNCTIONS",
    "BaseDataset",
    "ClassBalancedDataset",
    "Compose",
    "ConcatDataset",
    "DefaultSampler",
    "InfiniteSampler",
    "MMDataLoader",
    "RepeatDataset",
    "build_dataloader",
    "default_collate",
    "force_full_init",
    "pseudo_collate",
    "worker_init_fn",
]
