from hookline.dialects.mmengine import registry as root
from hookline.dialects.mmengine.registry import Registry

MODELS = Registry("model", parent=root.MODELS, scope="toyseg", locations=["toyseg.models"])
DATASETS = Registry("dataset", parent=root.DATASETS, scope="toyseg", locations=["toyseg.datasets"])
DATA_SAMPLERS = Registry("sampler", parent=root.DATA_SAMPLERS, scope="toyseg", locations=["toyseg.datasets"])
METRICS = Registry("metric", parent=root.METRICS, scope="toyseg", locations=["toyseg.models"])
LOOPS = Registry("loop", parent=root.LOOPS, scope="toyseg", locations=["toyseg.loops"])
