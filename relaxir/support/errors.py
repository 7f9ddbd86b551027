"""Every error a user can meet: one class per kind, each with stable codes and a docstring that is its manual page.

Messages are one lower-case sentence without a final stop; they name the operand and the axis, say what was got
and what was expected in the user's own symbols, and never show a Python repr of a node. A note adds one fact,
``help`` names one action.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar, Final

from relaxir.support.spans import Span


def _codes(**meanings: str) -> Mapping[str, str]:
    """Make a read-only table of codes; keywords have underscores where codes have hyphens."""
    return MappingProxyType({code.replace("_", "-"): text for code, text in meanings.items()})


class RelaxirError(Exception):
    """The root of all errors of relaxir; catch it to catch them all. It is never raised itself.

    >>> try:
    ...     raise ShapeMismatchError(
    ...         "add: axis 0 is `n` on the left and `n + 1` on the right",
    ...         span=Span("model.py", 4, 7, 16, source="y = R.add(x, w)"),
    ...         notes=["left: (n, 4), right: (n + 1, 4)"],
    ...         help="use one symbolic variable",
    ...     )
    ... except RelaxirError as error:
    ...     print(error)
    error[shape-mismatch]: add: axis 0 is `n` on the left and `n + 1` on the right
     --> model.py:4:7
       |
     4 | y = R.add(x, w)
       |       ^^^^^^^^^
       = note: left: (n, 4), right: (n + 1, 4)
       = help: use one symbolic variable
    """

    CODES: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Codes of this class with their meaning; the first one is the default."""

    code: str
    message: str
    span: Span | None
    notes: tuple[str, ...]
    help: str

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        span: Span | None = None,
        notes: tuple[str, ...] | list[str] = (),
        help: str = "",
    ) -> None:
        """Keep the parts; ``str(error)`` renders them."""
        super().__init__(message)
        self.message = message
        self.code = code or next(iter(self.CODES), "error")
        self.span = span
        self.notes = tuple(notes)
        self.help = help

    def __str__(self) -> str:
        """Render the block a user sees."""
        return "\n".join(map(_shortened, "\n".join(self._lines()).split("\n")))

    def _headline(self) -> str:
        return f"error[{self.code}]: {self.message}"

    def _lines(self) -> Iterator[str]:
        yield self._headline()
        if self.span is not None:
            yield self.span.render()
        for note in self.notes:
            yield _hang("   = note: ", note)
        if self.help:
            yield _hang("   = help: ", self.help)


class ParseError(RelaxirError):
    """IR text could not be read.

    The text is Python syntax, but only the forms of docs/reference/language.md mean something in it.

    Example::

        rx.parse('''
        @I.module
        class Module:
            @R.function
            def main(x: R.Tensor(("n",), "f32")) -> R.Tensor(("n",), "f32"):
                y: R.Tensor((n,), "f32") = R.exp(x)     # `n` is not declared in the body
                return y
        ''')

    Fix: declare each symbol the body uses, one a line, before its first use: ``n = R.dim("n")``.
    """

    CODES = _codes(
        parse_syntax="the text is not Python, or a form that the IR does not have",
        parse_unknown_op="no operator of this name exists",
        parse_undefined_name="a name is used that nothing before it defines",
        parse_redefined="a name is defined twice in one function",
        parse_annotation="a written type contradicts the inferred one",
        parse_constant="a constant's data is missing, or its checksum, shape or type differs from the text",
    )


class InferError(RelaxirError):
    """An operator was given operands for which it has no result type.

    Example::

        x = rx.Var("x", rx.TensorType((n, 4), "float32"))
        y = rx.Var("y", rx.TensorType((n, 4), "float16"))
        bb.emit(rx.op.add(x, y))                    # float32 and float16: relaxir never promotes in silence

    Fix: convert one operand, ``rx.op.astype(y, "float32")``.
    """

    CODES = _codes(
        infer="the operands have no result type",
        arity="the number of operands is wrong",
        type_kind="an operand is not a tensor, tuple, shape or function as needed",
        dtype_mismatch="data types differ, or the operator does not take this one",
        rank_mismatch="an operand has the wrong number of axes",
        axis_range="an axis lies outside the rank",
        attribute="an attribute has a value that the operator does not accept",
    )


class ShapeMismatchError(InferError):
    """Two dimensions that must agree are proved different, whatever the symbols stand for.

    Example::

        x = rx.Var("x", rx.TensorType((n, 4), "float32"))
        y = rx.Var("y", rx.TensorType((n + 1, 4), "float32"))
        bb.emit(rx.op.add(x, y))                    # axis 0: n and n + 1 are never equal

    Fix: slice or pad one operand, or declare it with the dimension that you meant.
    """

    CODES = _codes(shape_mismatch="two dimensions are proved different")


class ShapeUnprovenError(InferError):
    """Two dimensions may differ, and ``rx.BlockBuilder(strict=True)`` forbids the check at run time.

    Example::

        x = rx.Var("x", rx.TensorType((n, 4), "float32"))
        y = rx.Var("y", rx.TensorType((m, 4), "float32"))
        bb.emit(rx.op.add(x, y))                    # n and m may be equal: known at run time only

    Fix: use one symbol for both, state ``where="n == m"``, assert it with ``bb.match_cast``, or leave ``strict``
    off: the equality is then checked at every call.
    """

    CODES = _codes(shape_unproven="two dimensions may or may not be equal")


class VerifyError(RelaxirError):
    """A module breaks an invariant of the IR; the message cites the invariant's number.

    Example::

        with R.dataflow():
            R.print(x)                              # an effect inside a dataflow block

    Fix: end the dataflow block before the call. The invariants are listed at the top of relaxir/ir/verify.py and
    relaxir/tir/verify.py.
    """

    CODES = _codes(
        verify="an invariant of the IR does not hold",
        verify_use_before_def="a variable is used where no binding before it defines it",
        verify_redefined="a variable or symbol is bound twice",
        verify_scope="a variable or symbol is used outside the block or function that owns it",
        verify_type="a recorded type differs from the inferred one",
        verify_impure_in_dataflow="a call with an effect stands inside a dataflow block",
        verify_level="a form is used that this stage of the pipeline no longer, or not yet, has",
        verify_buffer="a buffer is accessed with the wrong number of indices, or outside its allocation",
        verify_name="a global name is missing, or used for two things",
    )


class PassError(RelaxirError):
    """A pass cannot run on this module, or was given a bad option.

    Example::

        rx.passes.PlanMemory()(mod)                 # mod still has graph operators

    Fix: run the passes that come before it; ``relaxir show model.rx --after all`` lists them in order.
    """

    CODES = _codes(
        pass_requires="the module is not at the level that the pass starts from",
        pass_option="an option has a bad value, or does not exist",
        pass_unknown="no pass or pipeline of this name exists",
    )


class ScheduleError(RelaxirError):
    """A schedule primitive would change what the tensor program computes, or names a loop that is not there.

    Example::

        sch.parallel("k")                           # k carries the sum: its iterations are not independent

    Fix: parallelise a loop over an output axis, or decompose the reduction first.
    """

    CODES = _codes(
        schedule_illegal="the rewrite would change the result",
        schedule_no_such_loop="no loop or block of this name exists",
        schedule_config="a configuration is not in the configuration space of the block",
    )


class UnsupportedError(RelaxirError):
    """The input is well formed, but relaxir does not implement it (yet).

    Importers report every such node of a model at once.

    Example::

        rx.from_onnx("model.onnx")                  # the model has a StringNormalizer node

    Fix: cut the part out of the model and run it beside, or write the operator: docs/contributing/add-an-op.md.
    """

    CODES = _codes(
        unsupported="relaxir does not implement this",
        import_unsupported="a model has nodes, attributes or types that the importer does not know",
        lower_unsupported="an operator has no lowering for these types",
        backend_missing_intrinsic="the target lacks an intrinsic",
        dtype_unsupported="relaxir has no such data type",
    )


class LoadError(RelaxirError):
    """A file, a library or an optional package could not be loaded.

    Example::

        rx.from_onnx("modle.onnx")                  # load-path: no such file
        rx.load("for_another_machine.so")           # load-features: it was made for another processor
        rx.from_torch(program)                      # extra-missing: PyTorch is not installed

    Fix: check the path (load-path); make the file again (load-malformed, load-version); compile for a lower level,
    ``target="x86-64-v3"`` (load-features); run the ``pip install`` command that the error prints (extra-missing).
    """

    CODES = _codes(
        load_malformed="the content is damaged or not of the expected format",
        load_path="the file does not exist or cannot be read or written",
        load_features="the library needs CPU features that this machine lacks",
        load_version="the file was made by an incompatible version",
        extra_missing="an optional package is not installed",
    )


class TargetError(RelaxirError):
    """The compilation target is unknown, or cannot do what was asked of it.

    Example::

        rx.compile(mod, target="x86-64-v5")         # target-unknown
        rx.compile(mod, target="riscv64")           # target-features: libraries are not made for it

    Fix: use ``native``, one of x86-64-v2, x86-64-v3, x86-64-v4, or an LLVM triple such as
    ``aarch64-unknown-linux-gnu``; install the tool that the error names (target-tool).
    """

    CODES = _codes(
        target_unknown="no target of this name exists",
        target_features="the target lacks a feature, or this machine cannot run its code",
        target_tool="a tool needed for this target is missing",
    )


class RuntimeShapeError(RelaxirError):
    """Compiled code found at a call that sizes do not agree as the program needs.

    The compiler could not prove the relation, so it is checked at each call, before anything is computed from it.

    Example::

        main(np.zeros((3, 4)), np.zeros((5, 4)))    # the program adds them: 3 and 5 differ

    Fix: pass arrays that satisfy the relation; ``rx.BlockBuilder(strict=True)`` refuses such a program instead.
    """

    CODES = _codes(runtime_shape="sizes do not agree at run time")


class RuntimeIndexError(RelaxirError):
    """Compiled code met an index outside the axis it selects from.

    Example::

        main(table, np.array([0, 99]))              # the program gathers from a table of 10 rows

    Fix: clip or check the indices before the call; a valid index i of an axis of size n has -n <= i < n.
    """

    CODES = _codes(runtime_index="an index is out of range at run time")


class RuntimeFailure(RelaxirError):  # noqa: N818  # a failure of the machine or of arithmetic, not of an argument
    """Compiled code could not go on: memory ran out, a size overflowed, or an integer was divided by zero.

    Example::

        main(np.zeros((1 << 40, 1), np.bool_))      # runtime-allocation: the result would need more than there is
        ratio(np.array([1]), np.array([0]))         # runtime-division-by-zero: integers have no infinity

    Fix: pass smaller inputs (``rx.memory(exe)`` prints the memory a call needs), or make sure that no divisor is 0.
    """

    CODES = _codes(
        runtime_failure="the call could not go on",
        runtime_allocation="memory could not be allocated",
        runtime_overflow="a size does not fit 64 bits",
        runtime_division_by_zero="an integer was divided by zero",
    )


class ArgumentError(RelaxirError):
    """A function was called with arguments that do not match its signature.

    Example::

        main(np.zeros((3, 4), np.float64))          # argument-dtype: the signature says float32
        main(x, y)                                  # argument-count: it takes one array
        main(z=x)                                   # argument-name: its parameter is called x

    Fix: ``print(main.signature)`` shows what is expected; convert an array with ``x.astype(np.float32)``. On the
    command line ``relaxir show MODEL`` prints the names of inputs and dimensions.
    """

    CODES = _codes(
        argument="an argument cannot be used",
        argument_count="too many or too few arguments",
        argument_name="no parameter has this name, or one is given twice",
        argument_type="an argument is not an array or does not offer DLPack",
        argument_dtype="an argument has the wrong data type",
        argument_rank="an argument has the wrong number of axes",
        argument_extent="an axis has a size that the signature excludes",
    )


class SymError(RelaxirError, ValueError):
    """A dimension is badly named or written, or has no value.

    Example::

        rx.dim("batch size")                        # a name is an identifier
        n // 0

    Fix: dimensions are made of names, integers, ``+``, ``-``, ``*``, ``//``, ``%``, ``min`` and ``max``.
    """

    CODES = _codes(dimension="a dimension is no integer expression, or its name or range cannot be")


class ConflictError(SymError):
    """Relations between dimensions exclude each other: no size satisfies them all.

    Example::

        with bb.function("main", [x], where="n < 0"):    # no size is negative

    Fix: correct the relation, or the range of the dimension in ``rx.dim``.
    """

    CODES = _codes(dimension_conflict="no values of the dimensions satisfy the relations")


class InternalError(RelaxirError):
    """relaxir broke one of its own rules: a bug, whatever the input was.

    Please report it with the module that the message names. It is the only error without advice.
    """

    CODES = _codes(internal="a bug in relaxir")

    def _headline(self) -> str:
        return f"internal error: {self.message}"

    def _lines(self) -> Iterator[str]:
        yield from super()._lines()
        yield "   = note: this is a bug in relaxir, please report it"


ERRORS: Final[tuple[type[RelaxirError], ...]] = (
    ParseError,
    InferError,
    ShapeMismatchError,
    ShapeUnprovenError,
    VerifyError,
    PassError,
    ScheduleError,
    UnsupportedError,
    LoadError,
    TargetError,
    RuntimeShapeError,
    RuntimeIndexError,
    RuntimeFailure,
    ArgumentError,
    SymError,
    ConflictError,
    InternalError,
)
"""All error classes, in the order of the manual."""


def codes() -> tuple[str, ...]:
    """Return every error code, class by class."""
    return tuple(code for error in ERRORS for code in error.CODES)


def summary() -> str:
    """Return a line for each error code with its meaning, class by class."""
    width = max(map(len, codes()))
    return "\n".join(f"{code:{width}}  {text}" for error in ERRORS for code, text in error.CODES.items())


def explain(code: str) -> str:
    """Return the manual page of an error code, also as a block shows it: its meaning, then the text of its class.

    Raises ArgumentError for a code that does not exist.
    """
    plain = code.strip().lower().removeprefix("error").strip("[]").replace("_", "-")
    for error in ERRORS:
        if plain in error.CODES:
            return f"{plain}: {error.CODES[plain]} ({error.__name__})\n\n{inspect.getdoc(error)}\n"
    raise ArgumentError(
        f"there is no error code `{code}`",
        code="argument-name",
        help="`relaxir explain` without a code lists them",
    )


def reason(error: BaseException) -> str:
    """Return an error's message alone, to stand inside another message."""
    return error.message if isinstance(error, RelaxirError) else str(error)


LONGEST: Final = 8000
"""Characters of a line of a message; a damaged file may hold names of a megabyte."""


def _shortened(line: str) -> str:
    """A line without its middle where it is too long to be read."""
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} [...] {line[-LONGEST // 4 :]}"


def _hang(prefix: str, text: str) -> str:
    """Put the prefix before the first line and indent the others to match."""
    return prefix + text.replace("\n", "\n" + " " * len(prefix))
