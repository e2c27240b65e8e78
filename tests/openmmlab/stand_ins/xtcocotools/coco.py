from pycocotools.coco import COCO as COCO
