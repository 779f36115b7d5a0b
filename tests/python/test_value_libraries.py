"""Arrays and frames keep their types both ways. Libraries that are missing are skipped by name."""
import datetime
import decimal
import os

import pytest

import droste
from droste import Interpreter
from droste._encoding import codec

np = pytest.importorskip("numpy", reason="numpy is not installed for this interpreter")
SIZES = (0, 1, 10 ** 7)


@pytest.fixture(scope="module")
def interp():
    with Interpreter() as made:
        yield made


def library(name):
    return pytest.importorskip(name, reason="%s is not installed for this interpreter" % name)


def round_trip(interp, value):
    interp.set("v", value)
    return interp.get("v")


ARRAYS = {
    "matrix": np.arange(6.0).reshape(2, 3), "fortran":
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strides": np.arange(24)[::-2], "slice": np.arange(24).reshape(2, 3, 4)[:, 1:, ::2],
    "scalar": np.array(3),
    "empty": np.zeros((0, 3)), "text": np.array(["a", "bé"]), "bytes": np.array([b"a"]),
    "bool": np.array([True, False]),
    "dates": np.array(["2026-01-02", "NaT"], "M8[D]"), "spans": np.array([1, 2], "m8[25us]"),
    "complex": np.array([1 + 2j]),
    "record": np.array([(1, 2.5, "x")], dtype=[("a", "i4"), ("b", "f8"), ("c", "U3")]),
    "big-endian": np.array([1, 2], ">i4"),
    "half": np.array([1, np.nan], "f2"), "infinite": np.array([np.nan, np.inf, -0.0]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_keeps_dtype_shape_and_order(interp, name):
    value = ARRAYS[name]
    found = round_trip(interp, value)
    assert found.dtype == value.dtype and found.shape == value.shape
    assert found.flags.f_contiguous == value.flags.f_contiguous or not value.flags.contiguous
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(value).tobytes()
    assert found.flags.writeable and found.flags.aligned


@pytest.mark.parametrize("size", SIZES)
def test_arrays_of_every_size(interp, size):
    value = np.arange(size, dtype="f8")
    interp.set("v", value)
    assert interp.execute("v += 1; v.flags.writeable, len(v)").echo == "(True, %d)" % size
    found = interp.get("v")
    assert found.shape == (size,) and bool((found == value + 1).all())
    result = interp.execute("SUBMIT(v=v)")
    assert bool((result.v == found).all())
    assert result.json["submit"]["v"] == (found.tolist() if size < 2 else {
        "$type": "numpy.ndarray", "dtype": "float64", "shape": [size]})


@pytest.mark.parametrize("value", [np.float64(1.5), np.int8(-3), np.bool_(True),
                                   np.datetime64("2026-01-02"), np.str_("x")],
                         ids=lambda value: type(value).__name__)
def test_a_scalar_keeps_its_dtype(interp, value):
    found = round_trip(interp, [value])[0]
    assert type(found) is type(value) and found == value


@pytest.mark.parametrize("value, words", [
    ({"a": [np.array([1, "x"], dtype=object)]}, r"^v\['a'\]\[0\] is an array of Python objects"),
    ([np.ma.masked_array([1], [True])], r"^v\[0\] is of type MaskedArray"),
])
def test_an_array_that_cannot_travel_is_refused_by_its_path(interp, value, words):
    with pytest.raises(droste.ArgumentError, match=words):
        interp.set("v", value)


def test_tools_take_and_return_arrays(interp):
    interp.tools["double"] = lambda x: x * 2
    interp.set("a", np.arange(3.0))
    assert interp.execute(
        "double(a).tolist(), double(x=a).flags.writeable").echo == "([0.0, 2.0, 4.0], True)"
    del interp.tools["double"]


def frames(pd):
    return {
        "empty": pd.DataFrame(),
        "plain": pd.DataFrame({"a": [1, 2], "b": [1.5, None], "c": ["x", None], "d": ["x", "y"]}),
        "times": pd.DataFrame({"t": pd.date_range("2026", periods=3, tz="Europe/Paris"),
                               "d": pd.to_timedelta([1, 2, None])}),
        "categorical": pd.DataFrame({"c": pd.Categorical(["a", "b", "a"], ordered=True)}),
        "nullable": pd.DataFrame({"i": pd.array([1, None], dtype="Int64"),
                                  "b": pd.array([True, None], dtype="boolean"),
                                  "s": pd.array(["x", None], dtype="string")}),
        "periods": pd.DataFrame({"p": pd.period_range("2026", periods=3, freq="M"),
                                 "i": pd.interval_range(0, 3)}),
        "levels": pd.DataFrame(np.arange(6.).reshape(2, 3), columns=pd.MultiIndex.from_tuples(
        [("a", 1), ("a", 2), ("b", 1)], names=["x", None]),
                               index=pd.MultiIndex.from_product([["p"], [1, 2]])),
        "objects": pd.DataFrame({"o": [decimal.Decimal(1), (1, 2)]}),
        "twice": pd.DataFrame([[1, 2]], columns=["a", "a"]),
        "index": pd.DataFrame({"a": [1]}, index=pd.DatetimeIndex(["2026-01-01"], name="when")),
    }


@pytest.mark.parametrize("name", ["empty", "plain", "times", "categorical", "nullable", "periods",
                                  "levels", "objects", "twice", "index"])
def test_a_frame_keeps_everything(interp, name):
    """In the sandbox as in the program; also its index and its columns alone."""
    pd = library("pandas")
    if interp.execute("import pandas\npandas.__version__").echo != repr(pd.__version__):
        pytest.skip("the sandbox has another version of pandas")
    value = frames(pd)[name]
    pd.testing.assert_frame_equal(round_trip(interp, value), value)
    found = round_trip(interp, {"in": [value, value.index, value.columns]})["in"]
    pd.testing.assert_frame_equal(found[0], value)
    pd.testing.assert_index_equal(found[1], value.index)
    for column in range(value.shape[1]):
        pd.testing.assert_series_equal(round_trip(interp, value.iloc[:, column]),
                                       value.iloc[:, column])


@pytest.mark.parametrize("size", SIZES)
def test_frames_of_every_size(interp, size):
    pd = library("pandas")
    value = pd.DataFrame({"f": np.arange(size, dtype="f8"), "i": np.arange(size, dtype="i4")})
    pd.testing.assert_frame_equal(round_trip(interp, value), value)


def test_scalars_of_pandas(interp):
    pd = library("pandas")
    value = [pd.NaT, pd.NA, pd.Timestamp("2026-01-02 03:04:05.123456789", tz="Europe/Paris"),
             pd.Timedelta("1h"), pd.Period("2026-01"), pd.Interval(1, 2)]
    found = round_trip(interp, value)
    assert found[0] is pd.NaT and found[1] is pd.NA and found[2:] == value[2:]


def test_a_submitted_frame_has_rows_as_its_json_form(interp):
    pd = library("pandas")
    result = interp.execute(
        "import pandas\nSUBMIT(df=pandas.DataFrame({'a': [1, 2], 'b': [1.5, None]}))")
    pd.testing.assert_frame_equal(result.df, pd.DataFrame({"a": [1, 2], "b": [1.5, None]}))
    assert result.json["submit"]["df"] == [{"a": 1, "b": 1.5}, {"a": 2, "b": None}]


def test_a_cell_that_cannot_travel_is_refused_by_its_path(interp):
    pd = library("pandas")
    with pytest.raises(droste.ArgumentError,
                       match=r"^v\['df'\]\['c'\]\[1\] is of type builtin_function"):
        interp.set("v", {"df": pd.DataFrame({"c": [1, len]})})


def encoded(value):
    return codec.decode_value(bytearray(b"".join(codec.encode_value(value))))


@pytest.mark.parametrize("size", (0, 1, 10 ** 6))
def test_arrow_tables_keep_their_schema(size):
    pa = library("pyarrow")
    table = pa.table({"i": pa.array(range(size), type=pa.int32()),
                      "s": ["é%d" % (n % 7) if n % 3 else None for n in range(size)],
                      "l": pa.array([[n] for n in range(size)], type=pa.list_(pa.int64())),
                      "d": pa.array(["a"] * size).dictionary_encode(), "t": pa.array(
        [datetime.datetime(2026, 1, 2)] * size, type=pa.timestamp("us", "UTC"))})
    for value in (table, table.slice(size // 2), table["s"]):
        found = encoded(value)
        assert type(found) is type(value) and found.equals(value)
    one = table.slice(0, 1)         # without the rows after it
    assert len(b"".join(codec.encode_value(one))) < 10000


@pytest.mark.parametrize("size", (0, 1, 10 ** 6))
def test_polars_frames_keep_their_schema(size):
    library("pyarrow")
    pl = library("polars")
    value = pl.DataFrame({"i": list(range(size)), "s": ["x"] * size,
                          "e": pl.Series(["u"] * size, dtype=pl.Enum(["u", "v"])),
                          "d": [datetime.date(2026, 1, 2)] * size, "l": [[1]] * size})
    found = encoded(value)
    assert found.equals(value) and found.schema == value.schema
    assert encoded(value["s"]).equals(value["s"])


def test_numbers_need_no_numpy(monkeypatch):
    """Without it they are lists; other arrays name the library."""
    data = b"".join(codec.encode_value([np.arange(6.0).reshape(2, 3), np.int8(3),
                                        np.array([1, 2], "u2")]))
    text = b"".join(codec.encode_value(np.array(["a"])))
    monkeypatch.setattr("droste._encoding.arrays.import_numpy", lambda: None)
    assert codec.decode_value(data) == [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], 3, [1, 2]]
    with pytest.raises(ImportError, match="numpy, which is not installed"):
        codec.decode_value(text)


def test_large_arrays_of_numbers_need_no_numpy_here(interp, monkeypatch):
    """A submitted array whose JSON form only describes it arrives as a list, wherever it is."""
    interp.execute(
        "import numpy; a = numpy.arange(1e6); b = numpy.arange(200002, dtype='i4').reshape(2, -1)\n"
        "a[1] = float('nan'); small = numpy.array([1.5, float('nan')])")
    monkeypatch.setattr("droste._encoding.arrays.import_numpy", lambda: None)
    result = interp.execute(
        "SUBMIT(a=a, rows=[{'b': b}], c=a > 5, small=small, n=1)").raise_for_status()
    assert len(result.a) == 10 ** 6 and result.a[-1] == 999999.0 and type(result.a) is list
    assert result.rows[0]["b"][1][-1] == 200001 and result.c[5:7] == [False, True]
    assert result.json["submit"]["rows"] == [{"b": {"$type": "numpy.ndarray", "dtype": "int32",
                                                    "shape": [2, 100001]}}]
    assert result.small[0] == 1.5 and len(interp.get("a")) == 10 ** 6


def test_a_description_must_be_that_of_the_array(interp, monkeypatch):
    """Without numpy, too, a guest cannot submit one array to the schema and send another."""
    interp.execute("""
import numpy, sys
frame = sys._getframe()
while "CHANNEL_FD" not in frame.f_globals:
    frame = frame.f_back
guest, a = frame.f_globals, numpy.arange(200000.0)
def forge(shape, dtype):
    guest["submit_fields"]({"a": a})
    text = guest["state"].session.submitted[0].replace(b"200000", shape).replace(b"float64", dtype)
    guest["state"].session.submitted[0] = text
    raise guest["Submitted"]
""").raise_for_status()
    monkeypatch.setattr("droste._encoding.arrays.import_numpy", lambda: None)
    for shape, dtype, good in ((b"200000", b"float64", True), (b"200001", b"float64", False),
                               (b"200000", b"int64", False)):
        result = interp.execute("forge(%r, %r)" % (shape, dtype))
        if good:
            assert len(result.a) == 200000
            continue
        with pytest.raises(droste.errors.ProtocolError, match="two different values"):
            result.fields


def test_large_arrays_of_numbers_need_no_numpy_in_the_sandbox():
    """There they are lists of any length."""
    bare = os.path.join(os.environ.get("BUILD", "build"), "dspy", "bin", "python3")
    if not os.path.exists(bare):
        pytest.skip("there is no interpreter without numpy (scripts/setup dspy)")
    with Interpreter(python=os.path.abspath(bare)) as interp:
        assert interp.execute("import numpy").error.type == "ModuleNotFoundError"
        interp.set("v", np.arange(1e6))
        assert interp.execute("SUBMIT(kind=type(v).__name__, n=len(v), last=v[-1])").fields == {
            "kind": "list", "n": 10 ** 6, "last": 999999.0}
        assert interp.get("v") == list(range(10 ** 6))
