"""The interpreter of tensor programs: block form and loop form, all iterations at once wherever that is legal.

Block axes and PARALLEL and VECTOR loops become batch axes by their promise; SERIAL and UNROLL loops where
`relaxir.runtime.interp.analysis` shows their iterations independent. What remains runs as a Python loop whose body
still serves all lanes of the enclosing batch axes: a `For` with an extent that differs between lanes, a `While`, an
`If` or a `Switch` narrow the mask of active lanes. Temporaries allocated under batch axes get one copy for each lane.
Batch axes are cut into chunks so that no intermediate array exceeds `LIMIT` elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from relaxir.runtime.interp.analysis import contraction, independent, nest_depth, private_elements, variables
from relaxir.runtime.interp.exprs import Value
from relaxir.runtime.interp.lanes import Affine, varying
from relaxir.runtime.interp.memory import allocate
from relaxir.runtime.interp.stores import LIMIT, Storing
from relaxir.support.errors import ERRORS, InternalError
from relaxir.sym import DimLike, SymError
from relaxir.tir import (
    Alloc,
    Assert,
    Axis,
    AxisKind,
    Binary,
    Block,
    Expr,
    For,
    ForKind,
    If,
    Let,
    Prefetch,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Switch,
    Var,
    While,
)
from relaxir.tir.idle import without_idle_loops

Array = NDArray[Any]


class Machine(Storing):
    """Executes statements for all active lanes."""

    def __init__(self, func: PrimFunc, arrays: Sequence[Array], dims: Mapping[str, int]) -> None:
        """Prepare to run ``func`` on its parameters' arrays, in place."""
        super().__init__(nest_depth(func.body) + 1, dims, dict(zip(func.params, arrays, strict=False)))
        self._independent: dict[For, bool] = {}

    # ---- statements --------------------------------------------------------------------------------------------------

    def run(self, stmt: Stmt) -> None:
        """Execute one statement."""
        self.forget()
        match stmt:
            case Seq():
                for s in stmt.stmts:
                    self.run(s)
            case Store():
                self.store(stmt)
            case Block():
                self._block(stmt, stmt.axes, initialised=False)
            case For():
                self._for(stmt)
            case Let():
                self._let(stmt)
            case Alloc():
                shape = tuple(self.size(d) for d in stmt.buffer.shape)
                self.memories[stmt.buffer] = allocate(stmt.buffer.dtype, shape, self.lanes)
                self.run(stmt.body)
                del self.memories[stmt.buffer]
            case If():
                self._if(stmt)
            case While():
                self._while(stmt)
            case Switch():
                self._switch(stmt)
            case Assert():
                self._assert(stmt)
            case Prefetch():
                pass
            case _:
                self.other(stmt)

    def other(self, stmt: Stmt) -> None:
        """Execute a statement that kernels do not have."""
        raise InternalError(f"a kernel holds the statement {type(stmt).__name__}")

    def _let(self, stmt: Let) -> None:
        value = self.eval(stmt.value)
        # a loaded value may be a view of memory that the body overwrites
        self.values[stmt.var] = value if isinstance(value, Affine) else np.array(value)
        self.run(stmt.body)
        del self.values[stmt.var]

    def _block(self, block: Block, axes: tuple[Axis, ...], *, initialised: bool) -> None:
        if not initialised and (not axes or axes[0].kind is AxisKind.REDUCE):
            if block.init is not None:
                self.run(block.init)
            initialised = True
        if not axes:
            self.run(block.body)
            return
        if any(self.size(a.extent) <= 0 for a in axes if initialised or a.kind is AxisKind.SPATIAL):
            return
        rest = axes[1:]
        leaf: Stmt = block if not rest else Block(block.name, rest, block.body, block.init)
        self._batch(
            axes[0].var, self.size(axes[0].extent), leaf, lambda: self._block(block, rest, initialised=initialised)
        )

    def _for(self, loop: For) -> None:
        extent = self.values_of(loop.extent)
        if extent.size == 1 and int(extent.reshape(-1)[0]) <= 0:
            return
        if loop.kind not in (ForKind.PARALLEL, ForKind.VECTOR):
            if loop not in self._independent:
                self._independent[loop] = independent(loop, self._known_size)
            if not self._independent[loop]:
                self._serial(loop.var, extent, loop.body)
                return
        if extent.size == 1:
            self._batch(loop.var, int(extent.reshape(-1)[0]), loop.body, lambda: self.run(loop.body))
        else:
            self._ragged(loop, np.array(extent))

    def _known_size(self, dim: DimLike) -> int | None:
        try:
            return self.size(dim)
        except SymError:
            return None

    def _serial(self, var: Var, extent: Array, body: Stmt) -> None:
        """Iterations one after the other, each for all lanes."""
        limit = np.array(extent)
        for i in range(self._most(limit)):
            self.values[var] = Affine(i)
            self._under(np.asarray(i < limit), lambda: self.run(body))
        self.values.pop(var, None)

    def _ragged(self, loop: For, extent: Array) -> None:
        """A batch axis whose extent differs between lanes: as long as the longest, masked."""

        def body() -> None:
            inside = self.array(self.values[loop.var]) < extent
            self._under(np.asarray(inside), lambda: self.run(loop.body))

        self._batch(loop.var, self._most(extent), loop.body, body)

    def _most(self, extent: Array) -> int:
        """The largest value in an active lane, at least 0."""
        if self.mask is not None:
            extent = np.where(self.mask, extent, 0)
        return max(0, int(extent.max(initial=0)))

    # ---- batch axes --------------------------------------------------------------------------------------------------

    def _batch(self, var: Var, extent: int, leaf: Stmt, body: Callable[[], None]) -> None:
        """Run ``body`` with ``var`` as a batch axis, in chunks that keep intermediate arrays below `LIMIT`."""
        if extent <= 0:
            return
        if extent == 1:
            self.values[var] = Affine(0)
            body()
            del self.values[var]
            return
        step = max(1, LIMIT // max(1, self._cost(var, leaf)))
        for low in range(0, extent, step):
            size = min(step, extent - low)
            if size == 1:
                self.values[var] = Affine(low)
                body()
                continue
            axis = self.lanes.push(size)
            self.values[var] = Affine(low, ((axis, 1),))
            try:
                body()
            finally:
                self.lanes.pop()
        del self.values[var]

    def _cost(self, var: Var, leaf: Stmt) -> int:
        """Elements of the largest array that one iteration of a new batch axis adds."""
        product = contraction(leaf)
        if product is None or not isinstance(product.value, Binary):
            return self.lanes.count * private_elements(leaf, self._known_size)
        # only the sides that use the axis grow with it
        sides = ((product.value.a,), (product.value.b,), product.indices)
        return max((self._volume(side) for side in sides if var in variables(*side)), default=1)

    def _volume(self, exprs: Sequence[Expr]) -> int:
        axes: set[int] = set()
        for v in variables(*exprs):
            value = self.values.get(v)
            if value is not None:
                axes.update(_axes(value))
        return math.prod(self.lanes.sizes[axis] for axis in axes)

    # ---- control -----------------------------------------------------------------------------------------------------

    def _under(self, cond: Array, body: Callable[[], None]) -> bool:
        """Run ``body`` in the lanes where ``cond`` holds; returns whether there were any."""
        outer = self.mask
        if cond.size == 1:
            if not bool(cond.reshape(-1)[0]):
                return False
            body()
            return True
        chosen = cond if outer is None else cond & outer
        if not chosen.any():
            return False
        everywhere = cond.all() if outer is None else (cond | ~outer).all()
        try:
            self.mask = outer if everywhere else chosen
            body()
        finally:
            self.mask = outer
        return True

    def _if(self, stmt: If) -> None:
        cond = np.array(self.values_of(stmt.cond))
        self._under(cond, lambda: self.run(stmt.then))
        if stmt.other is not None:
            other = stmt.other
            self._under(~cond, lambda: self.run(other))

    def _while(self, stmt: While) -> None:
        outer = self.mask
        try:
            while True:
                self.forget()
                cond = np.array(self.values_of(stmt.cond))
                # a lane that has left the loop stays out, whatever its condition says afterwards
                if not self._narrow(cond):
                    return
                self.run(stmt.body)
        finally:
            self.mask = outer

    def _narrow(self, cond: Array) -> bool:
        if cond.size == 1:
            return bool(cond.reshape(-1)[0])
        self.mask = cond if self.mask is None else cond & self.mask
        return bool(self.mask.any())

    def _switch(self, stmt: Switch) -> None:
        value = np.array(self.values_of(stmt.value))
        for case in range(stmt.low, stmt.high):
            self._under(np.asarray(value == case), partial(self._case, stmt, case))

    def _case(self, stmt: Switch, case: int) -> None:
        outer, known = self.dims.get(stmt.dim.name), self._independent
        self.set_dim(stmt.dim.name, case)
        self._independent = {}  # what was shown for another case need not hold
        try:
            self.run(stmt.body)
        finally:
            self.set_dim(stmt.dim.name, outer)
            self._independent = known

    def _assert(self, stmt: Assert) -> None:
        held = np.asarray(self.values_of(stmt.cond))
        failing = ~held if self.mask is None else ~held & self.mask
        if not failing.any():
            return
        arrays = [np.asarray(self.values_of(arg)) for arg in stmt.args]
        failing, *arrays = np.broadcast_arrays(failing, *arrays)
        raise_failure(stmt, [int(a[failing].flat[0]) for a in arrays])


def _axes(value: Value) -> tuple[int, ...]:
    return tuple(axis for axis, _ in value.terms) if isinstance(value, Affine) else varying(value)


def raise_failure(check: Any, values: Sequence[int]) -> NoReturn:
    """Raise the error of a failed `Assert` or `Check`, by its code, with the values in its message."""
    message = check.message.format(*values)
    for error in ERRORS:
        if check.code in error.CODES:
            raise error(message, code=check.code, span=check.span)
    raise InternalError(f"no error has the code `{check.code}`: {message}")


def run_prim_func(func: PrimFunc, arrays: Sequence[Array], dims: Mapping[str, int]) -> None:
    """Run a tensor program (a kernel) on NumPy arrays, in place.

    Args:
        func: the program, in block form or loop form.
        arrays: one C-contiguous array for each of ``func.params``: inputs, results, workspaces; bfloat16 as uint16.
        dims: a value for each of ``func.dims``, by name.

    Raises:
        RelaxirError: of the class of the first `Assert` that fails.
        InternalError: when the program reads or writes outside a buffer, or arrays do not fit the parameters.
    """
    if len(arrays) != len(func.params):
        raise InternalError(f"a program of {len(func.params)} parameters was given {len(arrays)} arrays")
    missing = [d.name for d in func.dims if d.name not in dims]
    if missing:
        raise InternalError(f"no value for dimension `{missing[0]}` of a tensor program")
    with np.errstate(all="ignore"):
        Machine(func, arrays, dims).run(without_idle_loops(func))
