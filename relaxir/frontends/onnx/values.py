"""The values of `relaxir.frontends.values`, under the name that converters use."""

from relaxir.frontends.values import SIZES, SMALL, Value

__all__ = ("SIZES", "SMALL", "Value")
