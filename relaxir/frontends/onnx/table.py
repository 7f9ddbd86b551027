"""The operator table of the importer: (domain, operator) to converter."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from relaxir.frontends.onnx.convert_control import CONTROL
from relaxir.frontends.onnx.convert_data import DATA
from relaxir.frontends.onnx.convert_math import MATH, Converter
from relaxir.frontends.onnx.convert_nn import MICROSOFT, NN
from relaxir.frontends.onnx.convert_pool import POOL
from relaxir.frontends.onnx.convert_quant import MICROSOFT_QUANT, QUANT
from relaxir.frontends.onnx.convert_recurrent import RECURRENT
from relaxir.frontends.onnx.convert_sequence import SEQUENCE
from relaxir.frontends.onnx.convert_shape import SHAPE
from relaxir.frontends.onnx.convert_signal import SIGNAL
from relaxir.frontends.onnx.convert_vision import VISION

TABLES: Final = (MATH, SHAPE, DATA, NN, QUANT, POOL, VISION, CONTROL, RECURRENT, SEQUENCE, SIGNAL)
CONVERTERS: Final[Mapping[tuple[str, str], Converter]] = MappingProxyType(
    {
        **{("", k): v for table in TABLES for k, v in table.items()},
        **{("com.microsoft", k): v for k, v in (*MICROSOFT.items(), *MICROSOFT_QUANT.items())},
        **{("com.microsoft", k): MATH[k] for k in ("Gelu",)},
        **{("com.microsoft", k): NN[k] for k in ("LayerNormalization",)},
    }
)
