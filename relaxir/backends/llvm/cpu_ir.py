"""The processor check of a generated library, as LLVM IR.

``rx_check_cpu() -> i32`` gives 0, or one more than the index of the first feature that is missing. It needs the
``cpuid`` instruction and so inline assembly, which LLVM only accepts for the machine it runs on: a library
cross-compiled *to* x86-64 from another architecture checks nothing. Other architectures are used at their
baseline and check nothing.
"""

from typing import Final

from relaxir.backends.llvm.target import Target

_CPUID: Final = 'call { i32, i32, i32, i32 } asm sideeffect "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}"'
_REGISTERS: Final = "abcd"
_PASS: Final = "define i32 @rx_check_cpu() nounwind {\n  ret i32 0\n}\n"
_OSXSAVE: Final = 27


def checks_cpu(target: Target, host_arch: str) -> bool:
    """Return whether code for ``target`` generated on ``host_arch`` can check the processor."""
    return target.arch == "x86_64" and host_arch == "x86_64" and bool(target.required)


def cpu_text(target: Target, host_arch: str) -> str:
    """Return the definition of ``rx_check_cpu``."""
    if not checks_cpu(target, host_arch):
        return _PASS
    bits = target.required_cpu_bits
    lines = [
        "define i32 @rx_check_cpu() nounwind {",
        "entry:",
        f"  %basic = {_CPUID}(i32 0, i32 0)",
        "  %basic.max = extractvalue { i32, i32, i32, i32 } %basic, 0",
        f"  %extended = {_CPUID}(i32 -2147483648, i32 0)",
        "  %extended.max = extractvalue { i32, i32, i32, i32 } %extended, 0",
        f"  %features = {_CPUID}(i32 1, i32 0)",
        "  %features.c = extractvalue { i32, i32, i32, i32 } %features, 2",
        f"  %osxsave.bit = and i32 %features.c, {1 << _OSXSAVE}",
        "  %osxsave = icmp ne i32 %osxsave.bit, 0",
        "  br i1 %osxsave, label %enabled, label %check",
        "enabled:",
        '  %xgetbv = call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)',
        "  %xcr0.low = extractvalue { i32, i32 } %xgetbv, 0",
        "  br label %check",
        "check:",
        "  %xcr0 = phi i32 [ 0, %entry ], [ %xcr0.low, %enabled ]",
    ]
    for leaf, subleaf in sorted({(bit.leaf, bit.subleaf) for bit in bits}):
        name, maximum = f"%leaf.{leaf:x}.{subleaf}", "%extended.max" if leaf >= 1 << 31 else "%basic.max"
        lines.append(f"  {name} = {_CPUID}(i32 {_as_i32(leaf)}, i32 {subleaf})")
        lines.append(f"  {name}.known = icmp uge i32 {maximum}, {_as_i32(leaf)}")
        lines += [f"  {name}.{r} = extractvalue {{ i32, i32, i32, i32 }} {name}, {k}" for k, r in enumerate(_REGISTERS)]
    result = "0"
    for index, bit in reversed(list(enumerate(bits))):
        leaf_name = f"%leaf.{bit.leaf:x}.{bit.subleaf}"
        lines += [
            f"  %bit.{index} = and i32 {leaf_name}.{bit.register}, {_as_i32(1 << bit.bit)}",
            f"  %has.{index} = icmp ne i32 %bit.{index}, 0",
            f"  %state.{index} = and i32 %xcr0, {bit.state}",
            f"  %on.{index} = icmp eq i32 %state.{index}, {bit.state}",
            f"  %both.{index} = and i1 %has.{index}, %on.{index}",
            f"  %fine.{index} = and i1 %both.{index}, {leaf_name}.known",
            f"  %first.{index} = select i1 %fine.{index}, i32 {result}, i32 {index + 1}",
        ]
        result = f"%first.{index}"
    lines += [f"  ret i32 {result}", "}"]
    return "\n".join(lines) + "\n"


def _as_i32(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value
