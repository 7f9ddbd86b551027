"""From block form to loop form: the entry point of scheduling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from relaxir.cost import Config, RuleChooser, TargetInfo, work_attrs
from relaxir.schedule.loops import Machine, seq
from relaxir.schedule.merge import merge_axes
from relaxir.schedule.program import Program, close_program, lift_allocs, open_program
from relaxir.schedule.reuse import reuse_results
from relaxir.schedule.rules import RULES
from relaxir.support.errors import InternalError
from relaxir.tir import PrimFunc, Stmt


def schedule(func: PrimFunc, target: TargetInfo, config: Config | None = None) -> PrimFunc:
    """Return the program in loop form for a machine.

    Parameters keep their order and bytes, but may get another shape (merged axes); temporaries that need memory become
    trailing workspace parameters. ``attrs`` records the configuration (``config``) and the cost of the maths
    (``flops``, ``bytes``).

    Args:
        func: a program in block form (code outside blocks is kept).
        target: the machine.
        config: choices; None takes ``attrs["config"]`` if it is there, else the rule of thumb's.

    """
    chosen = choose(func, target) if config is None else config
    machine = Machine(target, chosen)
    program = reuse_results(merge_axes(open_program(func)))
    body, rules = _apply(program, machine)
    done = close_program(program, body)
    attrs = MappingProxyType({**done.attrs, **work_attrs(func), "config": str(chosen), "rules": rules})
    return lift_allocs(replace(done, attrs=attrs))


def choose(func: PrimFunc, target: TargetInfo) -> Config:
    """Return the configuration recorded in the program's attributes, or the rule of thumb's."""
    recorded = func.attrs.get("config")
    return Config.parse(recorded) if isinstance(recorded, str) else RuleChooser().choose(func, target)


def _apply(program: Program, machine: Machine) -> tuple[Stmt, tuple[str, ...]]:
    rest: Sequence[Stmt] = program.stages
    done: list[Stmt] = []
    names: list[str] = []
    while rest:
        for rule in RULES:
            taken = rule.take(program, rest, machine)
            if taken is not None:
                done.append(taken[0])
                names.append(rule.name)
                rest = rest[taken[1] :]
                break
        else:
            raise InternalError("no schedule rule takes a stage")
    return seq(*done), tuple(names)
