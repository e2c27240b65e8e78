from torchvision.ops.boxes import box_area, box_iou

__all__ = ["box_area", "box_iou"]
