"""Gives Python and numpy names that they no longer have, and finds the packages of anything.py."""

import collections
import collections.abc

import anything as anything
import numpy

collections.Sequence = collections.abc.Sequence
numpy.bool8 = numpy.bool_
