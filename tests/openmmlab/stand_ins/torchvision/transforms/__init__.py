from anything import name_of_anything

from torchvision.transforms.transforms import InterpolationMode, RandomResizedCrop

__all__ = ["InterpolationMode", "RandomResizedCrop"]
__getattr__ = name_of_anything
