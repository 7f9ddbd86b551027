"""The table of operators on complex numbers, by what kind they are of."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from relaxir.frontends.torch.complex_functions import (
    Function,
    conjugate,
    converted,
    cosine,
    divide,
    either,
    equality,
    exponential,
    first,
    from_parts,
    hyperbolic_cosine,
    hyperbolic_sine,
    hyperbolic_tangent,
    length,
    logarithm,
    logarithm_to,
    logistic,
    polar,
    power,
    reciprocal,
    root,
    sign,
    spread,
    truth,
    turned,
)
from relaxir.frontends.torch.complexes import (
    Complex,
    argument,
    by_parts,
    products,
    real_alone,
    real_parts,
    stacked,
    times,
    unstacked,
    view_as_complex,
    view_as_real,
    with_args,
)
from relaxir.frontends.torch.node import Arg, Converter, Node
from relaxir.frontends.torch.tensors import dtype_name
from relaxir.frontends.values import Value
from relaxir.sym import floordiv, mul


def view(real: Converter) -> Converter:
    """Another shape, or the bits as numbers of another kind: two floats are one complex number."""

    def convert(n: Node) -> Arg:
        if "dtype" not in n.args:
            return by_parts(real, ("self",))(n)
        wanted, given = n.meta().dtype, n.get("self")
        if isinstance(given, Complex) and not wanted.is_complex and dtype_name(wanted) == given.dtype:
            pairs = stacked(n, given)
            *outer, last, _ = pairs.type.shape
            return n.reshape(pairs, (*outer, mul(last, 2)))
        if isinstance(given, Value) and wanted.is_complex and given.type.dtype == n.out_dtype:
            *outer, last = given.type.shape
            return unstacked(n, n.reshape(given, (*outer, floordiv(last, 2), 2)))
        if isinstance(given, Complex) and wanted.is_complex and given.dtype == n.out_dtype:
            return given
        return n.unsupported(f"a view of the bits as {wanted}")

    return convert


def with_factor(convert: Converter) -> Converter:
    """A sum or difference, whose factor ``alpha`` may be complex."""
    plain = by_parts(convert, ("self", "other"))

    def run(n: Node) -> Complex:
        if isinstance(n.get("alpha"), complex):
            n = with_args(n, other=times(n, argument(n, "other"), argument(n, "alpha")), alpha=1)
        found: Complex = plain(n)
        return found

    return run


def as_asked(convert: Converter) -> Converter:
    """A converter whose results are real where real numbers are asked for: ``torch.ones_like(z, dtype=...)``."""

    def run(n: Node) -> Arg:
        found = convert(n)
        return found.real if isinstance(found, Complex) and not n.meta().dtype.is_complex else found

    return run


def of_self(function: Function) -> Converter:
    """A function of ``self``."""
    return lambda n: function(n, argument(n))


MAKING: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "complex": from_parts,
        "imag": lambda n: argument(n).imag,
        "polar": polar,
        "view_as_complex": view_as_complex,
        "view_as_real": view_as_real,
    }
)
"""Operators that make complex numbers of real ones, and that take nothing else, by the name of the ATen packet."""
OWN: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **dict.fromkeys(("_conj", "_conj_physical", "conj_physical"), conjugate),
        **dict.fromkeys(("div", "divide", "true_divide"), divide),
        "eq": equality,
        "log2": logarithm_to(2),
        "log10": logarithm_to(10),
        "ne": lambda n: n.emit("logical_not", equality(n)),
        "pow": power,
        "real": lambda n: argument(n).real,
        "sgn": sign,
    }
)
"""Operators with converters of their own for complex numbers."""
FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {
        "abs": length,
        "angle": lambda n, z: n.emit("atan2", z.imag, z.real),
        "cos": cosine,
        "cosh": hyperbolic_cosine,
        "exp": exponential,
        "log": logarithm,
        "reciprocal": reciprocal,
        "rsqrt": lambda n, z: reciprocal(n, root(n, z)),
        "sigmoid": logistic,
        "sin": turned(hyperbolic_sine),
        "sinh": hyperbolic_sine,
        "sqrt": root,
        "square": lambda n, z: times(n, z, z),
        "tan": turned(hyperbolic_tangent),
        "tanh": hyperbolic_tangent,
    }
)
"""Functions of ``self``."""
PRODUCTS: Final = MappingProxyType(
    {
        "bmm": ("self", "mat2"),
        "dot": ("self", "tensor"),
        "einsum": ("tensors",),
        "matmul": ("self", "other"),
        "mm": ("self", "mat2"),
        "mul": ("self", "other"),
        "multiply": ("self", "other"),
        "mv": ("self", "vec"),
        "outer": ("self", "vec2"),
    }
)
"""Products, and the names of their factors."""
CONVOLUTIONS: Final = tuple(
    "convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear".split()
)
"""Products of ``input`` and ``weight`` with a ``bias``."""
AFFINE: Final = MappingProxyType(
    {
        "addbmm": (("batch1", "batch2"), "self"),
        "addmm": (("mat1", "mat2"), "self"),
        "addmv": (("mat", "vec"), "self"),
        "baddbmm": (("batch1", "batch2"), "self"),
        **dict.fromkeys(CONVOLUTIONS, (("input", "weight"), "bias")),
    }
)
"""Products that something is added to: the names of their factors, and of that."""
CONVERTING: Final = ("_to_copy", "to", "type_as")
"""Changes of dtype."""
ADDING: Final = ("add", "rsub", "sub", "subtract")
"""Sums and differences."""
NUMBERS: Final = MappingProxyType(
    {
        "cat": ("tensors",),
        "concat": ("tensors",),
        "constant_pad_nd": ("self", "value"),
        "copy": ("self", "src"),
        "diagonal_scatter": ("self", "src"),
        "diff": ("self", "prepend", "append"),
        "dropout": ("input",),
        "embedding": ("weight",),
        "fill": ("self", "value"),
        "full": ("fill_value",),
        "full_like": ("self", "fill_value"),
        "index_add": ("self", "source"),
        "index_copy": ("self", "source"),
        "index_fill": ("self", "value"),
        "index_put": ("self", "values"),
        "linspace": ("start", "end"),
        "masked_fill": ("self", "value"),
        "masked_scatter": ("self", "source"),
        "new_full": ("self", "fill_value"),
        "pad": ("self", "value"),
        "put": ("self", "source"),
        "scatter": ("self", "src", "value"),
        "scatter_add": ("self", "src"),
        "scalar_tensor": ("s",),
        "select_scatter": ("self", "src"),
        "slice_scatter": ("self", "src"),
        "stack": ("tensors",),
        "where": ("self", "other"),
        **dict.fromkeys(("empty", "empty_permuted", "empty_strided", "zeros"), ()),
    }
)
"""Operators that work on each part alone with more than ``self``, and the names of the arguments with numbers."""
SELF: Final = tuple(
    "_reshape_alias _unsafe_index _unsafe_view alias broadcast_to chunk clone contiguous cumsum detach diagonal "
    "empty_like expand expand_as flatten flip gather index index_select lift_fresh_copy masked_select mean movedim mT "
    "narrow neg new_empty new_empty_strided new_zeros numpy_T permute positive repeat repeat_interleave reshape "
    "reshape_as resolve_conj resolve_neg roll select slice split split_with_sizes squeeze sum swapaxes t take "
    "take_along_dim tensor_split tile transpose tril triu unbind unflatten unfold unsafe_split unsqueeze view_as zero "
    "zeros_like".split()
)
"""Operators that work on each part of ``self`` alone."""
REAL: Final = ("arange", "eye", "new_ones", "ones", "ones_like")
"""Operators whose results have no imaginary part."""
SIZES: Final = ("_assert_tensor_metadata", "sym_numel", "sym_size", "sym_stride", "sym_storage_offset")
"""Operators that ask for nothing but sizes, which both parts have."""
LENGTHS: Final = ("linalg_vector_norm", "norm")
"""Operators that ask for nothing but distances from 0."""
TESTS: Final = ("all", "any", "count_nonzero", "logical_and", "logical_not", "logical_or", "logical_xor", "nonzero")
"""Operators that ask for nothing but which numbers are not 0."""


def of_complex(real: Mapping[str, Converter]) -> Mapping[str, Converter]:
    """Converters of complex numbers by the name of the ATen packet, given those of real ones."""

    def of_first(convert: Converter) -> Converter:
        return lambda n: convert(real_parts(n))

    return MappingProxyType(
        {
            **OWN,
            **{name: of_self(function) for name, function in FUNCTIONS.items()},
            **{name: products(real[name], factors) for name, factors in PRODUCTS.items()},
            **{name: products(real[name], *names) for name, names in AFFINE.items()},
            **{name: as_asked(by_parts(real[name], names)) for name, names in NUMBERS.items()},
            **{name: as_asked(by_parts(real[name], ("self",))) for name in SELF},
            **{name: with_factor(real[name]) for name in ADDING},
            **{name: converted(real[name]) for name in CONVERTING},
            **{name: first(real[name], length) for name in LENGTHS},
            **{name: first(real[name], truth) for name in TESTS},
            **{name: of_first(real[name]) for name in SIZES},
            **{name: as_asked(real_alone(real[name])) for name in REAL},
            **{name: either(real[name], "logical_or") for name in ("isinf", "isnan")},
            "isfinite": either(real["isfinite"], "logical_and"),
            "std": spread(real["var"], deviation=True),
            "var": spread(real["var"]),
            "view": view(real["view"]),
        }
    )
