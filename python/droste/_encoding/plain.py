"""Encodes the types of the standard library."""
from __future__ import annotations

import array
import datetime
import math
import re
import sys
from typing import Any, List

from .container import Malformed, MissingLibrary
from .marks import (check_hashes, is_list, is_number, is_text, mark, MARKS, PROJECTIONS, Refused,
                    wanted, WRITERS)

ZONE = r"[A-Za-z0-9_+\-]+(/[A-Za-z0-9_+\-]+){0,3}\Z"
DIGITS = 100000         # of a decimal


def number_of(value: float) -> Any:
    """A float in the tree: itself, or a mark if JSON has no form for it."""
    return value if math.isfinite(value) else mark("float", float.__repr__(value))


# -- numbers and text

def read_float(decoder: Any, text: Any) -> float:
    wanted(text in ("nan", "inf", "-inf"), "a float is none of nan, inf and -inf")
    return float(text)


def read_int(decoder: Any, text: Any) -> int:
    wanted(type(text) is str and re.match(r"-?0x[0-9a-f]+\Z", text), "an int is not hexadecimal")
    return int(text, 16)


def read_text(decoder: Any, text: Any) -> str:
    try:
        return bytes.fromhex(text).decode("utf-8", "surrogatepass")
    except (TypeError, ValueError):
        raise Malformed("a text is not hexadecimal UTF-8") from None


def read_long_text(decoder: Any, index: Any) -> str:
    try:
        return str(decoder.buffer(index), "utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Malformed("a text is not UTF-8") from None


def write_complex(encoder: Any, value: Any, path: Any) -> Any:
    return mark("complex", number_of(value.real), number_of(value.imag))


def read_complex(decoder: Any, real: Any, imaginary: Any) -> complex:
    wanted(type(real) in (int, float) and type(imaginary) in (int, float), "no complex number")
    return complex(real, imaginary)


def read_decimal(decoder: Any, text: Any) -> Any:
    import decimal
    is_text(text, "a decimal", DIGITS)
    try:
        return decimal.Decimal(text)
    except (decimal.InvalidOperation, ValueError):
        raise Malformed("a decimal is not a number") from None


def read_fraction(decoder: Any, numerator: Any, denominator: Any) -> Any:
    import fractions
    wanted(type(numerator) is int and type(denominator) is int and denominator, "no fraction")
    return fractions.Fraction(numerator, denominator)


def write_range(encoder: Any, value: Any, path: Any) -> Any:
    return mark("range", *[encoder.value(v, path) for v in (value.start, value.stop, value.step)])


def read_range(decoder: Any, start: Any, stop: Any, step: Any) -> range:
    wanted(all(type(v) is int for v in (start, stop, step)) and step, "no range")
    return range(start, stop, step)


# -- bytes

def write_bytes(encoder: Any, value: Any, path: Any) -> Any:
    kind = "bytearray" if isinstance(value, bytearray) else "bytes"
    if len(value) <= 64:
        return mark(kind, bytes(value).hex())
    view = memoryview(value)
    return mark(kind, encoder.add(view.cast("B") if view.c_contiguous else view.tobytes()))


def bytes_of(decoder: Any, data: Any) -> Any:
    if type(data) is int:
        return decoder.buffer(data)
    try:
        return bytes.fromhex(data)
    except (TypeError, ValueError):
        raise Malformed("bytes are neither hexadecimal nor a buffer") from None


def read_bytes(decoder: Any, data: Any) -> bytes:
    return bytes(bytes_of(decoder, data))


def read_bytearray(decoder: Any, data: Any) -> bytearray:
    return bytearray(bytes_of(decoder, data))


# -- containers

def write_members(encoder: Any, value: Any, path: Any) -> List[Any]:
    return [encoder.value(v, (path, "[%s]", i)) for i, v in enumerate(value)]


def write_tuple(encoder: Any, value: Any, path: Any) -> Any:
    return mark("tuple", write_members(encoder, value, path))


def write_set(encoder: Any, value: Any, path: Any) -> Any:
    return mark("set", [encoder.value(v, (path, "[%s]", "a member")) for v in value])


def write_frozenset(encoder: Any, value: Any, path: Any) -> Any:
    return mark("frozenset", [encoder.value(v, (path, "[%s]", "a member")) for v in value])


def read_tuple(decoder: Any, members: Any) -> Any:
    return tuple(is_list(members, "a tuple"))


def read_set(decoder: Any, members: Any) -> Any:
    return set(check_hashes(is_list(members, "a set")))


def read_frozenset(decoder: Any, members: Any) -> Any:
    return frozenset(check_hashes(is_list(members, "a frozenset")))


def read_dict(decoder: Any, pairs: Any) -> Any:
    wanted(type(pairs) is list and all(type(p) is list and len(p) == 2 for p in pairs), "no dict")
    check_hashes([key for key, _ in pairs])
    return {key: value for key, value in pairs}


# -- long lists of one type, which JSON takes much longer for

def native(values: Any) -> Any:
    """The bytes of an array.array, little-endian."""
    if sys.byteorder == "big":
        values.byteswap()
    return memoryview(values).cast("B")


def read_array(code: str, data: Any) -> Any:
    values = array.array(code)
    wanted(len(data) % values.itemsize == 0, "a buffer has a part of a number")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def read_floats(decoder: Any, index: Any) -> List[float]:
    return read_array("d", decoder.buffer(index)).tolist()


def read_ints(decoder: Any, index: Any) -> List[int]:
    return read_array("q", decoder.buffer(index)).tolist()


def add_texts(encoder: Any, texts: List[str]) -> List[int]:
    """Adds texts as two buffers: UTF-8 of all, and the numbers of characters."""
    joined = "".join(texts).encode("utf-8", "surrogatepass")
    return [encoder.add(joined), encoder.add(native(array.array("I", map(len, texts))))]


def take_texts(decoder: Any, data: Any, lengths: Any) -> List[str]:
    text = read_long_text(decoder, data)
    sizes = read_array("I", decoder.buffer(lengths)).tolist()
    wanted(sum(sizes) == len(text), "the lengths of texts do not add up")
    at, found = 0, []
    for size in sizes:
        found.append(text[at:at + size])
        at += size
    return found


def read_array_array(decoder: Any, code: Any, index: Any) -> Any:
    wanted(type(code) is str and len(code) == 1 and code in "bBhHiIlLqQfd", "no array")
    return read_array(code, decoder.buffer(index))


def write_array_array(encoder: Any, value: Any, path: Any) -> Any:
    if value.typecode not in "bBhHiIlLqQfd":
        raise Refused(path, "an array of characters; use str")
    return mark("array", value.typecode, encoder.add(native(value[:])))


# -- dates and times

def write_zone(zone: Any, path: Any) -> Any:
    """A time zone: None, its name, or the seconds of a fixed offset."""
    if zone is None:
        return None
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)     # zoneinfo, pytz
    if isinstance(name, str) and re.match(ZONE, name):
        return name
    if type(zone) is datetime.timezone or type(zone).__module__ == "dateutil.tz.tz" and (
            type(zone).__name__ in ("tzutc", "tzoffset")):
        return zone.utcoffset(None).total_seconds()
    if type(zone).__module__.startswith("pytz") and zone.utcoffset(None) is not None:
        return zone.utcoffset(None).total_seconds()
    raise Refused(path, "a time zone %s; use datetime.timezone or zoneinfo.ZoneInfo"
                  % type(zone).__name__)


def read_zone(zone: Any) -> Any:
    if zone is None:
        return None
    if type(zone) in (int, float):
        wanted(-86400 < zone < 86400, "a time zone's offset is a day or more")
        return datetime.timezone(datetime.timedelta(seconds=zone))
    wanted(type(zone) is str and len(zone) < 100 and re.match(ZONE, zone), "no name of a time zone")
    if zone == "UTC":
        try:
            import zoneinfo
            return zoneinfo.ZoneInfo(zone)
        except Exception:
            return datetime.timezone.utc
    try:
        import zoneinfo
    except ImportError:
        raise MissingLibrary("the time zone %s needs Python 3.9 or newer" % zone) from None
    try:
        return zoneinfo.ZoneInfo(zone)
    except Exception:
        raise MissingLibrary("the time zone %s is not on this machine; install tzdata"
                             % zone) from None


def write_datetime(encoder: Any, value: Any, path: Any) -> Any:
    return mark("datetime", value.replace(tzinfo=None).isoformat(), value.fold,
                write_zone(value.tzinfo, path))


def write_time(encoder: Any, value: Any, path: Any) -> Any:
    return mark("time", value.replace(tzinfo=None).isoformat(), value.fold,
                write_zone(value.tzinfo, path))


def read_iso(kind: Any, text: Any) -> Any:
    try:
        return kind.fromisoformat(is_text(text, "a date or time", 40))
    except ValueError:
        raise Malformed("a date or time is not ISO 8601") from None


def read_datetime(decoder: Any, text: Any, fold: Any, zone: Any) -> Any:
    moment = read_iso(datetime.datetime, text)
    wanted(moment.tzinfo is None, "a time zone within a datetime")
    return moment.replace(fold=is_number(fold, "fold", 0, 1), tzinfo=read_zone(zone))


def read_time(decoder: Any, text: Any, fold: Any, zone: Any) -> Any:
    moment = read_iso(datetime.time, text)
    wanted(moment.tzinfo is None, "a time zone within a time")
    return moment.replace(fold=is_number(fold, "fold", 0, 1), tzinfo=read_zone(zone))


def read_date(decoder: Any, text: Any) -> Any:
    return read_iso(datetime.date, text)


def write_timedelta(encoder: Any, value: Any, path: Any) -> Any:
    return mark("timedelta", value.days, value.seconds, value.microseconds)


def read_timedelta(decoder: Any, days: Any, seconds: Any, microseconds: Any) -> Any:
    return datetime.timedelta(is_number(days, "days", -999999999, 999999999),
                              is_number(seconds, "seconds", 0, 86399),
                              is_number(microseconds, "microseconds", 0, 999999))


def iso_duration(value: Any) -> str:
    """Formats a duration as ISO 8601: P1DT2H3.5S."""
    sign, value = ("-", -value) if value.days < 0 else ("", value)
    hours, rest = divmod(value.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = (".%06d" % value.microseconds).rstrip("0") if value.microseconds else ""
    day = "%dD" % value.days if value.days else ""
    time = "".join("%d%s" % pair for pair in ((hours, "H"), (minutes, "M")) if pair[0])
    if seconds or fraction or not (day or time):
        time += "%d%sS" % (seconds, fraction)
    return "%sP%s%s" % (sign, day, "T" + time if time else "")


# -- names of things

def read_uuid(decoder: Any, text: Any) -> Any:
    import uuid
    wanted(type(text) is str and re.match(r"[0-9a-f]{32}\Z", text), "no UUID")
    return uuid.UUID(hex=text)


PATHS = ("PurePosixPath", "PosixPath", "PureWindowsPath", "WindowsPath")
ADDRESSES = ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface",
             "IPv6Interface")


def write_file_path(encoder: Any, value: Any, path: Any) -> Any:
    return mark("path", type(value).__name__, encoder.value(str(value), path))


def read_file_path(decoder: Any, kind: Any, text: Any) -> Any:
    import pathlib
    wanted(type(text) is str and len(text) <= 100000 and kind in PATHS, "no path")
    if kind == type(pathlib.Path()).__name__:
        return pathlib.Path(text)
    return getattr(pathlib, kind if kind.startswith("Pure") else "Pure" + kind)(text)


def write_address(encoder: Any, value: Any, path: Any) -> Any:
    return mark("address", type(value).__name__, str(value))


def read_address(decoder: Any, kind: Any, text: Any) -> Any:
    import ipaddress
    wanted(kind in ADDRESSES, "no kind of address")
    try:
        return getattr(ipaddress, kind)(is_text(text, "an address"))
    except ValueError:
        raise Malformed("an address is not valid") from None


MARKS.update({
    "float": read_float, "int": read_int, "text": read_text, "str": read_long_text,
    "complex": read_complex, "decimal": read_decimal, "fraction": read_fraction,
    "range": read_range, "bytes": read_bytes, "bytearray": read_bytearray, "tuple": read_tuple,
    "set": read_set, "frozenset": read_frozenset, "dict": read_dict, "floats": read_floats,
    "ints": read_ints, "texts": take_texts, "array": read_array_array, "datetime": read_datetime,
    "time": read_time, "date": read_date, "timedelta": read_timedelta, "uuid": read_uuid,
    "path": read_file_path, "address": read_address,
})
WRITERS.update({
    "builtins.complex": write_complex, "builtins.range": write_range, "builtins.bytes": write_bytes,
    "builtins.bytearray": write_bytes, "builtins.memoryview": write_bytes,
    "builtins.tuple": write_tuple, "builtins.set": write_set,
    "builtins.frozenset": write_frozenset, "array.array": write_array_array,
    "datetime.datetime": write_datetime, "datetime.time": write_time,
    "datetime.date": lambda encoder, value, path: mark("date", value.isoformat()),
    "datetime.timedelta": write_timedelta,
    "decimal.Decimal": lambda encoder, value, path: mark("decimal", str(value)),
    "fractions.Fraction": lambda encoder, value, path: mark(
        "fraction", encoder.value(value.numerator, path), encoder.value(value.denominator, path)),
    "uuid.UUID": lambda encoder, value, path: mark("uuid", value.hex),
})
WRITERS.update({"pathlib." + name: write_file_path for name in PATHS})
WRITERS.update({"pathlib._local." + name: write_file_path for name in PATHS})    # Python 3.13
WRITERS.update({"ipaddress." + name: write_address for name in ADDRESSES})
TEXT_FORMS = ("decimal.Decimal", "fractions.Fraction", "uuid.UUID")


def project_text(projection: Any, value: Any, path: Any) -> str:
    return str(value)


def project_bytes(projection: Any, value: Any, path: Any) -> str:
    import base64
    return base64.b64encode(value).decode("ascii")


def project_iso(projection: Any, value: Any, path: Any) -> str:
    return value.isoformat()


def project_members(projection: Any, value: Any, path: Any) -> List[Any]:
    return [projection.value(v, (path, "[%s]", i)) for i, v in enumerate(value)]


def project_set(projection: Any, value: Any, path: Any) -> List[Any]:
    """The members in an order that does not depend on their hashes."""
    kinds = set(map(type, value))
    if len(kinds) == 1 and kinds <= {int, str, float}:
        value = sorted(value)
        return project_members(projection, value, path)
    import json
    members = [projection.value(v, (path, "[%s]", "a member")) for v in value]
    return sorted(members, key=lambda member: json.dumps(member, sort_keys=True))


PROJECTIONS.update({
    "builtins.complex": lambda projection, value, path: [
        projection.number(value.real), projection.number(value.imag)],
    "builtins.range": project_members, "builtins.tuple": project_members,
    "builtins.set": project_set, "builtins.frozenset": project_set,
    "builtins.bytes": project_bytes, "builtins.bytearray": project_bytes,
    "builtins.memoryview": project_bytes,
    "array.array": lambda projection, value, path: projection.value(value.tolist(), path),
    "datetime.datetime": project_iso, "datetime.time": project_iso, "datetime.date": project_iso,
    "datetime.timedelta": lambda projection, value, path: iso_duration(value),
})
PROJECTIONS.update({name: project_text for name in TEXT_FORMS})
PROJECTIONS.update({"pathlib." + name: project_text for name in PATHS})
PROJECTIONS.update({"pathlib._local." + name: project_text for name in PATHS})
PROJECTIONS.update({"ipaddress." + name: project_text for name in ADDRESSES})
