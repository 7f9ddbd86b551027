"""Work in a child process, so that a crash in compiled code is the failure of one item and not the end of the tests."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import struct
import traceback
from collections.abc import Callable, Sequence

LENGTH = struct.Struct("<I")
BRIEF = 600
"""Characters of a failure's text that are kept: there may be hundreds of them."""


def failures(
    items: Sequence[str], work: Callable[[int], None], seconds: int = 120, processor: float = 0
) -> dict[str, str]:
    """Run ``work(i)`` for every item in forked children; what failed, by item, with the reason.

    A child that dies of a signal fails the item it was at, and so does one that takes too long: ``seconds`` for an
    item, or ``processor`` seconds of its own work, which do not depend on what else the machine does (0: no limit).
    Another child goes on with the rest.
    """
    found: dict[str, str] = {}
    start = 0
    while start < len(items):
        done, reports, death = _child(range(start, len(items)), work, seconds, processor)
        found.update({items[i]: text for i, text in reports.items()})
        start += done
        if death:
            found[items[start]] = death
            start += 1
    return found


def _child(
    indices: range, work: Callable[[int], None], seconds: int, processor: float
) -> tuple[int, dict[int, str], str]:
    """How many items one child finished, what failed among them, and how the child died if it did."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        faulthandler.disable()  # a crash is reported as a failure, not as a trace on the terminal
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            for i in indices:
                signal.alarm(seconds)
                signal.setitimer(signal.ITIMER_PROF, processor)
                pipe.write(_report(work, i))
        os._exit(0)
    os.close(writer)
    reports: dict[int, str] = {}
    done = 0
    with os.fdopen(reader, "rb") as pipe:
        while len(head := pipe.read(LENGTH.size)) == LENGTH.size:
            text = pickle.loads(pipe.read(LENGTH.unpack(head)[0]))
            if text:
                reports[indices[done]] = text
            done += 1
    _, status = os.waitpid(child, 0)
    if done == len(indices):
        return done, reports, ""
    name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit status {status}"
    return done, reports, f"the process died: {name}"


def _report(work: Callable[[int], None], i: int) -> bytes:
    """What the parent reads of one item: nothing, or the text of its failure."""
    text = ""
    try:
        work(i)
    except BaseException as error:  # everything must reach the parent
        lines = traceback.format_exception_only(error)
        text = "".join(lines).strip()[:BRIEF] or type(error).__name__
    data = pickle.dumps(text)
    return LENGTH.pack(len(data)) + data
