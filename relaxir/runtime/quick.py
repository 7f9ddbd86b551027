"""Calls without Python code: a built-in function, written into every library, that reads and makes NumPy arrays.

The native code (`relaxir.backends.llvm.python_ir`) looks into array objects, so everything it relies on is looked at
here first: where CPython or NumPy keep things elsewhere, there is no quick call, and the general path serves.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy._core import multiarray

from relaxir.runtime.records import READABLE, dtype_word
from relaxir.runtime.signature import Signature
from relaxir.support.dtypes import info

OBJECT: Final = MappingProxyType(
    {
        "O_TYPE": 8,
        "A_DATA": 16,
        "A_RANK": 24,  # i32
        "A_SHAPE": 32,
        "A_DTYPE": 56,
        "A_FLAGS": 64,  # i32
        "T_SIZE": 16,  # of a tuple
        "T_ITEMS": 24,
        "S_DATA": 32,  # of bytes
    }
)
"""Where objects of CPython and NumPy keep their fields: bytes from the object's address."""

_INTERFACE: Final = (
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyCapsule_New",
    "PyCapsule_SetContext",
    "PyCapsule_GetContext",
    "PyCapsule_GetPointer",
    "PyObject_CallOneArg",
    "PyObject_Vectorcall",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyLong_FromLong",
    "PyUnicode_Compare",
    "Py_IncRef",
    "Py_DecRef",
)
_NUMPY: Final = MappingProxyType({"PyArray_Type": 2, "PyArray_NewFromDescr": 94, "PyArray_SetBaseObject": 282})
"""Places in NumPy's table of functions, the same since NumPy 1.7."""

TABLE: Final = MappingProxyType({f"I_{n}": 8 * i for i, n in enumerate((*_INTERFACE, *_NUMPY))})
"""The table of addresses that a library is given once."""

_PLAN: Final = (
    "P_CONTEXT", "P_FUNCTION", "P_INPUTS", "P_OUTPUTS", "P_SINGLE", "P_SIZES", "P_OWNER", "P_GENERAL", "P_FAIL",
)  # fmt: skip
PLAN: Final = MappingProxyType({name: 8 * i for i, name in enumerate(_PLAN)})
"""What a built-in function knows of its function; a row for each tensor follows."""
PLAN_BYTES: Final = 8 * len(_PLAN)

ROW: Final = MappingProxyType({"R_NAME": 0, "R_DTYPE": 8, "R_RANK": 16, "R_WORD": 24})
ROW_BYTES: Final = 32

_FAST_KEYWORDS: Final = 0x82  # METH_FASTCALL | METH_KEYWORDS
_NAME: Final = b"call"


class Plan(bytes):
    """What native code reads of a function: the table of `PLAN`, the rows, and CPython's ``PyMethodDef`` behind them.

    The built-in function holds its plan as ``self``, so all it points to lives as long as the function does.
    """

    kept: tuple[object, ...] = ()
    """What the plan has addresses of."""


def interface_table() -> bytes | None:
    """The addresses that native code needs of CPython and NumPy, or None where it could not read their objects."""
    if not _as_expected():
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    api = ctypes.cast(pointer(multiarray._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    functions = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _INTERFACE]
    return struct.pack(f"{len(TABLE)}q", *functions, *(api[place] for place in _NUMPY.values()))


def _as_expected() -> bool:
    """Whether the fields of some objects lie where `OBJECT` says."""
    if object.__basicsize__ != OBJECT["A_DATA"] or bytes.__basicsize__ != OBJECT["S_DATA"] + 1:
        return False
    probe, name, plan = np.zeros((2, 3), np.float32), "name", Plan(b"relaxir")
    pair = (probe, name)

    def word(owner: object, field: str) -> int:
        return ctypes.c_int64.from_address(id(owner) + OBJECT[field]).value

    shape = (ctypes.c_int64 * 2).from_address(word(probe, "A_SHAPE"))
    return (
        word(probe, "O_TYPE") == id(np.ndarray)
        and word(probe, "A_DATA") == probe.__array_interface__["data"][0]
        and word(probe, "A_RANK") & 0xFFFFFFFF == probe.ndim
        and tuple(shape) == probe.shape
        and word(probe, "A_DTYPE") == id(probe.dtype)
        and word(probe, "A_FLAGS") & READABLE == READABLE
        and word(pair, "T_SIZE") == len(pair)
        and word(pair, "T_ITEMS") == id(probe)
        and ctypes.string_at(id(plan) + OBJECT["S_DATA"], len(plan)) == plan
    )


INTERFACE: Final = interface_table()


def quick_call(
    entry: int,
    signature: Signature,
    index: int,
    context: int,
    owner: object,
    general: Callable[..., Any],
    fail: Callable[[int], Any],
) -> Callable[..., Any]:
    """A built-in function that calls a compiled function: ``function(*args, **feeds)`` gives the results.

    Where the arguments are not exactly arrays of the declared dtypes and ranks, compact and in place, it calls
    ``general`` with them; where the call fails, ``fail`` with the native status.

    Args:
        entry: address of the library's ``rx_python``.
        signature: of the compiled function.
        index: its number in the library.
        context: address of the native context.
        owner: keeps the context alive; every result holds it, and so does the built-in function.
        general: takes any call.
        fail: raises.
    """
    specs = (*signature.inputs, *signature.outputs)
    names, dtypes = tuple(s.name for s in specs), tuple(info(s.type.dtype).numpy for s in specs)
    counts = (len(signature.inputs), len(signature.outputs), signature.single)
    sizes = sum(s.type.rank for s in signature.outputs)
    words = [context, index, *counts, sizes, id(owner), id(general), id(fail)]
    for name, dtype, spec in zip(names, dtypes, specs, strict=True):
        words += (id(name), id(dtype), spec.type.rank, dtype_word(spec))
    method = 8 * len(words)
    words += (id(_NAME) + OBJECT["S_DATA"], entry, _FAST_KEYWORDS, 0)
    plan = Plan(struct.pack(f"{len(words)}q", *words))
    plan.kept = (owner, general, fail, names, dtypes)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    function: Callable[..., Any] = make(id(plan) + OBJECT["S_DATA"] + method, plan, None)
    return function
