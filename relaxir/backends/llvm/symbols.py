"""Symbols that stand for functions of a model: a prefix for each kind keeps them apart, and from the C library's."""

from __future__ import annotations


def kernel_symbol(name: str) -> str:
    """The function of a kernel, with parameters as the kernel has them."""
    return f"kernel_{name}"


def host_symbol(name: str) -> str:
    """The host entry of a function: ``i32 (ptr ctx, ptr ws, ptr inputs, ptr outputs)``."""
    return f"host_{name}"


def query_symbol(name: str) -> str:
    """The query entry of a function: ``i32 (ptr ctx, ptr ws, ptr inputs, ptr outputs, ptr frame_bytes)``.

    It writes the outputs' shape arrays and the bytes (i64) of frame the call would take.
    """
    return f"query_{name}"


def import_symbol(name: str) -> str:
    """The exported variable that holds the address of a foreign function."""
    return f"rx_import.{name}"
