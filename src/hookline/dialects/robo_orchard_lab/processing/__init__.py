"""`robo_orchard_lab.processing`: the batch processors, under the names of later versions of RoboOrchard."""
