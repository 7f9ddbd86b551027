"""Data types: every form a user may write them in."""

import ml_dtypes
import numpy as np
import pytest

from relaxir.support.dtypes import DTYPES, DType, Kind, dtype, info, short
from relaxir.support.errors import UnsupportedError


@pytest.mark.parametrize("row", DTYPES.values(), ids=lambda row: row.name)
def test_every_form_of_every_type(row: DType) -> None:
    assert dtype(row.name) == dtype(row.short) == row.name
    assert short(row.name) == row.short
    assert info(row.short) is row
    assert row.numpy.itemsize == row.bytes
    if row.name != "bfloat16":
        assert dtype(row.numpy) == dtype(row.numpy.type) == row.name


def test_bfloat16() -> None:
    assert dtype(ml_dtypes.bfloat16) == dtype(np.dtype(ml_dtypes.bfloat16)) == "bfloat16"
    assert info("bf16").numpy == np.uint16
    assert info("bf16").is_float


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "int8", "int64", "uint8", "uint64", "bool"])
def test_dlpack_code_is_numpys(name: str) -> None:
    letter = {"f": 2, "i": 0, "u": 1, "b": 6}
    assert info(name).dlpack == letter[info(name).numpy.kind]


def test_kinds() -> None:
    assert info("i32").is_integer
    assert info("u8").is_integer
    assert not info("bool").is_integer
    assert not info("bool").is_float
    assert info("bool").kind is Kind.BOOL


@pytest.mark.parametrize(
    "bad", ["float31", "", "complex64", ">f4", np.dtype(">f4"), np.complex64, np.generic, list, 3, None]
)
def test_others_are_refused(bad: object) -> None:
    with pytest.raises(UnsupportedError, match="is not supported") as caught:
        dtype(bad)
    assert caught.value.code == "dtype-unsupported"
    assert "float32" in caught.value.help
    assert "<class" not in caught.value.message
