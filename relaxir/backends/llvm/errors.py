"""Errors of the LLVM backend that are not the user's doing."""

from pathlib import Path


class InternalCompilerError(RuntimeError):
    """The compiler produced something its own back end refuses: a bug in relaxir, never in the user's program.

    ``crash_file`` names the file with the offending LLVM text, where the caller asked for one to be kept.
    """

    def __init__(self, message: str, crash_file: Path | None = None) -> None:
        """Keep ``message``, and name ``crash_file`` in the text where there is one."""
        super().__init__(message if crash_file is None else f"{message}\nnote: the LLVM text is in {crash_file}")
        self.crash_file = crash_file


class LinkError(InternalCompilerError):
    """Relocatable objects that cannot be joined: an undefined or doubly defined symbol, or an unknown relocation."""
