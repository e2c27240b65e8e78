from torchvision.transforms.transforms import InterpolationMode, RandomResizedCrop

__all__ = ["InterpolationMode", "RandomResizedCrop"]
