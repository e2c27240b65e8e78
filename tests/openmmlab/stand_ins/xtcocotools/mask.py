from pycocotools.mask import decode as decode
from pycocotools.mask import encode as encode
from pycocotools.mask import frPyObjects as frPyObjects
from pycocotools.mask import merge as merge
