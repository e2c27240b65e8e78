"""The outcomes of complaints.py: with the real mmengine (`make test-openmmlab`), and with hookline (`make test`)."""

#: What comes out with the real mmengine 0.10.7, and with hookline.
EXPECTED = {
    "resumes": ("UnpicklingError: Weights only load failed", "continues to iteration 12"),
    "loads": ("UnpicklingError: Weights only load failed", "returns {'accuracy': 0.5}"),
    "reads_again": ("reads 24 samples", "reads 12 samples"),
    "val_with_save_best": (
        "AttributeError: 'CheckpointHook' object has no attribute 'file_backend'",
        "returns {'accuracy': 0.5}",
    ),
    "amp_on_cpu": (
        "AssertionError: ``AmpOptimizerWrapper`` is only available training on gpu, npu, mlu or musa",
        "trains 12 iterations",
    ),
    "pkg_resources": (
        "ModuleNotFoundError: import of pkg_resources halted; None in sys.modules",
        "is_installed('torch') is True",
    ),
}
