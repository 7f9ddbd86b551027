"""Types of the fixtures that make libraries."""

from collections.abc import Callable

from relaxir.backends.llvm.library import Library, LoadedLibrary

BuildLibrary = Callable[..., Library]
LoadLibrary = Callable[..., LoadedLibrary]
