"""Typed values both ways, of the types that need no library, in every environment."""
import datetime
import decimal
import pathlib
import uuid

import pytest

import droste

VALUES = {
    "tuple": (1, (2, [3])), "set": {1, 2}, "frozenset": frozenset({"a"}), "bytes": b"\xff\0",
    "bytearray": bytearray(b"\xff"),
    "long bytes": b"\xfe" * 300000, "complex": complex(1.5, -2), "decimal": decimal.Decimal("1.50"),
    "date": datetime.date(2026, 1, 2),
    "datetime": datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.timezone.utc),
    "time": datetime.time(1, 2, 3),
    "timedelta": datetime.timedelta(-1, 2, 3), "uuid": uuid.UUID(int=7),
    "path": pathlib.PurePosixPath("/a/b"), "range": range(1, 9, 2),
    "keys": {(1, 2): 3, None: {4}}, "floats": [0.5] * 100000, "ints": list(range(100000)),
    "texts": ["é"] * 100000,
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_keeps_its_type_both_ways(session, name):
    value = VALUES[name]
    session.set("v", value)
    found = session.get("v")
    assert type(found) is type(value) and found == value
    assert session.execute("type(w).__name__, w == v",
                           {"w": value}).echo == "(%r, True)" % type(value).__name__


def test_a_submission_has_its_types_and_a_json_form(session):
    result = session.execute(
        "import datetime\nSUBMIT(t=(1, b'\\xff'), d=datetime.date(2026, 1, 2), n=1)")
    assert result.fields == {"t": (1, b"\xff"), "d": datetime.date(2026, 1, 2), "n": 1}
    assert result.json["submit"] == {"t": [1, "/w=="], "d": "2026-01-02", "n": 1}


def test_what_cannot_leave_is_refused_by_its_path(session):
    session.execute("class D: pass\nrows = [1, {'when': D()}]")
    with pytest.raises(droste.CellFailed, match=r"rows\[1\]\['when'\] is of type D"):
        session.get("rows")
    session.execute("rows = [1, {'when': 2}]")
    assert session.get("rows") == [1, {"when": 2}]
