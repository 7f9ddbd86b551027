"""What the converters leave out, in the words of the support table: (domain, operator) to limit.

`docs/gen_onnx.py` prints these beside the operators, and a test imports a node beyond each limit to see it refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

COUNT: Final = "the number of axes must be known, from their own length or from the stated rank of the result"
HIDDEN: Final = "the hidden size must be known; activations of the standard"
POSITION: Final = "the position must be constant"

STANDARD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "AffineGrid": "the number of spatial axes must be known",
        "ConcatFromSequence": "parts of a run-time number only along the axis that they were cut along",
        "Constant": "no strings, no sparse constants",
        "DeformConv": "images (two spatial axes)",
        "Dropout": "inference, or a ratio of 0",
        "GRU": HIDDEN,
        "GatherND": "the number of indices in a position must be known",
        "GroupNormalization": "before opset 21 the number of channels must be known",
        "If": "both branches of one rank, sequences of one length; a condition known at import takes its branch",
        "LSTM": HIDDEN,
        "Loop": "with a carried sequence that does more than grow: a constant number of turns, at most 1024",
        "LpPool": "whole exponents",
        "RNN": HIDDEN,
        "Reshape": "the rank of the target must be known",
        "Scan": "opset 8: no sequence_lens",
        "ScatterND": "the number of indices in a position must be known",
        "SequenceAt": "a run-time position needs tensors of one type",
        "SequenceErase": POSITION,
        "SequenceInsert": POSITION,
        "Squeeze": f"{COUNT}; without axes, all extents must be known",
        "TfIdfVectorizer": "integers, in rows or in one row",
        "Unsqueeze": COUNT,
        **{f"Reduce{k}": COUNT for k in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()},
    }
)
"""Limits of operators of the standard."""
MICROSOFT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Attention": "no do_rotary, no buffer shared by past and present",
        "CDist": "Euclidean distances and their squares",
        "DynamicQuantizeLSTM": "weights of known sizes where each column has a scale",
        "FusedConv": "activations Relu, Tanh, Sigmoid, LeakyRelu, Clip, HardSigmoid",
        "FusedGemm": "activations Relu, Tanh, Sigmoid, LeakyRelu, HardSigmoid",
        "GroupQueryAttention": "no attention_bias, head_sink or smooth_softmax",
        "MatMulNBits": "4 or 8 bits, packed zero points, no g_idx",
        "MultiHeadAttention": "no past_sequence_length, no beams (cache_indirection)",
        "RotaryEmbedding": "no packed batches; the number of heads must be stated or follow from the tables",
    }
)
"""Limits of operators of com.microsoft."""
ML: Final[Mapping[str, str]] = MappingProxyType(
    {
        "LinearClassifier": "integer labels: one per score, or two for one score; post_transform as LinearRegressor",
        "LinearRegressor": "post_transform NONE, LOGISTIC, SOFTMAX",
        "OneHotEncoder": "integers, zeros=1",
    }
)
"""Limits of operators of ai.onnx.ml."""
LIMITS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        (domain, k): v
        for domain, limits in (("", STANDARD), ("ai.onnx.ml", ML), ("com.microsoft", MICROSOFT))
        for k, v in limits.items()
    }
)
"""All limits."""
