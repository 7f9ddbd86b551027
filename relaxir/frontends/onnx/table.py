"""The operator table of the importer: (domain, operator) to converter."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from relaxir.frontends.onnx.convert_attention import MICROSOFT_ATTENTION
from relaxir.frontends.onnx.convert_control import CONTROL
from relaxir.frontends.onnx.convert_data import DATA
from relaxir.frontends.onnx.convert_math import MATH
from relaxir.frontends.onnx.convert_microsoft import BESIDE_STANDARD, MICROSOFT
from relaxir.frontends.onnx.convert_microsoft_quant import MICROSOFT_QUANT
from relaxir.frontends.onnx.convert_ml import ML
from relaxir.frontends.onnx.convert_nn import NN
from relaxir.frontends.onnx.convert_pool import POOL
from relaxir.frontends.onnx.convert_quant import QUANT
from relaxir.frontends.onnx.convert_recurrent import RECURRENT
from relaxir.frontends.onnx.convert_sequence import SEQUENCE
from relaxir.frontends.onnx.convert_shape import SHAPE
from relaxir.frontends.onnx.convert_signal import SIGNAL
from relaxir.frontends.onnx.convert_vision import VISION
from relaxir.frontends.onnx.node import Converter

TABLES: Final = (MATH, SHAPE, DATA, NN, QUANT, POOL, VISION, CONTROL, RECURRENT, SEQUENCE, SIGNAL)
MICROSOFT_TABLES: Final = (MICROSOFT, MICROSOFT_ATTENTION, MICROSOFT_QUANT)
CONVERTERS: Final[Mapping[tuple[str, str], Converter]] = MappingProxyType(
    {
        **{("", k): v for table in TABLES for k, v in table.items()},
        **{("", k): v for k, v in BESIDE_STANDARD.items()},
        **{("ai.onnx.ml", k): v for k, v in ML.items()},
        **{("com.microsoft", k): v for table in MICROSOFT_TABLES for k, v in table.items()},
    }
)
