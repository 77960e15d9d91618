"""The library, from Python."""

import ctypes
from pathlib import Path

_library = ctypes.CDLL(str(Path(__file__).with_name("libstats.so")))


def _call(name, values):
    function = _library[name]
    function.restype = ctypes.c_double
    return function(values, len(values))


def array(values):
    return (ctypes.c_double * len(values))(*values)


def mean(values):
    return _call("mean", array(values))


def median(values):
    """Of a list, or of an array() that is used several times"""
    return _call("median", values if isinstance(values, ctypes.Array) else array(values))
