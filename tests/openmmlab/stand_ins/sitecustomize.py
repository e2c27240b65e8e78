"""Gives Python and numpy names that they no longer have, and that mmrotate and mmagic use."""

import collections
import collections.abc

import numpy

collections.Sequence = collections.abc.Sequence
numpy.bool8 = numpy.bool_
