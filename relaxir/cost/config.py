"""The choices of a schedule as one value that prints, parses and compares."""

from __future__ import annotations

from dataclasses import dataclass, fields

from relaxir.support.errors import ScheduleError


@dataclass(frozen=True, slots=True)
class Config:
    """What a schedule rule may choose; every value is legal for every program, only the speed differs.

    >>> print(Config(mr=6, nr=16))
    mr=6 nr=16 panels=4 unroll=4 block=96 ahead=0 parallel=auto
    >>> Config.parse("mr=4 nr=8").mr
    4

    Attributes:
        mr: rows of a register tile of a contraction.
        nr: columns of a register tile, a multiple of the vector width.
        panels: packed panels that a one-row product reads side by side.
        unroll: copies of the body in the loop over the reduced axis.
        block: rows between two passes over the weights (what stays in the second-level cache).
        ahead: bytes between asking for a line of packed weights and using it, in a one-row product; 0 leaves it to the
            processor.
        parallel: ``auto`` (enough work: all threads) or ``none``.

    """

    mr: int = 6
    nr: int = 16
    panels: int = 4
    unroll: int = 4
    block: int = 96
    ahead: int = 0
    parallel: str = "auto"

    def __str__(self) -> str:
        return " ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))

    @staticmethod
    def parse(text: str) -> Config:
        """Read what `str` writes; names left out keep their default. Raises ScheduleError for anything unknown."""
        values: dict[str, int | str] = {}
        for item in text.split():
            name, _, value = item.partition("=")
            known = {f.name for f in fields(Config)}
            if name not in known or not value:
                raise ScheduleError(
                    f"the configuration has no choice `{item}`",
                    code="schedule-config",
                    help=f"use {', '.join(sorted(known))}",
                )
            if name == "parallel":
                values[name] = value
            elif value.isdecimal():
                values[name] = int(value)
            else:
                raise ScheduleError(
                    f"`{name}` of a configuration is a whole number, got `{value}`", code="schedule-config"
                )
        return Config(**values).checked()  # type: ignore[arg-type]  # names and kinds were checked above

    def checked(self) -> Config:
        """Return the same value if every choice is in range, else raise ScheduleError."""
        for name in ("mr", "nr", "panels", "unroll", "block"):
            if getattr(self, name) < 1:
                raise ScheduleError(f"`{name}` of a configuration must be at least 1", code="schedule-config")
        if self.parallel not in ("auto", "none"):
            raise ScheduleError(f"`parallel` is `auto` or `none`, got `{self.parallel}`", code="schedule-config")
        return self
