"""Containers from a hostile guest: any bytes and any tree are decoded or refused.

Decoding never crashes or hangs, makes no type outside the list, and needs memory in proportion to
its input.
"""
import array
import datetime
import decimal
import fractions
import ipaddress
import json
import pathlib
import random
import uuid

import pytest

hypothesis = pytest.importorskip("hypothesis",
                                 reason="hypothesis is not installed for this interpreter")
from hypothesis import HealthCheck, given, settings, strategies as st     # noqa: E402

from droste._encoding import codec, container, marks      # noqa: E402

try:
    import numpy as np
    import pandas as pd
except ImportError:
    np = pd = None

#: how fast this machine is says nothing about the code
SLOWLY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
REFUSALS = (container.Malformed, container.MissingLibrary)
BUILTIN = (type(None), bool, int, float, str, list, dict, tuple, set, frozenset, complex, bytes,
           bytearray, range,
           datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, fractions.Fraction,
           uuid.UUID,
           pathlib.PurePath, array.array, ipaddress._IPAddressBase)
LIBRARIES = ("numpy", "pandas", "pyarrow", "polars")


def decode(tree, buffers=()):
    return codec.decode_value(bytearray(b"".join(container.pack_container(tree, list(buffers)))))


def is_listed(value):
    if isinstance(value, (list, tuple, set, frozenset)) and type(value) in BUILTIN:
        return all(map(is_listed, value))
    if type(value) is dict:
        return all(map(is_listed, value)) and all(map(is_listed, value.values()))
    return isinstance(value, BUILTIN) or type(value).__module__.split(".")[0] in LIBRARIES


def samples():
    found = [{"a": [1, (2, {3}), b"x" * 100, 2.5]}, [0.5] * 2000, ["t%d" % n for n in range(2000)],
             {(1, 2): decimal.Decimal("1.5")},
             datetime.datetime(2026, 1, 2), [10 ** 5000, "\ud800", float("nan")],
             pathlib.Path("/x"), array.array("d", [1])]
    if np is not None:
        found += [np.arange(6.0).reshape(2, 3),
                  np.array([(1, "x")], dtype=[("a", "i4"), ("b", "U2")]),
                  np.array(["2026"], "M8[D]"),
                  pd.DataFrame({"a": [1, 2], "s": ["x", None], "c": pd.Categorical(["u", "v"]),
                                "t": pd.date_range("2026", periods=2, tz="UTC"),
                                "i": pd.array([1, None], dtype="Int64")}),
                  pd.Series([1.5], index=pd.MultiIndex.from_tuples([("a", 1)]))]
    return [b"".join(codec.encode_value(value)) for value in found]


SAMPLES = samples()


@settings(SLOWLY, max_examples=300)
@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)),
                                          min_size=1, max_size=8),
       st.integers(0, 1 << 20))
def test_changed_bytes_are_decoded_or_refused(data, changes, cut):
    data = bytearray(data)
    for at, byte in changes:
        data[at % len(data)] = byte
    if cut < len(data):
        del data[cut:]
    try:
        assert is_listed(codec.decode_value(data))
    except REFUSALS:
        pass


LEAVES = [None, True, 0, 1, -1, 1 << 62, -(1 << 70), 0.5, 1e308, "", "x", "<f8", "|b1", "<M8[ns]",
          "<U4", "C", "F", "UTC", "Europe/Paris",
          "0x1", "nan", "ns", "left", "NA", "python", "int64", "list", "2026-01-02", "ff" * 16, [],
          {}]
COLUMNS = ["numpy", "texts", "objects", "string", "zoned", "categories", "masked", "periods",
           "intervals", "arrow"]
KINDS = sorted(marks.MARKS)
BUFFERS = [b"", b"\0", b"\xff" * 4, b"\x01\0\0\0\0\0\0\0", b"abcdefgh" * 4]


def tree_of(random, levels):
    """A random tree, with marks of known kinds and column forms."""
    kind = random.randrange(6 if levels else 1)
    if kind == 0:
        return random.choice(LEAVES)
    inner = [tree_of(random, levels - 1) for _ in range(random.randrange(5))]
    if kind == 1:
        return inner
    if kind == 2:
        return [random.choice(COLUMNS), *inner]
    if kind == 3:
        return {str(n): one for n, one in enumerate(inner)}
    return {marks.MARKED: [random.choice(KINDS), *inner]}


@settings(SLOWLY, max_examples=200)
@given(st.integers(0, 1 << 64))
def test_any_tree_is_decoded_or_refused(seed):
    """Twenty trees for each seed; generating them by Hypothesis alone takes minutes."""
    numbers = random.Random(seed)
    for _ in range(20):
        tree = tree_of(numbers, 4)
        try:
            assert is_listed(decode(json.dumps(tree).encode(), BUFFERS)), tree
        except REFUSALS:
            pass


def replaced(value, at, other):
    """The tree with its member number `at` replaced, counted from its end."""
    count = [at]

    def walk(one):
        count[0] -= 1
        if count[0] < 0:
            count[0] = 1 << 60
            return other
        if isinstance(one, list):
            return [walk(v) for v in one]
        if isinstance(one, dict):
            return {k: walk(v) for k, v in one.items()}
        return one

    return walk(value)


@settings(SLOWLY, max_examples=200)
@given(st.sampled_from(SAMPLES), st.integers(0, 1 << 64))
def test_a_tree_with_another_member_is_decoded_or_refused(data, seed):
    tree, buffers = container.unpack_container(data)
    numbers = random.Random(seed)
    for _ in range(10):
        changed = replaced(json.loads(bytes(tree)), numbers.randrange(60), tree_of(numbers, 2))
        try:
            assert is_listed(decode(json.dumps(changed).encode(), buffers)), changed
        except REFUSALS:
            pass


@pytest.mark.parametrize("tree, buffers, words", [
    ({"$droste": ["eval", "1"]}, [], "unknown kind"),
    ({"$droste": ["bytes", 0]}, [], "no such buffer"),
    ([{"$droste": ["bytes", 0]}] * 2, [b"x"], "used twice"),
    ({"$droste": ["ndarray", "|O", [1], "C", 0]}, [b"x" * 8], "dtype"),
    ({"$droste": ["ndarray", "<f8", [1 << 39], "C", 0]}, [b"x" * 8], "does not fit"),
    ({"$droste": ["ndarray", "|b1", [1], "C", 0]}, [b"\7"], "neither 0 nor 1"),
    ({"$droste": ["ndarray", "<U1", [1], "C", 0]}, [b"\xff" * 4], "Unicode"),
    ({"$droste": ["set", [n * ((1 << 61) - 1) for n in range(1, 200)]]}, [], "same hash"),
    ({"$droste": ["set", [[]]]}, [], "not hashable"),
    ({"$droste": ["texts", 0, 1]}, [b"abc", b"\xff\xff\xff\xff"], "do not add up"),
    ({"$droste": ["path", "__class__", "x"]}, [], "no path"),
    ({"$droste": ["datetime", "2026-01-02T00:00:00", 0, "../../etc/passwd"]}, [], "time zone"),
    ({"$droste": ["pandas.range", 0, 1 << 60, 1, None]}, [], "too long"),
    ({"$droste": []}, [], "without a kind"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_a_hostile_tree_is_refused(tree, buffers, words):
    if "array" in str(tree) or "pandas" in str(tree):
        pytest.importorskip("pandas", reason="pandas is not installed for this interpreter")
    with pytest.raises(container.Malformed, match=words):
        decode(json.dumps(tree).encode(), buffers)


@pytest.mark.parametrize("change", [(0, 2), (4, 200), (8, 255), (16, 0), (24, 255)])
def test_a_header_that_is_wrong_is_refused(change):
    data = bytearray(SAMPLES[0])
    decode(b"1")        # the twin
    data[change[0]] = change[1]
    with pytest.raises(container.Malformed):
        codec.decode_value(data)


def test_lists_that_are_nested_too_deeply_are_refused():
    with pytest.raises(container.Malformed, match="nested too deeply"):
        decode(b"[" * 100000)
