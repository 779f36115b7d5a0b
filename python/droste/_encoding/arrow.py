"""Encodes Arrow arrays and tables in Arrow's memory layout, and polars' frames by way of Arrow.

The schema goes in the tree and each buffer as it is. The IPC format would carry the same buffers,
but its reader must not be given a hostile guest's bytes: it decompresses without a bound, and has
unpickled extension types (CVE-2023-47248). The arrays are validated in full before they are used.
"""
from __future__ import annotations

import re
from typing import Any, Dict, List

from .arrays import describe_large
from .container import MissingLibrary
from .marks import is_list, is_number, is_text, mark, Refused, wanted

# Types without parameters, by their names in pyarrow.
ARROW_TYPES = ("null", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
               "uint64", "halffloat", "float", "double", "string", "large_string", "binary",
               "large_binary", "date32[day]", "date64[ms]", "time32[s]", "time32[ms]",
               "time64[us]", "time64[ns]", "duration[s]", "duration[ms]", "duration[us]",
               "duration[ns]")
FACTORIES = {"bool": "bool_", "halffloat": "float16", "float": "float32", "double": "float64",
             "date32[day]": "date32", "date64[ms]": "date64"}
LENGTH_MAX = 1 << 31
LAYOUT_SLACK = 128       # bytes by which a buffer may be longer than what it holds


def import_arrow(what: str = "Arrow data") -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingLibrary("a value is %s, which needs pyarrow; it is not installed on this side"
                             % what) from None
    return pyarrow


def import_polars() -> Any:
    try:
        import polars
    except ImportError:
        raise MissingLibrary("a value belongs to polars, which is not installed on this side"
                             ) from None
    return polars


# -- types

def write_arrow_type(kind: Any, path: Any) -> Any:
    pyarrow = import_arrow()
    types = pyarrow.types
    if str(kind) in ARROW_TYPES:
        return str(kind)
    if types.is_timestamp(kind):
        return ["timestamp", kind.unit, kind.tz]
    if types.is_decimal128(kind):
        return ["decimal128", kind.precision, kind.scale]
    if types.is_decimal256(kind):
        return ["decimal256", kind.precision, kind.scale]
    if types.is_fixed_size_binary(kind) and kind.byte_width > 0:
        return ["fixed", kind.byte_width]
    if types.is_dictionary(kind):
        return ["dictionary", write_arrow_type(kind.index_type, path),
                write_arrow_type(kind.value_type, path), kind.ordered]
    if types.is_list(kind) or types.is_large_list(kind):
        return ["list" if types.is_list(kind) else "large_list",
                write_arrow_field(kind.value_field, path)]
    if types.is_struct(kind) and kind.num_fields:
        return ["struct", [write_arrow_field(kind.field(i), path)
                           for i in range(kind.num_fields)]]
    raise Refused(path, "Arrow data of type %s; cast it to another type" % kind)


def write_arrow_field(field: Any, path: Any) -> Any:
    return [field.name, write_arrow_type(field.type, path), field.nullable]


def read_arrow_type(pyarrow: Any, form: Any, levels: int = 16) -> Any:
    wanted(levels > 0, "an Arrow type is nested too deeply")
    if type(form) is str:
        wanted(form in ARROW_TYPES, "an unknown Arrow type")
        name, _, unit = form.partition("[")
        factory = getattr(pyarrow, FACTORIES.get(form, name))
        return factory(unit[:-1]) if unit and form not in FACTORIES else factory()
    kind, *rest = is_list(form, "an Arrow type")
    wanted(type(kind) is str and (kind, len(rest)) in (
        ("timestamp", 2), ("decimal128", 2), ("decimal256", 2), ("fixed", 1), ("dictionary", 3),
        ("list", 1), ("large_list", 1), ("struct", 1)), "an unknown Arrow type")
    if kind == "timestamp":
        wanted(rest[0] in ("s", "ms", "us", "ns"), "no unit of time")
        wanted(rest[1] is None or re.match(r"[A-Za-z0-9_+\-:/]{1,60}\Z", is_text(
            rest[1], "a time zone")), "no time zone")
        return pyarrow.timestamp(rest[0], rest[1])
    if kind.startswith("decimal"):
        return getattr(pyarrow, kind)(is_number(rest[0], "digits", 1, 76),
                                      is_number(rest[1], "digits", -76, 76))
    if kind == "fixed":
        return pyarrow.binary(is_number(rest[0], "a width", 1, 1 << 20))
    if kind == "dictionary":
        wanted(type(rest[2]) is bool, "no dictionary")
        return pyarrow.dictionary(read_arrow_type(pyarrow, rest[0], levels - 1),
                                  read_arrow_type(pyarrow, rest[1], levels - 1), rest[2])
    if kind == "struct":
        wanted(rest[0], "a struct without fields")
        return pyarrow.struct([read_arrow_field(pyarrow, f, levels)
                               for f in is_list(rest[0], "fields")])
    return {"list": pyarrow.list_, "large_list": pyarrow.large_list}[kind](
        read_arrow_field(pyarrow, rest[0], levels))


def read_arrow_field(pyarrow: Any, form: Any, levels: int = 16) -> Any:
    wanted(type(form) is list and len(form) == 3 and type(form[2]) is bool, "no field")
    return pyarrow.field(is_text(form[0], "a field's name", 10000),
                         read_arrow_type(pyarrow, form[1], levels - 1), form[2])


# -- arrays: the length, the buffers or None, the arrays below

def compact(pyarrow: Any, values: Any) -> Any:
    """The array without the memory of a larger one that it is a slice of."""
    if not values.offset and values.get_total_buffer_size() <= (
            values.nbytes + LAYOUT_SLACK * 8 + values.nbytes // 8):
        return values
    return pyarrow.concat_arrays([values, values[:0]])


def write_layout(encoder: Any, values: Any, path: Any) -> Any:
    """Encodes an array that does not begin within its buffers."""
    buffers = values.buffers()
    pieces = layout_of(values.type, values, buffers)
    wanted_count = len(pieces["buffers"])
    own = [None if one is None else encoder.add(memoryview(one).cast("B"))
           for one in buffers[:wanted_count]]
    return [len(values), own, [write_layout(encoder, child, path) for child in pieces["below"]]]


def layout_of(kind: Any, values: Any, buffers: List[Any]) -> Dict[str, Any]:
    """The array's own buffers, and the arrays below it."""
    types = import_arrow().types
    if types.is_struct(kind):
        return {"buffers": buffers[:1], "below": [values.field(i) for i in range(kind.num_fields)]}
    if types.is_list(kind) or types.is_large_list(kind):
        return {"buffers": buffers[:2], "below": [values.values]}
    if types.is_dictionary(kind):
        return {"buffers": buffers[:2], "below": [values.dictionary]}
    if types.is_null(kind):
        return {"buffers": [], "below": []}
    return {"buffers": buffers, "below": []}


def read_layout(decoder: Any, pyarrow: Any, kind: Any, form: Any) -> Any:
    types = pyarrow.types
    wanted(type(form) is list and len(form) == 3, "no Arrow array")
    length = is_number(form[0], "the length of an Arrow array", 0, LENGTH_MAX)
    indexes, below = is_list(form[1], "Arrow buffers"), is_list(form[2], "Arrow arrays")
    buffers = [None if i is None else pyarrow.py_buffer(decoder.buffer(i)) for i in indexes]
    if types.is_null(kind):
        wanted(not buffers and not below, "no Arrow array")
        return pyarrow.nulls(length)
    if types.is_dictionary(kind):
        wanted(len(buffers) == 2 and len(below) == 1, "no Arrow dictionary")
        codes = pyarrow.Array.from_buffers(kind.index_type, length, buffers)
        codes.validate(full=True)
        members = read_layout(decoder, pyarrow, kind.value_type, below[0])
        return pyarrow.DictionaryArray.from_arrays(codes, members, ordered=kind.ordered, safe=True)
    fields = ([kind.field(i).type for i in range(kind.num_fields)] if types.is_struct(kind) else
              [kind.value_type] if types.is_list(kind) or types.is_large_list(kind) else [])
    wanted(len(buffers) == kind.num_buffers and len(below) == len(fields)
           and all(one is not None for one in buffers[1:]), "no Arrow array of its type")
    children = [read_layout(decoder, pyarrow, *pair) for pair in zip(fields, below)]
    wanted(not types.is_struct(kind) or all(len(one) == length for one in children),
           "columns of different lengths")
    made = pyarrow.Array.from_buffers(kind, length, buffers, children=children or None)
    made.validate(full=True)
    return made


def write_arrow_array(encoder: Any, value: Any, path: Any) -> Any:
    return mark("arrow.array", write_arrow_type(value.type, path),
                write_layout(encoder, compact(import_arrow(), value), path))


def read_arrow_array(decoder: Any, form: Any, layout: Any) -> Any:
    pyarrow = import_arrow()
    return read_layout(decoder, pyarrow, read_arrow_type(pyarrow, form), layout)


def write_chunks(encoder: Any, value: Any, path: Any) -> List[Any]:
    pyarrow = import_arrow()
    return [write_layout(encoder, compact(pyarrow, one), path) for one in value.chunks]


def read_chunks(decoder: Any, pyarrow: Any, kind: Any, chunks: Any) -> Any:
    return pyarrow.chunked_array([read_layout(decoder, pyarrow, kind, one)
                                  for one in is_list(chunks, "chunks")], type=kind)


def write_chunked(encoder: Any, value: Any, path: Any) -> Any:
    return mark("arrow.chunked", write_arrow_type(value.type, path),
                write_chunks(encoder, value, path))


def read_chunked(decoder: Any, form: Any, chunks: Any) -> Any:
    pyarrow = import_arrow()
    return read_chunks(decoder, pyarrow, read_arrow_type(pyarrow, form), chunks)


def write_metadata(metadata: Any) -> Any:
    return [[k.hex(), v.hex()] for k, v in metadata.items()] if metadata else None


def write_table(encoder: Any, value: Any, path: Any) -> Any:
    fields = [write_arrow_field(f, (path, "[%s]", f.name)) for f in value.schema]
    columns = [write_chunks(encoder, column, path) if hasattr(column, "chunks") else
               [write_layout(encoder, compact(import_arrow(), column), path)]
               for column in value.columns]
    kind = "arrow.table" if hasattr(value, "combine_chunks") else "arrow.batch"
    return mark(kind, fields, columns, value.num_rows, write_metadata(value.schema.metadata))


def read_table(decoder: Any, fields: Any, columns: Any, rows: Any, metadata: Any) -> Any:
    pyarrow = import_arrow()
    wanted(len(is_list(fields, "fields")) == len(is_list(columns, "columns")), "no table")
    found = [read_arrow_field(pyarrow, f) for f in fields]
    notes = None if metadata is None else {bytes.fromhex(k): bytes.fromhex(v) for k, v in is_list(
        metadata, "metadata")}
    arrays = [read_chunks(decoder, pyarrow, f.type, c) for f, c in zip(found, columns)]
    wanted(not arrays or all(len(one) == rows for one in arrays), "columns of different lengths")
    table = pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(found, metadata=notes))
    table.validate(full=True)
    return table


def read_batch(decoder: Any, fields: Any, columns: Any, rows: Any, metadata: Any) -> Any:
    pyarrow = import_arrow()
    table = read_table(decoder, fields, columns, rows, metadata)
    wanted(all(one.num_chunks <= 1 for one in table.columns), "a batch with chunks")
    empty = [pyarrow.nulls(0).cast(f.type) for f in table.schema]
    return pyarrow.RecordBatch.from_arrays(
        [one.chunk(0) if one.num_chunks else none for one, none in zip(table.columns, empty)],
        schema=table.schema)


# -- polars

def to_arrow(value: Any, path: Any) -> Any:
    import_arrow("a frame of polars")
    try:
        polars = import_polars()
        return value.to_arrow(compat_level=polars.CompatLevel.oldest())
    except (AttributeError, TypeError):
        return value.to_arrow()
    except MissingLibrary:
        raise
    except Exception as e:
        raise Refused(path, "data of polars that Arrow has no form for: %s" % e) from None


def write_polars(encoder: Any, value: Any, path: Any) -> Any:
    kinds = {name: polars_kind(kind, (path, "[%s]", name), encoder)
             for name, kind in value.schema.items()}
    return mark("polars.frame", encoder.value(to_arrow(value, path), path),
                [kinds[name] for name in value.columns])


def polars_kind(kind: Any, path: Any, encoder: Any) -> Any:
    """What Arrow does not say of a column: the categories of an Enum, or that it has none."""
    name = type(kind).__name__
    if name == "Enum":
        return ["Enum", [encoder.value(one, path) for one in kind.categories.to_list()]]
    if "Object" in str(kind):
        raise Refused(path, "a column of Python objects")
    return None


def restore_kind(polars: Any, column: Any, kind: Any) -> Any:
    if kind is None:
        return column
    wanted(type(kind) is list and len(kind) == 2 and kind[0] == "Enum" and all(
        type(one) is str for one in is_list(kind[1], "categories")), "no kind of column")
    return column.cast(polars.String).cast(polars.Enum(kind[1]))


def read_polars(decoder: Any, table: Any, kinds: Any) -> Any:
    polars, pyarrow = import_polars(), import_arrow("a frame of polars")
    wanted(type(table) is pyarrow.Table and len(is_list(kinds, "kinds")) == table.num_columns,
           "no frame")
    frame = polars.from_arrow(table)
    if not any(kinds):
        return frame
    return polars.DataFrame([restore_kind(polars, column, kind)
                             for column, kind in zip(frame.get_columns(), kinds)])


def write_polars_series(encoder: Any, value: Any, path: Any) -> Any:
    kind = polars_kind(value.dtype, path, encoder)
    return mark("polars.series", encoder.value(value.name, path),
                encoder.value(to_arrow(value, path), path), kind)


def read_polars_series(decoder: Any, name: Any, values: Any, kind: Any) -> Any:
    polars, pyarrow = import_polars(), import_arrow("a series of polars")
    wanted(isinstance(values, (pyarrow.Array, pyarrow.ChunkedArray)), "no series")
    series = polars.from_arrow(values)
    return restore_kind(polars, series, kind).alias(is_text(name, "a name", 10000))


def refuse_lazy(encoder: Any, value: Any, path: Any) -> Any:
    raise Refused(path, "a LazyFrame, which is a query; give its collect()")


# -- the projection

def project_rows(projection: Any, value: Any, path: Any) -> Any:
    """A table as a list of rows, each an object by column."""
    polars = type(value).__module__.startswith("polars")
    names = list(value.columns) if polars else list(value.schema.names)
    rows = len(value) if polars else value.num_rows
    if projection.most is not None and rows * len(names) > projection.most:
        return describe_large("polars.DataFrame" if polars else "pyarrow." + type(value).__name__,
                              columns=names, rows=rows)
    if len(set(names)) < len(names):
        raise Refused(path, "a table with two columns of one name, which JSON cannot have")
    found = value.to_dicts() if polars else value.to_pylist()
    return [project_nested(projection, row, path) for row in found]


def project_nested(projection: Any, value: Any, path: Any) -> Any:
    if type(value) is dict:
        return {key: project_nested(projection, one, path) for key, one in value.items()}
    if type(value) is list:
        return [project_nested(projection, one, path) for one in value]
    return projection.number(value) if type(value) is float else projection.value(value, path)


def project_column(projection: Any, value: Any, path: Any) -> Any:
    if projection.most is not None and len(value) > projection.most:
        return describe_large("Arrow column", length=len(value))
    found = value.to_list() if hasattr(value, "to_list") else value.to_pylist()
    return project_nested(projection, found, path)


ARROW_COLUMNS = ("pyarrow.lib.Array", "pyarrow.lib.ChunkedArray")
ARROW_TABLES = ("pyarrow.lib.Table", "pyarrow.lib.RecordBatch")
POLARS_FRAMES = ("polars.dataframe.frame.DataFrame", "polars.DataFrame")
POLARS_SERIES = ("polars.series.series.Series", "polars.Series")

ARROW_KINDS: Dict[str, Dict[str, Any]] = {
    "marks": {"arrow.array": read_arrow_array, "arrow.chunked": read_chunked,
              "arrow.table": read_table, "arrow.batch": read_batch, "polars.frame": read_polars,
              "polars.series": read_polars_series},
    "writers": {"pyarrow.lib.Array": write_arrow_array, "pyarrow.lib.ChunkedArray": write_chunked,
                **{name: write_table for name in ARROW_TABLES},
                **{name: write_polars for name in POLARS_FRAMES},
                **{name: write_polars_series for name in POLARS_SERIES},
                "polars.lazyframe.frame.LazyFrame": refuse_lazy},
    "projections": {**{name: project_column for name in (*ARROW_COLUMNS, *POLARS_SERIES)},
                    **{name: project_rows for name in (*ARROW_TABLES, *POLARS_FRAMES)}},
}
