"""Datasets, samplers, loaders, and collate functions."""

from hookline.dialects.exports import export_imported
from hookline.dialects.mmengine.dataset.base_dataset import *
from hookline.dialects.mmengine.dataset.dataset_wrapper import *
from hookline.dialects.mmengine.dataset.loader import *
from hookline.dialects.mmengine.dataset.sampler import *
from hookline.dialects.mmengine.dataset.utils import *

export_imported(globals())
