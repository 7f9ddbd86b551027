"""Records and numbers of 64-bit little-endian ELF files, named as in the System V gABI and the Linux Standard Base.

The linker reads, lays out and checks files in modules of its own; what the format fixes stands here, once.
"""

import struct
from typing import Final

EHDR: Final = struct.Struct("<16sHHIQQQIHHHHHH")
"""The file's header."""
PHDR: Final = struct.Struct("<IIQQQQQQ")
"""A segment."""
SHDR: Final = struct.Struct("<IIQQQQIIQQ")
"""A row of the section table."""
SYM: Final = struct.Struct("<IBBHQQ")
"""A symbol."""
RELA: Final = struct.Struct("<QQq")
"""A relocation with an addend."""
DYN: Final = struct.Struct("<QQ")
"""An entry of the dynamic section."""

ET_REL, ET_DYN = 1, 3
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH, SHT_DYNAMIC, SHT_NOBITS, SHT_REL, SHT_DYNSYM = (
    1, 2, 3, 4, 5, 6, 8, 9, 11,
)  # fmt: skip
SHT_INIT_ARRAY, SHT_FINI_ARRAY, SHT_X86_64_UNWIND = 14, 15, 0x70000001
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS = 1, 2, 4, 0x400
SHN_ABS, SHN_COMMON = 0xFFF1, 0xFFF2
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STT_OBJECT, STT_FUNC = 1, 2
PT_LOAD, PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 0x6474E551, 0x6474E552
PF_R, PF_RX, PF_RW = 4, 5, 6
DT_NULL, DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELAENT, DT_STRSZ, DT_SYMENT, DT_SONAME = (
    0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 14,
)  # fmt: skip
DT_INIT_ARRAY, DT_FINI_ARRAY, DT_INIT_ARRAYSZ, DT_FINI_ARRAYSZ, DT_FLAGS, DT_FLAGS_1 = 25, 26, 27, 28, 30, 0x6FFFFFFB
DF_BIND_NOW, DF_1_NOW = 8, 1


def align_up(value: int, alignment: int) -> int:
    """Round ``value`` up to a multiple of ``alignment``."""
    return -(-value // alignment) * alignment
