"""Checks of calls of tensor programs, from graph functions and from host programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxir.ir.expr import CallTIR
from relaxir.ir.module import IRModule
from relaxir.ir.types import TensorType, TupleType, Type, describe
from relaxir.support.errors import VerifyError
from relaxir.sym import DimLike, Facts, Proof, product, substitute
from relaxir.tir import Buffer, CallHost, CallKernel, PrimFunc, Together
from relaxir.tir.aliasing import Memories
from relaxir.tir.verify import violation
from relaxir.tir.visit import walk

Complaint = tuple[str, str]
"""A message and the code of its error."""


def program_call_errors(module: IRModule, call: CallTIR, facts: Facts) -> Iterator[Complaint]:
    """What is wrong with a `CallTIR`."""
    func = module.functions.get(call.callee)
    if not isinstance(func, PrimFunc) or func.is_host:
        yield f"no tensor program `{call.callee}`", "verify-name"
        return
    results = call.type.fields if isinstance(call.type, TupleType) else (call.type,)
    if len(call.args) != len(func.inputs) or len(results) != len(func.results):
        wanted = f"{len(func.inputs)} inputs and {len(func.results)} outputs"
        yield f"`{call.callee}` has {wanted}, got {len(call.args)} and {len(results)}", "verify-type"
        return
    if len(call.dims) != len(func.dims):
        yield f"`{call.callee}` takes {len(func.dims)} dims, got {len(call.dims)}", "verify-type"
        return
    types = [a.type for a in call.args] + list(results)
    yield from _match(call.callee, (*func.inputs, *func.results), types, func, call.dims, facts)


def verify_host_calls(module: IRModule, name: str, func: PrimFunc, page: str) -> Iterator[VerifyError]:
    """What is wrong with the calls of a host program."""
    memories = Memories(func)
    for s in walk(func.body):
        if isinstance(s, CallKernel):
            complaints = _kernel_call(module, s)
        elif isinstance(s, Together):
            for message in _disturbances(module, s, memories):
                yield violation(page, 14, f"{name}: {message}", "verify", span=s.calls[0].span)
            continue
        elif isinstance(s, CallHost):
            complaints = _host_call(module, s)
        else:
            continue
        for message, code in complaints:
            yield violation(page, 1 if code == "verify-name" else 8, f"{name}: {message}", code, span=s.span)


def _kernel_call(module: IRModule, s: CallKernel) -> Iterator[Complaint]:
    callee = module.functions.get(s.callee)
    if not isinstance(callee, PrimFunc) or callee.is_host:
        yield f"no kernel `{s.callee}`", "verify-name"
    elif len(s.args) != len(callee.params) or len(s.dims) != len(callee.dims):
        wanted = f"{len(callee.params)} buffers and {len(callee.dims)} dims"
        yield f"`{s.callee}` takes {wanted}, got {len(s.args)} and {len(s.dims)}", "verify-type"
    else:
        types = [TensorType(b.shape, b.dtype) for b in s.args]
        yield from _match(s.callee, callee.params, types, callee, s.dims, Facts())


def _disturbances(module: IRModule, s: Together, memories: Memories) -> Iterator[str]:
    kernels = [(c, module.functions.get(c.callee)) for c in s.calls]
    accesses = [(c, memories.of_call(c, k)) for c, k in kernels if isinstance(k, PrimFunc)]
    for number, (call, access) in enumerate(accesses):
        for other, before in accesses[:number]:
            if access.disturbs(before):
                yield f"`{other.callee}` and `{call.callee}` run together, but one writes what the other uses"


def _host_call(module: IRModule, s: CallHost) -> Iterator[Complaint]:
    callee = module.functions.get(s.callee)
    if not isinstance(callee, PrimFunc) or not callee.is_host:
        yield f"no host program `{s.callee}`", "verify-name"
    elif len(s.args) != len(callee.inputs) or len(s.outputs) != len(callee.results):
        wanted = f"{len(callee.inputs)} inputs and {len(callee.results)} outputs"
        yield f"`{s.callee}` takes {wanted}, got {len(s.args)} and {len(s.outputs)}", "verify-type"


def _match(
    name: str, formal: Sequence[Buffer], actual: Sequence[Type], func: PrimFunc, dims: Sequence[DimLike], facts: Facts
) -> Iterator[Complaint]:
    """Dtypes agree and no extent is refuted; another rank is a view of as many elements, since buffers are compact."""
    values = dict(zip(func.dims, dims, strict=True))
    for b, t in zip(formal, actual, strict=True):
        if not isinstance(t, TensorType) or t.dtype != b.dtype:
            yield (
                f"`{b.name}` of `{name}` is {describe(TensorType(b.shape, b.dtype))}, got {describe(t)}",
                "verify-type",
            )
            continue
        wanted = TensorType(tuple(substitute(d, values) for d in b.shape), b.dtype)
        if t.rank != wanted.rank:
            fits = facts.prove_equal(product(wanted.shape), product(t.shape)) is Proof.PROVED
        else:
            fits = all(facts.prove_equal(w, a) is not Proof.REFUTED for w, a in zip(wanted.shape, t.shape, strict=True))
        if not fits:
            yield f"`{b.name}` of `{name}` is {describe(wanted)} here, got {describe(t)}", "verify-type"
