"""The names and calling conventions of other systems, each as a thin layer over the same core.

    mmengine/             mmengine
    imix/                 imix
    pointrix/             pointrix
    robo_orchard_lab/     robo_orchard_lab, with robo_orchard_core/ below it

Each package mirrors the module paths of the original, so a project is ported by putting `hookline.dialects.` in front
of the package name in its imports. A dialect only translates. The core does the work and does not know about dialects.

    import hookline.dialects

    hookline.dialects.alias("mmengine")     # from now on, `import mmengine` imports the dialect
"""

from hookline.dialects.imports import alias

__all__ = ["alias"]
