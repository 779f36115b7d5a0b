"""What a sandbox for one cell does without: the package json, and modules for errors."""
import json
import subprocess
import sys

import pytest

from conftest import SOURCE


@pytest.mark.parametrize("value", [
    {}, [], {"a": [1, 2.5, None, True, "é\u2028\ud800\"\\\n"]}, "text", 7, {"nested": {"x": [[]]}},
    1e300, float("inf"), {1: 2}])
def test_values_are_written_as_json_writes_them(guest, value):
    assert guest.write_json(value) == json.dumps(value).encode()


@pytest.mark.parametrize("text", [
    b"{}", b'{"a": [1, 2.5e3, null, true, "\\u00e9\\ud83d\\ude00"]}', b" [1] ", b"NaN",
    b'"\xc3\xa9"', b"[1, 2]\n", b"-0.0", b'{"a": 1, "a": 2}'])
def test_texts_are_read_as_json_reads_them(guest, text):
    assert repr(guest.read_json(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", [b"", b"{", b"[1] x", b"\xff", b'{"a" 1}'])
def test_texts_that_are_not_json_are_refused_as_json_refuses_them(guest, text):
    with pytest.raises(ValueError) as expected:
        json.loads(text)
    with pytest.raises(type(expected.value)):
        guest.read_json(text)


def test_what_json_cannot_write_is_refused_by_json(guest):
    with pytest.raises(TypeError, match="Object of type object is not JSON serializable"):
        guest.write_json({"a": object()})


def test_the_guest_imports_no_expensive_module_before_it_is_used():
    code = ("import sys\n"
            "g = {'__name__': 'g', '__file__': 'g'}\n"
            "exec(compile(open(%r).read(), 'g', 'exec'), g)\n"
            "g['state'].session = g['Session'](); g['state'].session.start()\n"
            "print(sorted({'ast', 'json', 're', 'enum', 'traceback', 'datetime', 'signal'}"
            " & set(sys.modules)))" % str(SOURCE))
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, text=True,
                          stdout=subprocess.PIPE)
    assert done.stdout == "[]\n"


def test_an_error_is_located_when_traceback_cannot_be_imported(guest, monkeypatch):
    """As when the code has used up its descriptors."""
    def fail():
        raise OSError(24, "Too many open files")
    monkeypatch.setitem(sys.modules, "traceback", None)
    monkeypatch.setattr(guest, "traceback", guest.LazyModule("traceback"))
    with pytest.raises(OSError) as raised:
        fail()
    text = guest.error_of(raised.value)["traceback"]
    assert "test_lean.py\", line" in text and "in fail" in text
    assert text.endswith("OSError: [Errno 24] Too many open files\n")
