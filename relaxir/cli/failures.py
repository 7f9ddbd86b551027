"""What a user sees when a command fails: one block on standard error and exit status 1, never a traceback.

A command line that is wrong whatever the files hold (an unknown option, a value of another form) is refused by click,
or by a callback of an option in the same way: it shows the usage, one line, and ends with 2.
"""

from __future__ import annotations

import traceback
from typing import Any

import click

from relaxir.support.errors import InternalError, LoadError, RelaxirError, RuntimeFailure


class Group(click.Group):
    """Shows every error as relaxir's own are meant to be read."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they are meant to be met."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error becomes a block, Ctrl-C one line."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click's own, and a reader of our output that has seen enough
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
        except Exception as error:  # whatever it is, it is shown as a block
            if ctx.params.get("traceback"):
                traceback.print_exc()
            click.echo(str(as_error(error)), err=True)
        raise click.exceptions.Exit(1)


def as_error(error: Exception) -> RelaxirError:
    """The error itself if it is one of ours, else what it means to a user."""
    if isinstance(error, RelaxirError):
        return error
    if isinstance(error, MemoryError):
        return RuntimeFailure(
            str(error) or "memory could not be allocated", code="runtime-allocation", help="give smaller sizes"
        )
    if isinstance(error, OSError):
        place = f"`{error.filename}`: " if error.filename else "standard output: "  # every file has a name
        return LoadError(
            f"{place}{error.strerror or error}",
            code="load-path",
            help="check the path, your rights to it, and the room left",
        )
    if isinstance(error, RecursionError):
        return InternalError("the program is nested too deeply", notes=["raise Python's recursion limit and try again"])
    return InternalError(f"{type(error).__name__}: {error}", notes=["`relaxir --traceback ...` shows where"])
