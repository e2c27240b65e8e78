import torch
from toyseg.registry import DATA_SAMPLERS, DATASETS
from torch.utils.data import BatchSampler

from hookline.dialects.mmengine.dataset import BaseDataset
from hookline.dialects.mmengine.structures import BaseDataElement, PixelData


@DATASETS.register_module()
class Squares(BaseDataset):
    """Upright and wide images of noise, in which the bright pixels are the foreground."""

    METAINFO = {"classes": ("dark", "bright")}  # noqa: RUF012

    def __init__(self, samples, **kwargs):
        self.samples = samples
        super().__init__(**kwargs)

    def load_data_list(self):
        return [{"width": 4 if n % 3 else 6, "height": 6 if n % 3 else 4, "number": n} for n in range(self.samples)]

    def prepare_data(self, idx):
        info = self.get_data_info(idx)
        generator = torch.Generator().manual_seed(info["number"])
        image = torch.rand(1, info["height"], info["width"], generator=generator)
        gt = PixelData(mask=(image > 0.5).long())
        return {"inputs": image, "data_samples": BaseDataElement(metainfo={"number": info["number"]}, gt=gt)}


@DATA_SAMPLERS.register_module()
class ByShape(BatchSampler):
    """Puts images of the same shape into a batch; its buckets are emptied after the last batch was taken."""

    def __init__(self, sampler, batch_size, drop_last=False):
        super().__init__(sampler, batch_size, drop_last)
        self.buckets = {True: [], False: []}

    def __iter__(self):
        for index in self.sampler:
            info = self.sampler.dataset.get_data_info(index)
            bucket = self.buckets[info["width"] > info["height"]]
            bucket.append(index)
            if len(bucket) == self.batch_size:
                yield bucket[:]
                del bucket[:]
        left = [bucket for bucket in self.buckets.values() if bucket]
        self.buckets = {True: [], False: []}
        yield from left
