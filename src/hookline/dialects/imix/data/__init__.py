"""Registries of data sets and their parts, and the functions that build loaders. iMIX's data sets are not included."""

from hookline.dialects.imix.data.builder import (
    DATASETS,
    PREPROCESSOR,
    PROCESSOR,
    VOCAB,
    build_dataset,
    build_imix_test_loader,
    build_imix_train_loader,
)

__all__ = [
    "DATASETS",
    "PREPROCESSOR",
    "PROCESSOR",
    "VOCAB",
    "build_dataset",
    "build_imix_test_loader",
    "build_imix_train_loader",
]
