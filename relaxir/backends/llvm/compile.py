"""Compiling LLVM text in worker processes, with an optional object cache.

Workers are started when first needed, kept between calls, and never forked from this process (``subprocess`` starts a
fresh interpreter), so they are safe whatever threads the caller has. A worker that dies (LLVM aborts on some invalid
text) costs an :class:`InternalCompilerError`, not the caller's process; the next request gets a new worker.
"""

import atexit
import hashlib
import json
import marshal
import os
import selectors
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Literal, Self

import llvmlite

from relaxir.backends.llvm.cache import ObjectCache
from relaxir.backends.llvm.errors import InternalCompilerError
from relaxir.backends.llvm.target import Target

Passes = Literal["none", "sroa"]
Output = Literal["object", "assembly"]
WORKER: Final = Path(__file__).with_name("worker.py")
"""The program that workers run; it says what a request and an answer are. Importing it would bring LLVM along."""

Arguments = dict[str, str | int]
"""What a worker is told beside the text: keyword arguments of its ``compile_text``."""
Progress = Callable[[int, int], None]
"""Called as ``progress(done, total)`` after each text."""


@dataclass(frozen=True)
class CompileOptions:
    """How one batch of texts is compiled."""

    passes: Passes = "none"
    """``none``: the text is final. ``sroa``: stack slots become registers first."""
    opt: int = 2
    """LLVM's code generation level, 0 to 3."""
    output: Output = "object"
    """``object`` code or ``assembly`` text."""

    def arguments(self, target: Target) -> Arguments:
        """Return what a worker is told beside the text."""
        return {
            "triple": target.triple,
            "cpu": target.cpu,
            "features": ",".join(target.features),
            "abi": target.abi,
            "opt": self.opt,
            "passes": self.passes,
            "output": self.output,
        }

    def identity(self, target: Target) -> bytes:
        """Return what tells this compilation of a text from others, for the cache."""
        return json.dumps(self.arguments(target), sort_keys=True).encode()


@dataclass(frozen=True)
class Unit:
    """An LLVM module that is written only if its object is in no cache."""

    identity: str
    """What tells it from others; equal identities must stand for equally good texts."""
    write: Callable[[], str]
    """Makes the text."""

    @staticmethod
    def of(text: "str | Unit") -> "Unit":
        """A text is its own identity."""
        return text if isinstance(text, Unit) else Unit(text, lambda: text)


Compiler = Callable[[Sequence[str | Unit], Target], list[bytes]]
"""Makes an object of each LLVM module, for a target."""


class _Worker:
    """One child process and the file its error output goes to."""

    def __init__(self) -> None:
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed in stop
        site = Path(llvmlite.__file__).resolve().parent.parent
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(WORKER.resolve()), str(site)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        if self.process.stdin is None or self.process.stdout is None:
            raise AssertionError("pipes were asked for")
        self.stdin: IO[bytes] = self.process.stdin
        self.stdout: IO[bytes] = self.process.stdout

    def send(self, text: str, arguments: Arguments) -> None:
        """Send one request; raises BrokenPipeError if the worker is dead."""
        marshal.dump((text, arguments), self.stdin)
        self.stdin.flush()

    def receive(self) -> bytes | str | None:
        """Return the code, the words of LLVM's error, or None if the worker died."""
        try:
            answer: bytes | str = marshal.load(self.stdout)
        except EOFError:
            return None
        return answer

    def last_words(self) -> str:
        """Return the end of a dead worker's error output."""
        code = self.process.wait()
        self.log.seek(0)
        text = self.log.read().decode(errors="replace").strip()
        return f"the compile worker ended with status {code}: {text[-2000:] or 'no message'}"

    def stop(self) -> None:
        """End the process and free its pipes.

        It is killed: forked children of ours may hold copies of the pipes, so that it would never see their end.
        """
        self.process.kill()
        for pipe in (self.stdin, self.stdout):
            with suppress(BrokenPipeError):
                pipe.close()
        self.process.wait()
        self.log.close()


@contextmanager
def _at_work() -> Iterator[selectors.BaseSelector]:
    """Yield where busy workers are waited for: by their ``stdout``, with the pair of the worker and its text's place.

    Workers still there when something fails are ended: their half-done answers must not meet the next request.
    """
    with selectors.DefaultSelector() as selector:
        try:
            yield selector
        except BaseException:
            for key in selector.get_map().values():
                worker: _Worker = key.data[0]
                worker.stop()
            raise


class Workers:
    """A pool of compile workers, started lazily and reused until :meth:`close`.

    ``jobs`` bounds the number of processes; ``crash_dir`` is where the text of a failed compilation is kept (None:
    nowhere). A pool may be used from several threads; calls take turns. After ``fork`` the child starts workers of
    its own.
    """

    def __init__(self, jobs: int = 2, crash_dir: Path | None = None) -> None:
        """Remember the limits; no process is started yet."""
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, not {jobs}")
        self.jobs = jobs
        self.crash_dir = crash_dir
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def __enter__(self) -> Self:
        """Return the pool itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the pool."""
        self.close()

    def close(self) -> None:
        """End all workers. The pool may be used again and starts new ones then."""
        if self._owner != os.getpid():
            self._idle = []
            return
        with self._lock:
            for worker in self._idle:
                worker.stop()
            self._idle = []

    def compile(
        self, texts: Sequence[str], target: Target, options: CompileOptions, progress: Progress | None = None
    ) -> list[bytes]:
        """Compile ``texts`` in parallel and return the results in the same order.

        Raises:
            InternalCompilerError: LLVM refused a text or the worker died of it.
        """
        if self._owner != os.getpid():  # forked: the parent's processes and lock are not ours
            self._idle, self._lock, self._owner = [], threading.Lock(), os.getpid()
        with self._lock:
            return self._compile(texts, options.arguments(target), progress)

    def _compile(self, texts: Sequence[str], arguments: Arguments, progress: Progress | None) -> list[bytes]:
        results: dict[int, bytes] = {}
        pending = sorted(range(len(texts)), key=lambda index: len(texts[index]))  # the longest first, from the end
        with _at_work() as selector:
            while len(results) < len(texts):
                while pending and len(selector.get_map()) < self.jobs:
                    index = pending.pop()
                    worker = self._submit(texts[index], arguments)
                    selector.register(worker.stdout, selectors.EVENT_READ, (worker, index))
                for key, _ in selector.select():
                    worker, index = key.data
                    results[index] = self._collect(worker, texts[index])
                    selector.unregister(worker.stdout)
                    self._idle.append(worker)
                    if progress is not None:
                        progress(len(results), len(texts))
        return [results[index] for index in range(len(texts))]

    def _submit(self, text: str, arguments: Arguments) -> _Worker:
        worker = self._idle.pop() if self._idle else _Worker()
        try:
            worker.send(text, arguments)
        except BrokenPipeError:  # it died while idle: once more with a fresh one
            worker.stop()
            worker = _Worker()
            worker.send(text, arguments)
        return worker

    def _collect(self, worker: _Worker, text: str) -> bytes:
        answer = worker.receive()
        if answer is None:
            raise InternalCompilerError(worker.last_words(), self._keep(text))
        if isinstance(answer, str):
            raise InternalCompilerError(f"LLVM refused generated code: {answer}", self._keep(text))
        return answer

    def _keep(self, text: str) -> Path | None:
        if self.crash_dir is None:
            return None
        self.crash_dir.mkdir(parents=True, exist_ok=True)
        path = self.crash_dir / f"relaxir-crash-{hashlib.sha256(text.encode()).hexdigest()[:16]}.ll"
        path.write_text(text)
        return path


@lru_cache(maxsize=8)
def shared_workers(jobs: int) -> Workers:
    """Return this process's pool of ``jobs`` workers, which ends with the process."""
    workers = Workers(jobs)
    atexit.register(workers.close)
    return workers


def compile_objects(
    texts: Sequence[str | Unit],
    target: Target,
    *,
    jobs: int = 2,
    cache: ObjectCache | None = None,
    progress: Progress | None = None,
    options: CompileOptions | None = None,
    workers: Workers | None = None,
) -> list[bytes]:
    """Compile LLVM modules to relocatable objects, in parallel and through the cache.

    Args:
        texts: LLVM modules; equal ones are compiled once.
        target: what to compile for.
        jobs: worker processes, where ``workers`` is not given.
        cache: where objects are kept between processes, or None.
        progress: called after each text.
        options: passes and code generation level (default: text is final, level 2).
        workers: a pool of the caller's (default: one shared by this process).

    Raises:
        InternalCompilerError: LLVM refused a text or a worker died of it.
    """
    chosen = CompileOptions() if options is None else options
    compilation = chosen.identity(target)
    found: dict[str, bytes] = {}
    units = [Unit.of(t) for t in texts]
    unique = {u.identity: u for u in units}
    if cache is not None:
        for identity in unique:
            hit = cache.get(cache.key(compilation, identity))
            if hit is not None:
                found[identity] = hit
    missing = [u for u in unique.values() if u.identity not in found]
    done = len(unique) - len(missing)
    if missing:
        pool = shared_workers(jobs) if workers is None else workers
        step = None if progress is None else (lambda count, _: progress(done + count, len(unique)))
        written = [u.write() for u in missing]
        for unit, code in zip(missing, pool.compile(written, target, chosen, step), strict=True):
            found[unit.identity] = code
            if cache is not None:
                cache.put(cache.key(compilation, unit.identity), code)
    return [found[u.identity] for u in units]
