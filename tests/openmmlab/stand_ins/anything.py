"""Gives a module of a stand-in every name: a class that does nothing, and has every name, too."""


class Anything(type):
    def __getattr__(cls, name):
        return name_of_anything(name)


def name_of_anything(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything(name, (), {"__init__": lambda self, *args, **kwargs: None})
