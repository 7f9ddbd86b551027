"""Records of the generated library's runtime, as byte offsets (64-bit pointers)."""

from types import MappingProxyType
from typing import Final

CONTEXT: Final = MappingProxyType(
    {
        "CTX_WEIGHTS": 0,  # ptr, first so that kernels load it from the context itself
        "CTX_ALLOC": 8,  # ptr: the caller's allocator or null
        "CTX_FREE": 16,
        "CTX_USER": 24,
        "CTX_LOCK": 32,  # i32: guards the pool of result blocks
        "CTX_WS_LOCK": 36,  # i32: guards the list of workspaces
        "CTX_WS_LIST": 40,  # ptr
        "CTX_CLOCK": 48,  # i64: allocations so far
        "CTX_POOLED": 56,  # i64: bytes in the pool
        "CTX_LIVE": 64,  # i64: result blocks in the caller's hands
        "CTX_WS_COUNT": 72,  # i64
        "CTX_BUCKETS": 128,  # 192 x ptr
    }
)
CONTEXT_BYTES: Final = 128 + 192 * 8
TEXT_BYTES: Final = 1024

BLOCK: Final = MappingProxyType(
    {
        "B_SIZE": -64,  # i64: usable bytes
        "B_BUCKET": -56,  # i64
        "B_BASE": -48,  # ptr: what the system gave
        "B_MAPPED": -40,  # i64: length of the mapping, 0 for aligned_alloc, -1 for a part of a slab
        "B_NEXT": -32,  # ptr
        "B_STAMP": -24,  # i64: the context's clock at its return
        "B_OWNER": -16,  # ptr: the context, of a block that a Python array has
    }
)
"""The header in front of a block, relative to the block."""

SLAB: Final = MappingProxyType({"S_COUNT": 0, "S_AREA": 8, "S_LENGTH": 16})
"""The start of a slab: blocks that are left of it, and what the system gave."""

WORKSPACE: Final = MappingProxyType(
    {
        "WS_CODE": 0,  # i32: the first error, 0 none
        "WS_SITE": 4,  # i32: index into the table of sites, negative none
        "WS_V0": 8,  # 4 x i64
        "WS_V1": 16,
        "WS_V2": 24,
        "WS_V3": 32,
        "WS_NEXT": 40,  # ptr
        "WS_CUR": 48,  # ptr: chunk in use or null
        "WS_FIRST": 56,  # ptr
        "WS_LIVE": 64,  # i64: bytes of frames now
        "WS_PEAK": 72,  # i64: most of it in this call
        "WS_CALM": 80,  # i64: calls in a row that needed far less than is kept
        "WS_CAPACITY": 88,  # i64: bytes of all chunks
        "WS_CTX": 96,  # ptr
        "WS_DEPTH": 104,  # i64: calls of host programs by host programs that have not returned
        "WS_STACK": 112,  # ptr: where the native stack stood at the outermost of them
        "WS_PLACE": 120,  # i32: 1 + index of the site that says which node's kernel failed, 0 none
    }
)
WORKSPACE_BYTES: Final = 128

CHUNK: Final = MappingProxyType({"C_PREV": 0, "C_NEXT": 8, "C_SIZE": 16, "C_USED": 24})
CHUNK_HEAD: Final = 4096

FUNCTION: Final = MappingProxyType({"F_INPUTS": 0, "F_OUTPUTS": 8, "F_TEXT": 16, "F_HOST": 24, "F_QUERY": 32})
"""A row of the table of functions."""

OPTIONS: Final = MappingProxyType({"O_SIZE": 0, "O_WEIGHTS": 8, "O_ALLOC": 16, "O_FREE": 24, "O_USER": 32})
"""``rx_options`` of the C header; ``O_SIZE`` is its size, so that it may grow."""
OPTIONS_BYTES: Final = 40

DLTENSOR: Final = MappingProxyType(
    {
        "DL_DATA": 0,  # ptr
        "DL_DEVICE": 8,  # i32 type, i32 number
        "DL_NDIM": 16,  # i32
        "DL_DTYPE": 20,  # u8 code, u8 bits, u16 lanes
        "DL_SHAPE": 24,  # ptr to i64
        "DL_STRIDES": 32,  # ptr to i64 or null
        "DL_OFFSET": 40,  # u64 bytes
    }
)
"""``DLTensor`` of dlpack.h."""
DLTENSOR_BYTES: Final = 48

NUMBERS: Final = MappingProxyType(
    {
        "BUCKETS": 192,
        "CTX_BYTES": CONTEXT_BYTES,
        "TEXT_BYTES": TEXT_BYTES,
        "WS_BYTES": WORKSPACE_BYTES,
        "C_HEAD": CHUNK_HEAD,
        "O_BYTES": OPTIONS_BYTES,
        "KEEP": 256,  # allocations after which an unused block is given back
        "SLABBED": 128 << 10,  # result blocks from here on are cut from slabs
        "WIDE": 512 << 10,  # blocks from here on are cut from wide slabs
        "SLAB": 2 << 20,
        "WIDE_SLAB": 8 << 20,
        "PAGED": 4 << 10,  # blocks from here on begin with a page
        "HUGE": 4 << 20,  # blocks from here on are mapped, with huge pages advised
        "HUGE_PAGE": 2 << 20,
        "LIMIT": 1 << 46,
        "CHUNK_MIN": 61440,  # 64 KiB with its header
        "CHUNK_MAX": 16 << 20,  # a new chunk is at most this much larger than asked for
        "DEPTH": 1000,  # most nested calls of host programs
        "STACK": 4 << 20,  # most native stack that they may use: half of what a thread has by default
        "CALM": 16,  # quiet calls before a large frame stack is given back
    }
)

FIELDS: Final = MappingProxyType({**CONTEXT, **BLOCK, **SLAB, **WORKSPACE, **CHUNK, **OPTIONS, **FUNCTION, **NUMBERS})
"""Everything the runtime's text refers to by name."""
