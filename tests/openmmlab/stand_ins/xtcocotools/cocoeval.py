from pycocotools.cocoeval import COCOeval as COCOeval
