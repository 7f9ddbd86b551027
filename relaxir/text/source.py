"""The text being read: its syntax tree, spans of nodes, errors that point into it, and arguments of calls."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from relaxir.support.errors import ParseError
from relaxir.support.spans import Span

LONGEST: Final = 1 << 28
"""Characters of text that are read at most; weights belong into the archive beside the text."""


class Source:
    """One text and its label for messages."""

    def __init__(self, text: str, file: str = "<string>") -> None:
        self.file = file
        self.text = text
        self.lines = text.split("\n")

    def tree(self) -> ast.Module:
        """The syntax tree of the whole text.

        Raises:
            ParseError: where it is not Python, or too large or nested too deeply.
        """
        if len(self.text) > LONGEST:
            raise ParseError(f"a text of {len(self.text)} characters is too long; the limit is {LONGEST}")
        try:
            return ast.parse(self.text)
        except SyntaxError as error:
            line, column = error.lineno or 0, error.offset or 0
            span = Span(self.file, line, column, error.end_offset or 0, self._line(line))
            raise ParseError(f"the text is not Python: {error.msg}", span=span) from None
        except (RecursionError, MemoryError):
            raise ParseError("the text is nested too deeply", help="bind parts to names of their own") from None
        except ValueError as error:  # null bytes, lone surrogates
            raise ParseError(f"the text is not Python: {error}") from None

    def _line(self, number: int) -> str:
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def span(self, node: ast.AST) -> Span:
        """Where a node stands; columns count characters."""
        line = getattr(node, "lineno", 0)
        text = self._line(line)
        start = _characters(text, getattr(node, "col_offset", 0)) + 1
        last = getattr(node, "end_lineno", line)
        end = _characters(text, getattr(node, "end_col_offset", 0)) + 1 if last == line else len(text) + 1
        return Span(self.file, line, start, end, text)

    def error(
        self,
        message: str,
        node: ast.AST,
        code: str = "parse-syntax",
        help: str = "",
        notes: Sequence[str] = (),
    ) -> ParseError:
        """A `ParseError` that points at a node."""
        return ParseError(message, code=code, span=self.span(node), help=help, notes=tuple(notes))

    def unknown(
        self, what: str, name: str, known: Iterable[str], node: ast.AST, code: str = "parse-undefined-name"
    ) -> ParseError:
        """An error for a name that does not exist, suggesting the nearest that does."""
        close = difflib.get_close_matches(name, sorted(known), n=1)
        return self.error(f"no {what} `{name}`", node, code, help=f"did you mean `{close[0]}`?" if close else "")

    # ---- literals --------------------------------------------------------------------------------------------------

    def inner(self, node: ast.Constant) -> ast.expr:
        """The expression inside a string literal; its nodes keep their place in the whole text."""
        text = node.value
        assert isinstance(text, str)
        try:
            tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self.error(f"cannot read `{text[:80]}`", node) from None
        written = (
            ast.get_source_segment(self._line(node.lineno), _on_first_line(node))
            if node.lineno == node.end_lineno
            else ""
        )
        exact = written is not None and written[1:-1] == text
        for part in ast.walk(tree):
            if isinstance(part, ast.expr):
                if exact:
                    part.col_offset += node.col_offset + 1
                    part.end_col_offset = (part.end_col_offset or 0) + node.col_offset + 1
                else:
                    part.col_offset, part.end_col_offset = node.col_offset, node.end_col_offset
                part.lineno, part.end_lineno = node.lineno, node.end_lineno
        return tree

    def string(self, node: ast.expr) -> str:
        """A string literal."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        raise self.error("expected a string", node)

    def integer(self, node: ast.expr) -> int:
        """An integer literal, possibly with a minus."""
        value = number(node)
        if type(value) is int:
            return value
        raise self.error("expected an integer", node)

    def boolean(self, node: ast.expr) -> bool:
        """True or False."""
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            return node.value
        raise self.error("expected True or False", node)

    def real(self, text: str, node: ast.AST) -> float:
        """``inf``, ``-inf``, ``nan``, a decimal or a hex float."""
        try:
            return float.fromhex(text) if "0x" in text else float(text)
        except (ValueError, OverflowError):
            raise self.error(f"`{text}` is not a number", node) from None

    def items(self, node: ast.expr) -> list[ast.expr]:
        """Elements of a tuple (or list) display."""
        if isinstance(node, ast.Tuple | ast.List):
            return node.elts
        raise self.error("expected a tuple", node)

    # ---- calls -----------------------------------------------------------------------------------------------------

    def arguments(
        self, call: ast.Call, required: Sequence[str], optional: Sequence[str] = (), rest: bool = False
    ) -> Mapping[str, ast.expr]:
        """Arguments of a call by name; positional ones fill ``required`` then ``optional`` in order.

        With ``rest`` further positional arguments are allowed (see `extra`), and none fills ``optional``.
        """
        names = tuple(required) if rest else (*required, *optional)
        if len(call.args) > len(names) and not rest:
            raise self.error(f"too many arguments: at most {len(names)}", call.args[len(names)])
        found = dict(zip(names, call.args, strict=False))
        for k in call.keywords:
            if k.arg is None:
                raise self.error("`**` is not allowed in IR text", k.value)
            if k.arg not in required and k.arg not in optional:
                raise self.unknown("argument", k.arg, (*required, *optional), k)
            if k.arg in found:
                raise self.error(f"argument `{k.arg}` is given twice", k)
            found[k.arg] = k.value
        for name in required:
            if name not in found:
                raise self.error(f"argument `{name}` is missing", call)
        for a in call.args:
            if isinstance(a, ast.Starred):
                raise self.error("`*` is not allowed in IR text", a)
        return found


def number(node: ast.expr) -> int | float | None:
    """Value of a number literal, possibly with a minus; None for anything else (bool included)."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = number(node.operand) if isinstance(node.operand, ast.Constant) else None
        return None if value is None else -value
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]  # the line above says which
    return None


def member(node: ast.AST, owner: str) -> str | None:
    """``name`` of ``owner.name`` or of a call of it; None for anything else."""
    target = node.func if isinstance(node, ast.Call) else node
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == owner:
        return target.attr
    return None


def _characters(line: str, offset: int) -> int:
    """Character position of a byte offset (syntax trees count UTF-8 bytes)."""
    return offset if line.isascii() else len(line.encode()[:offset].decode(errors="ignore"))


def _on_first_line(node: ast.Constant) -> ast.Constant:
    """The node as if its line were a text of its own."""
    moved = ast.Constant(node.value)
    moved.lineno = moved.end_lineno = 1
    moved.col_offset, moved.end_col_offset = node.col_offset, node.end_col_offset
    return moved
