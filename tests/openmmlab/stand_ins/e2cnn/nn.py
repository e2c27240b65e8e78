from anything import name_of_anything

__getattr__ = name_of_anything
