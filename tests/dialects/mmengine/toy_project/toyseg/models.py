import torch
from torch import nn
from toyseg.registry import METRICS, MODELS

from hookline.dialects.mmengine.evaluator import BaseMetric
from hookline.dialects.mmengine.model import BaseDataPreprocessor, BaseModel, BaseModule
from hookline.dialects.mmengine.structures import PixelData


@MODELS.register_module()
class Stack(BaseDataPreprocessor):
    """Stacks the images of a batch, which have one shape because of the batch sampler."""

    def forward(self, data, training=False):
        data = self.cast_data(data)
        return {"inputs": torch.stack(data["inputs"]), "data_samples": data["data_samples"]}


@MODELS.register_module()
class Backbone(BaseModule):
    """A backbone whose norms stay in evaluation mode (`norm_eval`)."""

    def __init__(self, channels, norm_eval=False, init_cfg=None):
        super().__init__(init_cfg or [{"type": "Kaiming", "layer": "Conv2d"}])
        self.conv, self.norm = nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.norm_eval = norm_eval

    def train(self, mode=True):
        super().train(mode)
        if mode and self.norm_eval:
            self.norm.eval()
        return self

    def forward(self, inputs):
        return torch.relu(self.norm(self.conv(inputs)))


@MODELS.register_module()
class Segmentor(BaseModel):
    def __init__(self, backbone, channels, dropout=0.0, data_preprocessor=None, init_cfg=None):
        super().__init__(data_preprocessor, init_cfg)
        self.backbone = MODELS.build(backbone)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Conv2d(channels, 2, 1)

    def forward(self, inputs, data_samples, mode="tensor"):
        logits = self.head(self.dropout(self.backbone(inputs)))
        if mode == "loss":
            truth = torch.stack([sample.gt.mask[0] for sample in data_samples])
            return {"loss_ce": nn.functional.cross_entropy(logits, truth)}
        for sample, found in zip(data_samples, logits.argmax(1), strict=True):
            sample.pred = PixelData(mask=found[None])
        return data_samples


@METRICS.register_module()
class PixelAccuracy(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results += [float((each["pred"]["mask"] == each["gt"]["mask"]).float().mean()) for each in data_samples]

    def compute_metrics(self, results):
        return {"accuracy": sum(results) / len(results)}
