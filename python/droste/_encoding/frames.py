"""Encodes pandas' frames, series and indexes, column by column, and its scalars."""
from __future__ import annotations

import re
import sys
from typing import Any, Dict, List

from .arrays import describe_large
from .container import MissingLibrary
from .marks import is_list, is_number, is_text, mark, Refused, wanted
from .plain import add_texts, take_texts, write_zone, ZONE

ROWS_MAX = 1 << 31      # of a range, which needs no data


def import_pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingLibrary("a value belongs to pandas, which is not installed on this side"
                             ) from None
    return pandas


# -- columns: a list of the kind and what it needs

def write_column(encoder: Any, values: Any, path: Any) -> Any:
    """Encodes an array of pandas or numpy by its dtype."""
    if type(values.dtype).__name__ in ("PandasDtype", "NumpyEADtype"):
        values = values.to_numpy()
    dtype = values.dtype
    writer = COLUMN_WRITERS.get(type(dtype).__name__)
    if writer is not None:
        return writer(encoder, values, path)
    if not type(dtype).__module__.startswith("numpy"):
        raise Refused(path, "a column of dtype %s; convert it with astype()" % dtype)
    if dtype.hasobject:
        return write_objects(encoder, values, path)
    numpy = sys.modules["numpy"]
    return ["numpy", encoder.value(numpy.asarray(values), path)]


def write_objects(encoder: Any, values: Any, path: Any) -> Any:
    found = list(values)
    if set(map(type, found)) <= {str}:
        return ["texts", *add_texts(encoder, found)]
    return ["objects", [encoder.value(v, (path, "[%s]", i)) for i, v in enumerate(found)]]


def write_string(encoder: Any, values: Any, path: Any) -> Any:
    """A column of text with gaps: the texts, and where there is none."""
    missing = values.isna()
    texts = ["" if gone else text for text, gone in zip(values, missing)]
    numpy = sys.modules["numpy"]
    absent = values.dtype.na_value
    return ["string", *add_texts(encoder, texts),
            encoder.add(memoryview(numpy.asarray(missing, "u1")).cast("B")),
            values.dtype.storage, "nan" if type(absent) is float else "NA"]


def write_zoned(encoder: Any, values: Any, path: Any) -> Any:
    numbers = values.asi8 if hasattr(values, "asi8") else values.view("i8")
    return ["zoned", getattr(values.dtype, "unit", "ns"), write_zone(values.dtype.tz, path),
            encoder.value(numbers, path)]


def write_categories(encoder: Any, values: Any, path: Any) -> Any:
    return ["categories", encoder.value(values.codes, path),
            encoder.value(values.categories, (path, ".%s", "categories")), bool(values.ordered)]


def write_masked(encoder: Any, values: Any, path: Any) -> Any:
    missing = values.isna()
    kind = values.dtype.numpy_dtype
    return ["masked", encoder.value(values.to_numpy(dtype=kind, na_value=kind.type(0)), path),
            encoder.value(missing, path)]


def write_periods(encoder: Any, values: Any, path: Any) -> Any:
    return ["periods", str(values.dtype)[len("period["):-1], encoder.value(values.asi8, path)]


def write_intervals(encoder: Any, values: Any, path: Any) -> Any:
    return ["intervals", write_column(encoder, values.left.array, path),
            write_column(encoder, values.right.array, path), values.closed]


def write_arrow_column(encoder: Any, values: Any, path: Any) -> Any:
    return ["arrow", encoder.value(values.__arrow_array__(), path)]


COLUMN_WRITERS = {
    "StringDtype": write_string, "DatetimeTZDtype": write_zoned,
    "CategoricalDtype": write_categories, "PeriodDtype": write_periods,
    "IntervalDtype": write_intervals, "ArrowDtype": write_arrow_column,
    **{kind + "Dtype": write_masked for kind in (
        "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32",
        "Float64", "Boolean")},
}


def read_column(decoder: Any, form: Any) -> Any:
    wanted(type(form) is list and form and type(form[0]) is str and form[0] in COLUMN_READERS,
           "an unknown kind of column")
    return COLUMN_READERS[form[0]](import_pandas(), decoder, *form[1:])


def array_of(values: Any, what: str, kinds: str = "") -> Any:
    """Checks that a decoded value is an array of one dimension and of one of these kinds."""
    numpy = sys.modules["numpy"]
    wanted(type(values) is numpy.ndarray and values.ndim == 1
           and (not kinds or values.dtype.kind in kinds), "%s is not an array" % what)
    return values


def read_objects(pandas: Any, decoder: Any, values: Any) -> Any:
    numpy = sys.modules["numpy"]
    found = numpy.empty(len(is_list(values, "a column")), dtype=object)
    for i, value in enumerate(values):
        found[i] = value
    return found


def read_string(pandas: Any, decoder: Any, data: Any, lengths: Any, missing: Any, storage: Any,
                absent: Any) -> Any:
    texts = take_texts(decoder, data, lengths)
    gone = decoder.buffer(missing)
    wanted(len(gone) == len(texts) and storage in ("python", "pyarrow", "pyarrow_numpy")
           and absent in ("nan", "NA"), "no column of text")
    value = float("nan") if absent == "nan" else pandas.NA
    found = [value if none else text for text, none in zip(texts, gone)]
    if absent == "nan":
        if int(pandas.__version__.split(".")[0]) < 3:
            return read_objects(pandas, decoder, found)
        return pandas.array(found, dtype=pandas.StringDtype(na_value=value))
    try:
        return pandas.array(found, dtype=pandas.StringDtype(storage))
    except ImportError:         # no pyarrow on this side
        return pandas.array(found, dtype=pandas.StringDtype("python"))


def read_zoned(pandas: Any, decoder: Any, unit: Any, zone: Any, numbers: Any) -> Any:
    array_of(numbers, "a column of times", "i")
    wanted(unit in ("s", "ms", "us", "ns") and numbers.dtype.itemsize == 8, "no column of times")
    import datetime
    if type(zone) in (int, float):
        wanted(-86400 < zone < 86400, "a time zone's offset is a day or more")
        zone = datetime.timezone(datetime.timedelta(seconds=zone))
    else:
        wanted(type(zone) is str and len(zone) < 100 and re.match(ZONE, zone), "no time zone")
    moments = pandas.DatetimeIndex(numbers.view("M8[%s]" % unit), tz="UTC")
    return moments.tz_convert(zone).array


def read_categories(pandas: Any, decoder: Any, codes: Any, categories: Any, ordered: Any) -> Any:
    wanted(isinstance(categories, pandas.Index) and type(ordered) is bool
           and not isinstance(categories, pandas.MultiIndex), "no categories")
    check_codes(codes, categories)
    return pandas.Categorical.from_codes(codes, categories, ordered=ordered)


def check_codes(codes: Any, members: Any) -> None:
    array_of(codes, "codes", "i")
    wanted(not len(codes) or -1 <= codes.min() and codes.max() < len(members),
           "a code has no category")


def read_masked(pandas: Any, decoder: Any, values: Any, missing: Any) -> Any:
    array_of(values, "a column", "iufb")
    wanted(len(array_of(missing, "a mask", "b")) == len(values), "a mask has another length")
    kind = {"b": pandas.arrays.BooleanArray, "f": pandas.arrays.FloatingArray}
    return kind.get(values.dtype.kind, pandas.arrays.IntegerArray)(values, missing)


def read_periods(pandas: Any, decoder: Any, freq: Any, numbers: Any) -> Any:
    is_text(freq, "a frequency", 20)
    return pandas.arrays.PeriodArray(array_of(numbers, "a column of periods", "i"),
                                     dtype=pandas.PeriodDtype(freq))


def read_intervals(pandas: Any, decoder: Any, left: Any, right: Any, closed: Any) -> Any:
    wanted(closed in ("left", "right", "both", "neither"), "no intervals")
    return pandas.arrays.IntervalArray.from_arrays(read_column(decoder, left),
                                                   read_column(decoder, right), closed)


def read_arrow_column(pandas: Any, decoder: Any, values: Any) -> Any:
    return pandas.arrays.ArrowExtensionArray(values)


COLUMN_READERS: Dict[str, Any] = {
    "numpy": lambda pandas, decoder, values: array_of(values, "a column"),
    "texts": lambda pandas, decoder, data, lengths: read_objects(
        pandas, decoder, take_texts(decoder, data, lengths)),
    "objects": read_objects, "string": read_string, "zoned": read_zoned,
    "categories": read_categories, "masked": read_masked, "periods": read_periods,
    "intervals": read_intervals, "arrow": read_arrow_column,
}


# -- indexes

def write_index(encoder: Any, value: Any, path: Any) -> Any:
    name = encoder.value(value.name, (path, ".%s", "name"))
    kind = type(value).__name__
    if kind == "RangeIndex":
        return mark("pandas.range", value.start, value.stop, value.step, name)
    if kind == "MultiIndex":
        return mark("pandas.levels",
                    [encoder.value(level, (path, ".levels[%s]", i))
                     for i, level in enumerate(value.levels)],
                    [encoder.value(codes, path) for codes in value.codes],
                    [encoder.value(one, (path, ".names[%s]", i))
                     for i, one in enumerate(value.names)])
    freq = getattr(value, "freqstr", None) if kind != "PeriodIndex" else None
    return mark("pandas.index", write_column(encoder, value.array, path), name, freq)


def read_range_index(decoder: Any, start: Any, stop: Any, step: Any, name: Any) -> Any:
    pandas = import_pandas()
    for number in (start, stop, step):
        is_number(number, "a range")
    wanted(step and len(range(start, stop, step)) <= ROWS_MAX, "a range is too long")
    return pandas.RangeIndex(start, stop, step, name=name)


def read_levels(decoder: Any, levels: Any, codes: Any, names: Any) -> Any:
    pandas = import_pandas()
    wanted(type(levels) is list and type(codes) is list and type(names) is list
           and 0 < len(levels) == len(codes) == len(names), "no levels")
    for level, numbers in zip(levels, codes):
        wanted(isinstance(level, pandas.Index) and not isinstance(level, pandas.MultiIndex),
               "a level is not an index")
        check_codes(numbers, level)
    wanted(len(set(map(len, codes))) == 1, "codes of different lengths")
    return pandas.MultiIndex(levels, codes, names=names)


def read_index(decoder: Any, form: Any, name: Any, freq: Any) -> Any:
    pandas = import_pandas()
    values = read_column(decoder, form)
    kept = values.dtype if values.dtype.kind == "O" else None
    index = pandas.Index(values, dtype=kept, name=name)
    if freq is not None:
        index.freq = is_text(freq, "a frequency", 20)      # checked by pandas
    return index


# -- series and frames

def write_series(encoder: Any, value: Any, path: Any) -> Any:
    refuse_attributes(value, path)
    return mark("pandas.series", encoder.value(value.index, (path, ".%s", "index")),
                encoder.value(value.name, (path, ".%s", "name")),
                write_column(encoder, value.array, path))


def read_series(decoder: Any, index: Any, name: Any, form: Any) -> Any:
    pandas = import_pandas()
    values = read_column(decoder, form)
    wanted(isinstance(index, pandas.Index) and len(index) == len(values), "no series")
    return pandas.Series(values, index=index, name=name, dtype=values.dtype, copy=False)


def refuse_attributes(value: Any, path: Any) -> None:
    if value.attrs:
        raise Refused(path, "a frame or series with .attrs, which would be lost; clear them")


def write_frame(encoder: Any, value: Any, path: Any) -> Any:
    refuse_attributes(value, path)
    columns = [write_column(encoder, value.iloc[:, i].array, (path, "[%s]", value.columns[i]))
               for i in range(value.shape[1])]
    return mark("pandas.frame", encoder.value(value.index, (path, ".%s", "index")),
                encoder.value(value.columns, (path, ".%s", "columns")), columns)


def read_frame(decoder: Any, index: Any, labels: Any, forms: Any) -> Any:
    pandas = import_pandas()
    columns = [read_column(decoder, form) for form in is_list(forms, "a frame's columns")]
    wanted(isinstance(index, pandas.Index) and isinstance(labels, pandas.Index)
           and len(labels) == len(columns), "a frame has other columns than labels")
    wanted(all(len(one) == len(index) for one in columns), "columns of different lengths")
    series = {i: pandas.Series(one, index=index, dtype=one.dtype, copy=False)
              for i, one in enumerate(columns)}
    frame = pandas.DataFrame(series, index=index, copy=False)
    frame.columns = labels
    return frame


# -- scalars

def write_timestamp(encoder: Any, value: Any, path: Any) -> Any:
    number = value.asm8.astype("i8").item()
    return mark("pandas.timestamp", number, getattr(value, "unit", "ns"),
                write_zone(value.tzinfo, path))


def read_timestamp(decoder: Any, number: Any, unit: Any, zone: Any) -> Any:
    pandas = import_pandas()
    is_number(number, "a timestamp")
    numpy = sys.modules["numpy"]
    numbers = numpy.array([number], "i8")
    if zone is None:
        wanted(unit in ("s", "ms", "us", "ns"), "no unit of a timestamp")
        return pandas.DatetimeIndex(numbers.view("M8[%s]" % unit))[0]
    return read_zoned(pandas, decoder, unit, zone, numbers)[0]


def write_pandas_timedelta(encoder: Any, value: Any, path: Any) -> Any:
    return mark("pandas.timedelta", value.asm8.astype("i8").item(), getattr(value, "unit", "ns"))


def read_pandas_timedelta(decoder: Any, number: Any, unit: Any) -> Any:
    pandas = import_pandas()
    wanted(unit in ("s", "ms", "us", "ns"), "no unit of a timedelta")
    numpy = sys.modules["numpy"]
    numbers = numpy.array([is_number(number, "a timedelta")], "i8")
    return pandas.TimedeltaIndex(numbers.view("m8[%s]" % unit))[0]


def read_period(decoder: Any, freq: Any, number: Any) -> Any:
    pandas = import_pandas()
    return pandas.Period(ordinal=is_number(number, "a period"),
                         freq=is_text(freq, "a frequency", 20))


def write_interval(encoder: Any, value: Any, path: Any) -> Any:
    return mark("pandas.interval", encoder.value(value.left, path),
                encoder.value(value.right, path), value.closed)


def read_interval(decoder: Any, left: Any, right: Any, closed: Any) -> Any:
    pandas = import_pandas()
    wanted(closed in ("left", "right", "both", "neither"), "no interval")
    return pandas.Interval(left, right, closed)


def read_categorical(decoder: Any, form: Any) -> Any:
    import_pandas()
    return read_column(decoder, form)


# -- the projection

def project_series(projection: Any, value: Any, path: Any) -> Any:
    if projection.most is not None and len(value) > projection.most:
        return describe_large("pandas." + type(value).__name__, dtype=str(value.dtype),
                              length=len(value))
    return project_cells(projection, value, path)


def project_cells(projection: Any, values: Any, path: Any) -> List[Any]:
    """A column as a list; what is missing is null."""
    pandas = sys.modules["pandas"]
    return [None if gone is True else projection.number(v) if type(v) is float
            else projection.value(v, (path, "[%s]", i))
            for i, (v, gone) in enumerate(zip(list(values), pandas.isna(values).tolist()))]


def project_frame(projection: Any, value: Any, path: Any) -> Any:
    """A list of rows, each an object by column, as to_dict("records"); without the index."""
    labels = [name_label(projection, label, path) for label in value.columns]
    if projection.most is not None and value.size > projection.most:
        return describe_large("pandas.DataFrame", columns=labels,
                              dtypes=[str(t) for t in value.dtypes], rows=len(value))
    columns = [project_cells(projection, value.iloc[:, i], (path, "[%s]", label))
               for i, label in enumerate(labels)]
    if len(set(labels)) < len(labels):
        raise Refused(path, "a frame with two columns of one name, which JSON cannot have")
    return [dict(zip(labels, row)) for row in zip(*columns)]


def name_label(projection: Any, label: Any, path: Any) -> str:
    if type(label) is tuple:        # of a MultiIndex
        return "/".join(name_label(projection, one, path) for one in label)
    return label if type(label) is str else str(projection.value(label, path))


def project_absent(projection: Any, value: Any, path: Any) -> None:
    return None


TIMES = ("Timestamp", "Timedelta")
INDEXES = ("Index", "RangeIndex", "MultiIndex", "DatetimeIndex", "TimedeltaIndex", "PeriodIndex",
           "CategoricalIndex", "IntervalIndex", "Int64Index", "UInt64Index", "Float64Index")
INDEX_NAMES = [module % name for name in INDEXES for module in (
    "pandas.%s", "pandas.core.indexes.base.%s", "pandas.core.indexes.range.%s",
    "pandas.core.indexes.multi.%s", "pandas.core.indexes.datetimes.%s",
    "pandas.core.indexes.timedeltas.%s", "pandas.core.indexes.period.%s",
    "pandas.core.indexes.category.%s", "pandas.core.indexes.interval.%s",
    "pandas.core.indexes.numeric.%s")]
FRAMES = ("pandas.core.frame.DataFrame", "pandas.DataFrame")
SERIES = ("pandas.core.series.Series", "pandas.Series")
CATEGORICALS = ("pandas.core.arrays.categorical.Categorical", "pandas.Categorical")
ABSENT = ("pandas._libs.tslibs.nattype.NaTType", "pandas._libs.missing.NAType",
          "pandas.api.typing.NaTType", "pandas.api.typing.NAType", "pandas.NaTType",
          "pandas.NAType")

PANDAS_KINDS: Dict[str, Dict[str, Any]] = {
    "marks": {
        "pandas.range": read_range_index, "pandas.levels": read_levels, "pandas.index": read_index,
        "pandas.series": read_series, "pandas.frame": read_frame,
        "pandas.timestamp": read_timestamp, "pandas.timedelta": read_pandas_timedelta,
        "pandas.period": read_period, "pandas.interval": read_interval,
        "pandas.categorical": read_categorical,
        "pandas.NaT": lambda decoder: import_pandas().NaT,
        "pandas.NA": lambda decoder: import_pandas().NA,
    },
    "writers": {
        **{name: write_index for name in INDEX_NAMES}, **{name: write_series for name in SERIES},
        **{name: write_frame for name in FRAMES},
        **{name: lambda encoder, value, path: mark("pandas." + type(value).__name__[:-4])
           for name in ABSENT},
        **{name: lambda encoder, value, path: mark("pandas.categorical",
                                                   write_categories(encoder, value, path))
           for name in CATEGORICALS},
        "pandas._libs.tslibs.timestamps.Timestamp": write_timestamp,
        "pandas.Timestamp": write_timestamp,
        "pandas._libs.tslibs.timedeltas.Timedelta": write_pandas_timedelta,
        "pandas.Timedelta": write_pandas_timedelta,
        **{name: lambda encoder, value, path: mark("pandas.period", value.freqstr, value.ordinal)
           for name in ("pandas._libs.tslibs.period.Period", "pandas.Period")},
        **{name: write_interval for name in ("pandas._libs.interval.Interval", "pandas.Interval")},
    },
    "projections": {
        **{name: project_series for name in INDEX_NAMES},
        **{name: project_series for name in (*SERIES, *CATEGORICALS)},
        **{name: project_frame for name in FRAMES},
        **{name: project_absent for name in ABSENT},
        **{name: lambda projection, value, path: value.isoformat() for name in (
            "pandas._libs.tslibs.timestamps.Timestamp", "pandas.Timestamp",
            "pandas._libs.tslibs.timedeltas.Timedelta", "pandas.Timedelta")},
        **{name: lambda projection, value, path: str(value) for name in (
            "pandas._libs.tslibs.period.Period", "pandas.Period",
            "pandas._libs.interval.Interval", "pandas.Interval")},
    },
}
