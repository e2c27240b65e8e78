from toyseg.registry import LOOPS

from hookline.dialects.mmengine.runner import EpochBasedTrainLoop


@LOOPS.register_module()
class CountingLoop(EpochBasedTrainLoop):
    """A loop that counts the samples it has trained on."""

    samples = 0

    def run_iter(self, idx, data_batch):
        self.samples += len(data_batch["inputs"])
        super().run_iter(idx, data_batch)
