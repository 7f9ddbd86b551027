"""Fixtures of the backend tests: one worker pool, the target of this machine, small libraries with the runtime inside."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from relaxir.backends.llvm.call_ir import HostFunction, Site
from relaxir.backends.llvm.compile import Workers, compile_objects
from relaxir.backends.llvm.library import Library, LoadedLibrary
from relaxir.backends.llvm.memory import HugeMemory
from relaxir.backends.llvm.target import Target
from tests.backends.library_types import BuildLibrary, LoadLibrary

INTERNALS = (
    "rx_parallel",
    "rx_ws_acquire",
    "rx_ws_release",
    "rx_frame_push",
    "rx_frame_pop",
    "rx_fail",
)


@pytest.fixture(scope="session")
def target() -> Target:
    if not sys.platform.startswith("linux"):
        pytest.skip("the runtime is for Linux")
    return Target.parse("native")


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    with Workers(2) as pool:
        yield pool


@pytest.fixture(scope="session")
def build(workers: Workers, target: Target) -> BuildLibrary:
    """Build a library from texts; ``extra`` exports come on top of the runtime's internals."""

    def make(
        texts: Sequence[str] = (),
        *,
        extra: Sequence[str] = (),
        functions: Sequence[HostFunction] = (),
        sites: Sequence[Site] = (),
        metadata_json: str = "{}",
        weights: HugeMemory | bytes | None = None,
        to: Target | None = None,
    ) -> Library:
        return Library.from_texts(
            texts,
            target if to is None else to,
            functions=functions,
            sites=sites,
            metadata_json=metadata_json,
            weights=weights,
            extra_exports=(*INTERNALS, *extra),
            compiler=partial(compile_objects, workers=workers),
        )

    return make


@pytest.fixture
def load(build: BuildLibrary) -> Iterator[LoadLibrary]:
    """Build and load; closed after the test."""
    loaded: list[LoadedLibrary] = []

    def make(*args: object, **kwargs: object) -> LoadedLibrary:
        loaded.append(build(*args, **kwargs).load())
        return loaded[-1]

    yield make
    for library in loaded:
        library.close()
