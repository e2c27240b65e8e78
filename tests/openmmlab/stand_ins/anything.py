"""Modules with every name: each is a class that does nothing, and has every name, too."""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

#: Packages that are not for today's Python, numpy or transformers.
PACKAGES = ("albumentations", "controlnet_aux", "diffusers", "e2cnn", "imgaug")


class Anything(type):
    def __getattr__(cls, name):
        return name_of_anything(name)


def name_of_anything(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything(name, (), {"__init__": lambda self, *args, **kwargs: None})


class Finder(MetaPathFinder, Loader):
    """Finds these packages, and every module in them."""

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in PACKAGES else None

    def exec_module(self, module):
        module.__getattr__ = name_of_anything


sys.meta_path.append(Finder())
