"""Targets are plain, deterministic data."""

import pytest

from relaxir.backends.llvm.cpuid import X86_BITS
from relaxir.backends.llvm.target import Target, native_x86


@pytest.mark.parametrize(
    ("name", "vector_bytes", "registers", "fma", "masked"),
    [
        ("x86-64", 16, 16, False, False),
        ("x86-64-v2", 16, 16, False, False),
        ("x86-64-v3", 32, 16, True, False),
        ("x86-64-v4", 64, 32, True, True),
        ("aarch64", 16, 32, True, False),
    ],
)
def test_named_levels(name: str, vector_bytes: int, registers: int, fma: bool, masked: bool) -> None:
    target = Target.parse(name)
    assert (target.vector_bytes, target.num_vector_registers) == (vector_bytes, registers)
    assert (target.has_fma, target.has_masked) == (fma, masked)
    assert target.vector_lanes(4) == vector_bytes // 4


def test_levels_contain_each_other() -> None:
    v2, v3, v4 = (set(Target.parse(f"x86-64-v{level}").required) for level in (2, 3, 4))
    assert v2 < v3 < v4
    assert [bit.feature for bit in Target.parse("x86-64-v4").required_cpu_bits] == list(
        Target.parse("x86-64-v4").required
    )


def test_triples_use_the_baseline_of_their_architecture() -> None:
    target = Target.parse("aarch64-linux-musl")
    assert (target.triple, target.arch, target.page_size) == ("aarch64-linux-musl", "aarch64", 65536)
    assert Target.parse("x86_64-linux-gnu").required == ()


@pytest.mark.parametrize("name", ["", "x86-64-v5", "sparc-unknown-linux", "avx2", "x86_64"])
def test_unknown_names_list_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=r"unknown target .*native, x86-64, x86-64-v2"):
        Target.parse(name)


def test_native_is_stable() -> None:
    assert Target.parse("native") == Target.parse("native")
    assert Target.parse("native").name == "native"


def test_native_takes_away_what_the_machine_hides() -> None:
    shown = {"sse3": True, "avx": True, "avx2": True, "fma": True, "avx512f": True, "amx-tile": True, "sha": True}
    target = native_x86("x86_64-unknown-linux-gnu", "znver4", shown)
    assert target.vector_bytes == 32, "AVX-512 needs F, DQ, BW and VL"
    assert "+avx2" in target.features
    assert "-avx512vl" in target.features
    assert "+amx-tile" not in target.features
    assert set(target.required) <= set(X86_BITS)
    assert native_x86("t", "c", dict(reversed(shown.items()))).features == native_x86("t", "c", shown).features
