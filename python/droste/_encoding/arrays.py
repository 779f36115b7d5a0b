"""Encodes numpy arrays and scalars, in place. Without numpy, arrays of numbers become lists."""
from __future__ import annotations

import math
import struct
import sys
from typing import Any, Dict, List

from .container import Malformed, MissingLibrary
from .marks import is_list, is_number, mark, Refused, wanted

# A type as numpy writes it: byte order, kind, size in bytes, and the unit of dates.
SIMPLE = "?bBiufcSUmMV"
UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
NUMBER_CODES = {"f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B",
                "u2": "H",
           "u4": "I", "u8": "Q", "b1": "?"}
NUMBER_WORDS = {"f": "float", "i": "int", "u": "uint"}
FIELDS_MAX, DIMENSIONS_MAX = 1000, 32


def import_numpy() -> Any:
    """numpy, or None if it is not installed."""
    found = sys.modules.get("numpy")
    if found is None:
        try:
            import numpy
            found = numpy
        except ImportError:
            return None
    return found


def need_numpy() -> Any:
    numpy = import_numpy()
    if numpy is None:
        raise MissingLibrary("a value is an array of numpy, which is not installed on this side")
    return numpy


def write_dtype(dtype: Any, path: Any) -> Any:
    if dtype.hasobject:
        raise Refused(path, "an array of Python objects (dtype object); convert it to numbers or "
                            "fixed-length text, or give a list")
    if dtype.names is not None:
        if dtype.subdtype or dtype.isalignedstruct:
            raise Refused(path, "an array with an aligned dtype; use dtype.descr")
        return [[name, write_dtype(dtype.fields[name][0], path), dtype.fields[name][1]]
                for name in dtype.names] + [dtype.itemsize]
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": write_dtype(base, path), "shape": list(shape)}
    if dtype.kind not in SIMPLE:
        raise Refused(path, "an array of dtype %s" % dtype)
    return dtype.str


def read_dtype(numpy: Any, form: Any, levels: int = 8) -> Any:
    """The dtype of its description; every size is positive, and nothing in it is an object."""
    wanted(levels > 0, "a dtype is nested too deeply")
    if type(form) is list:
        wanted(1 < len(form) <= FIELDS_MAX and all(
            type(f) is list and len(f) == 3 and type(f[0]) is str for f in form[:-1]), "no dtype")
        size = is_number(form[-1], "the size of a dtype", 1, 1 << 20)
        kinds = [read_dtype(numpy, f[1], levels - 1) for f in form[:-1]]
        ends = [is_number(f[2], "an offset", 0, size) + k.itemsize
                for f, k in zip(form[:-1], kinds)]
        wanted(max(ends) <= size, "a field outside its dtype")
        return numpy.dtype({"names": [f[0] for f in form[:-1]], "formats": kinds,
                            "offsets": [f[2] for f in form[:-1]], "itemsize": size})
    if type(form) is dict:
        shape = tuple(is_number(n, "a dimension", 1, 1 << 20)
                      for n in is_list(form.get("shape"), "a shape"))
        wanted(len(shape) <= DIMENSIONS_MAX and math.prod(shape) <= 1 << 20, "a dtype is too large")
        return numpy.dtype((read_dtype(numpy, form.get("base"), levels - 1), shape))
    return numpy.dtype(check_dtype_text(form))


def check_dtype_text(form: Any) -> str:
    wanted(type(form) is str and len(form) <= 24 and form[:1] in "<>|" and form[1:2] in SIMPLE[1:]
           or form == "|b1", "no dtype")
    size, _, unit = form[2:].partition("[")
    wanted(size.isdigit() and 0 < int(size) <= 1 << 20, "no size in a dtype")
    if form[1] in "mM":
        count = unit.rstrip("]").rstrip("abcdefghijklmnopqrstuvwxyzYMWD")
        wanted(size == "8" and (not unit or unit[-1:] == "]" and len(count) < 5
                                and (not count or count.isdigit() and int(count) > 0)
                                and unit[len(count):-1] in UNITS), "no unit of time in a dtype")
    else:
        wanted(not unit, "no dtype")
    return form


def write_ndarray(encoder: Any, value: Any, path: Any) -> Any:
    numpy = sys.modules["numpy"]
    form = write_dtype(value.dtype, path)
    if value.dtype.itemsize == 0:
        raise Refused(path, "an array of dtype %s, whose elements have no size" % value.dtype)
    order = "C"
    if not value.flags.c_contiguous:
        if value.flags.f_contiguous:
            order, value = "F", value.T
        else:
            value = numpy.ascontiguousarray(value)
    shape = list(value.shape[::-1] if order == "F" else value.shape)
    flat = numpy.asarray(value).reshape(-1).view(numpy.uint8) if value.size else b""
    return mark("ndarray", form, shape, order, encoder.add(
        memoryview(flat).cast("B") if value.size else flat))


def read_ndarray(decoder: Any, form: Any, shape: Any, order: Any, index: Any) -> Any:
    data = decoder.buffer(index)
    sizes = [is_number(n, "a dimension", 0, 1 << 40) for n in is_list(shape, "a shape")]
    wanted(len(sizes) <= DIMENSIONS_MAX and order in ("C", "F"), "no shape")
    numpy = import_numpy()
    if numpy is None:
        return decoder.note_array(form, sizes, read_numbers(form, sizes, order, data))
    dtype = read_dtype(numpy, form)
    wanted(math.prod(sizes) * dtype.itemsize == len(data), "an array's shape does not fit its data")
    wanted(all(sizes) or math.prod(n for n in sizes if n) <= 1 << 31, "an empty array is too large")
    flat = numpy.frombuffer(data, dtype) if len(data) else numpy.empty(0, dtype)
    check_elements(numpy, flat)
    return flat.reshape(sizes, order=order)


def check_elements(numpy: Any, flat: Any) -> None:
    """Refuses bytes that are not bool, and numbers that are not characters."""
    if flat.dtype.names is not None:
        for name in flat.dtype.names:
            check_elements(numpy, numpy.ascontiguousarray(flat[name]).reshape(-1))
    elif flat.size and flat.dtype.kind == "b":
        wanted(flat.view("u1").max() <= 1, "a bool is neither 0 nor 1")
    elif flat.size and flat.dtype.kind == "U":
        wanted(flat.view(flat.dtype.str[0] + "u4").max() <= 0x10FFFF, "no character of Unicode")


def read_numbers(form: Any, sizes: List[int], order: str, data: Any) -> Any:
    """An array of numbers as nested lists, or a number, where numpy is not installed."""
    code = NUMBER_CODES.get(form[1:]) if type(form) is str else None
    if code is None or order != "C" or form[0] == ">":
        need_numpy()
    size = struct.calcsize("<" + code)
    wanted(math.prod(sizes) * size == len(data), "an array's shape does not fit its data")
    numbers: Any = (memoryview(data).cast("B").cast(code).tolist() if sys.byteorder == "little"
                    else list(struct.unpack("<%d%s" % (len(data) // size, code), data)))
    for length in sizes[:0:-1]:
        wanted(length, "an empty array needs numpy")
        numbers = [numbers[i:i + length] for i in range(0, len(numbers), length)]
    return numbers if sizes else numbers[0]


def describe_array(form: str, sizes: List[int]) -> Dict[str, Any]:
    """The JSON form of a large array of numbers, without numpy."""
    word = "bool" if form == "|b1" else "%s%d" % (NUMBER_WORDS[form[1]], 8 * int(form[2:]))
    return describe_large("numpy.ndarray", dtype=word, shape=sizes)


def write_scalar(encoder: Any, value: Any, path: Any) -> Any:
    numpy = sys.modules["numpy"]
    if value.dtype.itemsize == 0:
        return encoder.value(value.item(), path)
    return mark("numpy", write_dtype(value.dtype, path), numpy.asarray(value).tobytes().hex())


def read_scalar(decoder: Any, form: Any, data: Any) -> Any:
    try:
        raw = bytes.fromhex(data)
    except (TypeError, ValueError):
        raise Malformed("a scalar is not hexadecimal") from None
    numpy = import_numpy()
    if numpy is None:
        return read_numbers(form, [], "C", raw)
    dtype = read_dtype(numpy, form)
    wanted(len(raw) == dtype.itemsize, "a scalar does not have the size of its dtype")
    flat = numpy.frombuffer(raw, dtype)
    check_elements(numpy, flat)
    return flat[0]


def refuse_subclass(encoder: Any, value: Any, path: Any) -> Any:
    raise Refused(path, "of type %s; give numpy.asarray() of it" % type(value).__name__)


def project_ndarray(projection: Any, value: Any, path: Any) -> Any:
    if value.dtype.hasobject:
        write_dtype(value.dtype, path)
    if projection.most is not None and value.size > projection.most:
        return describe_large("numpy.ndarray", dtype=str(value.dtype), shape=list(value.shape))
    if value.dtype.kind in "mM":
        return null_nat(value.astype(str).tolist() if value.dtype.kind == "M" else
                        value.astype("int64").tolist())
    return project_items(projection, value.tolist())


def null_nat(items: Any) -> Any:
    """Replaces NaT, which has the text NaT or the smallest number."""
    if type(items) is list:
        return [null_nat(one) for one in items]
    return None if items in ("NaT", -(1 << 63)) else items


def project_items(projection: Any, value: Any) -> Any:
    """Projects what tolist() and item() return."""
    kind = type(value)
    if kind is list:
        kinds = set(map(type, value))
        if kinds <= {int, bool, str}:
            return value
        return [project_items(projection, one) for one in value]
    if kind is tuple:
        return [project_items(projection, one) for one in value]
    return projection.number(value) if kind is float else projection.value(value, None)


def project_scalar(projection: Any, value: Any, path: Any) -> Any:
    if value.dtype.kind in "mM":
        return project_ndarray(projection, sys.modules["numpy"].asarray(value), path)
    made = value.item()
    if type(made) is type(value):       # longdouble
        made = complex(value) if value.dtype.kind == "c" else float(value)
    return made if type(made) is float else project_items(projection, made)


def describe_large(kind: str, **facts: Any) -> Dict[str, Any]:
    return {"$type": kind, **facts}


def numpy_names() -> List[str]:
    """The names of the scalar types, in numpy 1 and 2."""
    sized = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
             "float32", "float64", "complex64", "complex128"]
    others = ["longlong", "ulonglong", "intc", "uintc", "longdouble", "clongdouble", "bool_",
              "bool", "str_", "bytes_", "void", "datetime64", "timedelta64",
              "float96", "float128", "complex192", "complex256"]
    return ["numpy." + name for name in sized + others]


NUMPY_KINDS: Dict[str, Dict[str, Any]] = {
    "marks": {"ndarray": read_ndarray, "numpy": read_scalar},
    "writers": {"numpy.ndarray": write_ndarray, "numpy.memmap": write_ndarray,
                "numpy.core.memmap.memmap": write_ndarray, "numpy.matrix": refuse_subclass,
                "numpy.ma.core.MaskedArray": refuse_subclass, "numpy.ma.MaskedArray":
                refuse_subclass, "numpy.recarray": refuse_subclass, "numpy.rec.recarray":
                refuse_subclass, **{name: write_scalar for name in numpy_names()}},
    "projections": {"numpy.ndarray": project_ndarray,
                    **{name: project_scalar for name in numpy_names()}},
}
