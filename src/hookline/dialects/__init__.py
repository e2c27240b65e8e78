"""Other systems' names and calling habits, each as a thin layer over the same core.

    mmengine/             mmengine
    imix/                 imix
    pointrix/             pointrix
    robo_orchard_lab/     robo_orchard_lab, with robo_orchard_core/ below it

Each package mirrors the module paths of the original, so that `hookline.dialects.` before the package's name is the
whole port. A dialect translates; the work is done by the core, which does not know that dialects exist.

    import hookline.dialects

    hookline.dialects.alias("mmengine")     # from now on, `import mmengine` gives the dialect
"""

from hookline.dialects.imports import alias

__all__ = ["alias"]
