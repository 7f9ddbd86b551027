"""The C header of a generated library."""

import re
from collections.abc import Sequence
from typing import Final

from relaxir.runtime.signature import Signature, TensorSpec
from relaxir.sym import to_text


def header_text(name: str, functions: Sequence[Signature]) -> str:
    """Return the header of the library called ``name``.

    Function numbers become ``<NAME>_<FUNCTION>`` enumerators; a name that is no C identifier has its other characters
    replaced by ``_``.
    """
    prefix = _identifier(name).upper()
    lines = []
    for index, function in enumerate(functions):
        lines.append(f"  /* {_comment(function.name)}")
        for kind, tensors in (("in ", function.inputs), ("out", function.outputs)):
            lines += [f"   *   {kind} {position}  {_tensor(tensor)}" for position, tensor in enumerate(tensors)]
        lines += [f"   *   where  {_comment(condition)}" for condition in function.conditions]
        lines += [f"   *   out {j} may be given the memory of in {i}, which it overwrites" for i, j in function.reuse]
        lines.append("   */")
        lines.append(f"  {prefix}_{_identifier(function.name).upper()} = {index},")
    lines.append(f"  {prefix}_FUNCTIONS = {len(functions)}")
    return _HEADER.replace("@PREFIX@", prefix).replace("@ENUM@", "\n".join(lines))


def _tensor(spec: TensorSpec) -> str:
    """``x: float32[n, 768]``."""
    return _comment(f"{spec.name}: {spec.type.dtype}[{', '.join(map(to_text, spec.type.shape))}]")


def _identifier(text: str) -> str:
    plain = re.sub(r"\W", "_", text, flags=re.ASCII)
    return f"_{plain}" if plain[:1].isdigit() else plain or "_"


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")


_HEADER: Final = """\
/* Made by relaxir. The library needs libc and libm only. */
#ifndef @PREFIX@_H_
#define @PREFIX@_H_

#include <stddef.h>
#include <stdint.h>

/* DLTensor: dlpack.h where there is one, else the same declarations. */
#if !defined(DLPACK_DLPACK_H_) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#if !defined(DLPACK_DLPACK_H_) && !defined(RELAXIR_DLTENSOR_)
#define RELAXIR_DLTENSOR_
typedef struct { int32_t device_type, device_id; } DLDevice; /* 1, 0: the CPU */
/* code: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool; lanes 1 */
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL: compact, row-major */
  uint64_t byte_offset;
} DLTensor;
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef RELAXIR_RUNTIME_
#define RELAXIR_RUNTIME_
typedef struct rx_context rx_context;
typedef struct {
  size_t size;         /* sizeof(rx_options) */
  const void *weights; /* NULL: the library's own; else 64-byte aligned, and alive as long as the context */
  void *(*alloc)(void *user, size_t bytes, size_t alignment); /* NULL: the library's own; may return NULL */
  void (*free)(void *user, void *block);
  void *user;
} rx_options;

int32_t rx_abi_version(void);
/* A context; options may be NULL. NULL on failure: rx_create_error() tells why. */
rx_context *rx_create(const rx_options *options);
const char *rx_create_error(void);
/* Ends a context; no call may be running and no block of it in use. */
void rx_destroy(rx_context *context);
/* Runs a function by number; any number of threads may do so on one context. An output whose data is NULL is allocated
 * by the library (free it with rx_free) and its shape array, which must have room for ndim sizes, is filled in.
 * Returns 0 or an error code, whose text is rx_last_error(context) until this thread's next error. After an error the
 * contents of outputs are unspecified, and blocks they received still are to be freed. */
int32_t rx_call(rx_context *context, int64_t function, const DLTensor *inputs, int64_t input_count, DLTensor *outputs,
                int64_t output_count);
/* rx_call with its six arguments in six consecutive 64-bit words. */
int32_t rx_invoke(const void *call);
const char *rx_last_error(const rx_context *context);
/* Writes the shapes that the outputs would have into their shape arrays, and the working memory of the call in bytes
 * to *frame_bytes (which may be NULL). Only the inputs' shapes are read. Returns 3 where shapes depend on data: let
 * rx_call allocate such outputs. */
int32_t rx_query(rx_context *context, int64_t function, const DLTensor *inputs, int64_t input_count, DLTensor *outputs,
                 int64_t output_count, int64_t *frame_bytes);
void *rx_alloc(rx_context *context, int64_t bytes); /* 64-byte aligned; NULL on failure */
void rx_free(rx_context *context, void *block);
void rx_trim(rx_context *context); /* gives all memory back that is not in use */
/* For the whole library; 0: RELAXIR_NUM_THREADS or the processors this process may use. */
void rx_set_threads(int64_t threads);
int32_t rx_threads(void);
const char *rx_metadata(void); /* JSON: signatures, constraints, target */
int32_t rx_check_cpu(void); /* 0: this processor can run the library */
/* bytes pooled, blocks in use, workspaces, bytes of idle frame stacks, worker threads */
void rx_stats(rx_context *context, int64_t out[5]);
#endif

/* Functions, by number. */
enum {
@ENUM@
};

#ifdef __cplusplus
}
#endif
#endif
"""
