"""Calls from Python without Python code, as LLVM IR: a built-in function that takes and gives NumPy arrays.

``rx_python`` has the type of CPython's ``PyCFunctionFastWithKeywords``; its ``self`` is a ``bytes`` object with the
plan that `relaxir.runtime.quick` packs. Nothing of Python is linked: the addresses come in a table
(``rx_python_init``), so a library that no Python program calls does not need one.

Invariants:

1. Only arrays that `relaxir.runtime.records.Marshal.ready` would take are taken: exactly ``ndarray``, the declared
   dtype object and rank, compact and aligned. All else is handed to the plan's general callable, before anything has
   happened.
2. The interpreter's lock is not held while the model runs.
3. A result's block belongs to a capsule, the base of its array; with the last array it goes back to the context, which
   the capsule keeps alive.
4. A failed call gives its blocks back and hands its status to the plan's ``fail``, which raises.
"""

from typing import Final

from relaxir.backends.llvm.ir_text import expand
from relaxir.backends.llvm.layout import DLTENSOR, DLTENSOR_BYTES, FIELDS
from relaxir.runtime.quick import OBJECT, PLAN, PLAN_BYTES, ROW, ROW_BYTES, TABLE
from relaxir.runtime.records import READABLE


def python_text() -> str:
    """Return ``rx_python`` and ``rx_python_init`` (they use ``rx_call`` and ``rx_free``)."""
    numbers = {
        "PLAN_BYTES": PLAN_BYTES,
        "ROW_BYTES": ROW_BYTES,
        "TENSOR": DLTENSOR_BYTES,
        "TABLE_BYTES": 8 * len(TABLE),
        "READABLE": READABLE,
        "NEW_FLAGS": READABLE | 0x400,
    }
    return expand(_INIT + _READ + _GIVE + _CALL, {**FIELDS, **DLTENSOR, **OBJECT, **PLAN, **ROW, **TABLE, **numbers})


_INIT: Final = """\
@rx_api = internal global [${TABLE_BYTES} x i8] zeroinitializer, align 8
define void @rx_python_init(ptr %table) nounwind {
  call void @llvm.memcpy.p0.p0.i64(ptr @rx_api, ptr %table, i64 ${TABLE_BYTES}, i1 false)
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

_READ: Final = """\
; ---- the number of the input a keyword names; %count if none
define internal i64 @rx_python_named(ptr %plan, i64 %count, ptr %word) nounwind {
entry:
  %rows = getelementptr i8, ptr %plan, i64 ${PLAN_BYTES}
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %end = icmp eq i64 %i, %count
  br i1 %end, label %done, label %look
look:
  %place = mul i64 %i, ${ROW_BYTES}
  %row = getelementptr i8, ptr %rows, i64 %place
  %name = get ptr %row R_NAME
  %same = icmp eq ptr %name, %word
  br i1 %same, label %done, label %compare
compare:
  %compare_f = get ptr @rx_api I_PyUnicode_Compare
  %order = call i32 %compare_f(ptr %name, ptr %word)
  %equal = icmp eq i32 %order, 0
  br i1 %equal, label %done, label %step
step:
  %i1 = add i64 %i, 1
  br label %head
done:
  ret i64 %i
}
; ---- fill a tensor from an object; false if it is not the array that the row describes
define internal i1 @rx_python_read(ptr %row, ptr %object, ptr %tensor) nounwind {
entry:
  %type = get ptr %object O_TYPE
  %array_type = get ptr @rx_api I_PyArray_Type
  %is_array = icmp eq ptr %type, %array_type
  br i1 %is_array, label %look, label %no
look:
  %dtype = get ptr %object A_DTYPE
  %wanted = get ptr %row R_DTYPE
  %same_dtype = icmp eq ptr %dtype, %wanted
  %rank32 = get i32 %object A_RANK
  %rank = zext i32 %rank32 to i64
  %wanted_rank = get i64 %row R_RANK
  %same_rank = icmp eq i64 %rank, %wanted_rank
  %flags = get i32 %object A_FLAGS
  %had = and i32 %flags, $READABLE
  %readable = icmp eq i32 %had, $READABLE
  %fits0 = and i1 %same_dtype, %same_rank
  %fits = and i1 %fits0, %readable
  br i1 %fits, label %fill, label %no
fill:
  %data = get ptr %object A_DATA
  %shape = get ptr %object A_SHAPE
  %word = get i64 %row R_WORD
  put ptr %data %tensor DL_DATA
  put i64 1 %tensor DL_DEVICE
  put i64 %word %tensor DL_NDIM
  put ptr %shape %tensor DL_SHAPE
  put ptr null %tensor DL_STRIDES
  put i64 0 %tensor DL_OFFSET
  ret i1 true
no:
  ret i1 false
}
"""

_GIVE: Final = """\
define internal void @rx_python_release(ptr %object) nounwind {
  %decref = get ptr @rx_api I_Py_DecRef
  call void %decref(ptr %object)
  ret void
}
; ---- end of the last array over a result's block
define internal void @rx_python_drop(ptr %capsule) nounwind {
  %pointer = get ptr @rx_api I_PyCapsule_GetPointer
  %context = get ptr @rx_api I_PyCapsule_GetContext
  %block = call ptr %pointer(ptr %capsule, ptr null)
  %owner = call ptr %context(ptr %capsule)
  %ctx = get ptr %block B_OWNER
  call void @rx_free(ptr %ctx, ptr %block)
  call void @rx_python_release(ptr %owner)
  ret void
}
; ---- an array over a block, which it owns from now on; null with Python's error set
define internal ptr @rx_python_array(ptr %plan, ptr %row, ptr %tensor) nounwind {
entry:
  %block = get ptr %tensor DL_DATA
  %ctx = get ptr %plan P_CONTEXT
  put ptr %ctx %block B_OWNER
  %capsule_f = get ptr @rx_api I_PyCapsule_New
  %capsule = call ptr %capsule_f(ptr %block, ptr null, ptr @rx_python_drop)
  %short = icmp eq ptr %capsule, null
  br i1 %short, label %lost, label %own
lost:
  call void @rx_free(ptr %ctx, ptr %block)
  ret ptr null
own:
  %owner = get ptr %plan P_OWNER
  %incref = get ptr @rx_api I_Py_IncRef
  call void %incref(ptr %owner)
  %context_f = get ptr @rx_api I_PyCapsule_SetContext
  %rc = call i32 %context_f(ptr %capsule, ptr %owner)
  %dtype = get ptr %row R_DTYPE
  call void %incref(ptr %dtype)
  %type = get ptr @rx_api I_PyArray_Type
  %rank64 = get i64 %row R_RANK
  %rank = trunc i64 %rank64 to i32
  %shape = get ptr %tensor DL_SHAPE
  %new = get ptr @rx_api I_PyArray_NewFromDescr
  %array = call ptr %new(ptr %type, ptr %dtype, i32 %rank, ptr %shape, ptr null, ptr %block, i32 ${NEW_FLAGS}, ptr null)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %drop, label %base
drop:
  call void @rx_python_release(ptr %capsule)
  ret ptr null
base:
  %base_f = get ptr @rx_api I_PyArray_SetBaseObject
  %rc1 = call i32 %base_f(ptr %array, ptr %capsule)
  ret ptr %array
}
; ---- give back the blocks of outputs from %first on
define internal void @rx_python_free(ptr %ctx, ptr %outputs, i64 %first, i64 %count) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ %first, %entry ], [ %i1, %step ]
  %end = icmp uge i64 %i, %count
  br i1 %end, label %done, label %step
step:
  %place = mul i64 %i, $TENSOR
  %tensor = getelementptr i8, ptr %outputs, i64 %place
  %block = get ptr %tensor DL_DATA
  call void @rx_free(ptr %ctx, ptr %block)
  %i1 = add i64 %i, 1
  br label %head
done:
  ret void
}
"""

_CALL: Final = """\
define ptr @rx_python(ptr %self, ptr %args, i64 %given, ptr %words) nounwind {
entry:
  %plan = at %self S_DATA
  %ins = get i64 %plan P_INPUTS
  %outs = get i64 %plan P_OUTPUTS
  %any_words = icmp ne ptr %words, null
  br i1 %any_words, label %named, label %counted
named:
  %more = get i64 %words T_SIZE
  br label %counted
counted:
  %keywords = phi i64 [ 0, %entry ], [ %more, %named ]
  %total = add i64 %given, %keywords
  %whole = icmp eq i64 %total, %ins
  br i1 %whole, label %room, label %no
no:
  %general = get ptr %plan P_GENERAL
  %vectorcall = get ptr @rx_api I_PyObject_Vectorcall
  %theirs = call ptr %vectorcall(ptr %general, ptr %args, i64 %given, ptr %words)
  ret ptr %theirs
room:
  %tensors = add i64 %ins, %outs
  %bytes = mul i64 %tensors, $TENSOR
  %inputs = alloca i8, i64 %bytes, align 16
  %input_bytes = mul i64 %ins, $TENSOR
  %outputs = getelementptr i8, ptr %inputs, i64 %input_bytes
  %sizes = get i64 %plan P_SIZES
  %shapes = alloca i64, i64 %sizes, align 16
  call void @llvm.memset.p0.i64(ptr %inputs, i8 0, i64 %bytes, i1 false)
  %rows = getelementptr i8, ptr %plan, i64 ${PLAN_BYTES}
  br label %input
input:
  %i = phi i64 [ 0, %room ], [ %i1, %next_input ]
  %all_read = icmp eq i64 %i, %ins
  br i1 %all_read, label %output, label %which
which:
  %object_p = getelementptr ptr, ptr %args, i64 %i
  %object = load ptr, ptr %object_p
  %by_place = icmp ult i64 %i, %given
  br i1 %by_place, label %read, label %by_name
by_name:
  %k = sub i64 %i, %given
  %items = at %words T_ITEMS
  %word_p = getelementptr ptr, ptr %items, i64 %k
  %word = load ptr, ptr %word_p
  %found = call i64 @rx_python_named(ptr %plan, i64 %ins, ptr %word)
  %unknown = icmp eq i64 %found, %ins
  br i1 %unknown, label %no, label %read
read:
  %input_number = phi i64 [ %i, %which ], [ %found, %by_name ]
  %in_place = mul i64 %input_number, $TENSOR
  %in_tensor = getelementptr i8, ptr %inputs, i64 %in_place
  %before = get i64 %in_tensor DL_DEVICE
  %twice = icmp ne i64 %before, 0
  br i1 %twice, label %no, label %take
take:
  %in_row_place = mul i64 %input_number, ${ROW_BYTES}
  %in_row = getelementptr i8, ptr %rows, i64 %in_row_place
  %fits = call i1 @rx_python_read(ptr %in_row, ptr %object, ptr %in_tensor)
  br i1 %fits, label %next_input, label %no
next_input:
  %i1 = add i64 %i, 1
  br label %input
output:
  %o = phi i64 [ 0, %input ], [ %o1, %next_output ]
  %shape = phi ptr [ %shapes, %input ], [ %shape1, %next_output ]
  %all_set = icmp eq i64 %o, %outs
  br i1 %all_set, label %run, label %next_output
next_output:
  %out_place = mul i64 %o, $TENSOR
  %out_tensor = getelementptr i8, ptr %outputs, i64 %out_place
  %out_number = add i64 %o, %ins
  %out_row_place = mul i64 %out_number, ${ROW_BYTES}
  %out_row = getelementptr i8, ptr %rows, i64 %out_row_place
  %out_word = get i64 %out_row R_WORD
  put i64 1 %out_tensor DL_DEVICE
  put i64 %out_word %out_tensor DL_NDIM
  put ptr %shape %out_tensor DL_SHAPE
  %out_rank = get i64 %out_row R_RANK
  %shape1 = getelementptr i64, ptr %shape, i64 %out_rank
  %o1 = add i64 %o, 1
  br label %output
run:
  %ctx = get ptr %plan P_CONTEXT
  %function = get i64 %plan P_FUNCTION
  %save = get ptr @rx_api I_PyEval_SaveThread
  %state = call ptr %save()
  %status = call i32 @rx_call(ptr %ctx, i64 %function, ptr %inputs, i64 %ins, ptr %outputs, i64 %outs)
  %restore = get ptr @rx_api I_PyEval_RestoreThread
  call void %restore(ptr %state)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %give, label %bad
bad:
  call void @rx_python_free(ptr %ctx, ptr %outputs, i64 0, i64 %outs)
  %wide = sext i32 %status to i64
  %long = get ptr @rx_api I_PyLong_FromLong
  %number = call ptr %long(i64 %wide)
  %fail = get ptr %plan P_FAIL
  %call_one = get ptr @rx_api I_PyObject_CallOneArg
  %raised = call ptr %call_one(ptr %fail, ptr %number)
  call void @rx_python_release(ptr %number)
  ret ptr %raised
give:
  %first_row_place = mul i64 %ins, ${ROW_BYTES}
  %first_row = getelementptr i8, ptr %rows, i64 %first_row_place
  %single = get i64 %plan P_SINGLE
  %alone = icmp ne i64 %single, 0
  br i1 %alone, label %one, label %many
one:
  %array = call ptr @rx_python_array(ptr %plan, ptr %first_row, ptr %outputs)
  ret ptr %array
many:
  %tuple_f = get ptr @rx_api I_PyTuple_New
  %tuple = call ptr %tuple_f(i64 %outs)
  %no_tuple = icmp eq ptr %tuple, null
  br i1 %no_tuple, label %spill, label %result
result:
  %r = phi i64 [ 0, %many ], [ %r1, %keep ]
  %all_given = icmp eq i64 %r, %outs
  br i1 %all_given, label %done, label %wrap
wrap:
  %r1 = add i64 %r, 1
  %res_place = mul i64 %r, $TENSOR
  %res_tensor = getelementptr i8, ptr %outputs, i64 %res_place
  %res_row_place = mul i64 %r, ${ROW_BYTES}
  %res_row = getelementptr i8, ptr %first_row, i64 %res_row_place
  %item = call ptr @rx_python_array(ptr %plan, ptr %res_row, ptr %res_tensor)
  %no_item = icmp eq ptr %item, null
  br i1 %no_item, label %undo, label %keep
keep:
  %set_f = get ptr @rx_api I_PyTuple_SetItem
  %rc = call i32 %set_f(ptr %tuple, i64 %r, ptr %item)
  br label %result
undo:
  call void @rx_python_release(ptr %tuple)
  br label %spill
spill:
  %rest = phi i64 [ 0, %many ], [ %r1, %undo ]
  call void @rx_python_free(ptr %ctx, ptr %outputs, i64 %rest, i64 %outs)
  ret ptr null
done:
  ret ptr %tuple
}
"""
