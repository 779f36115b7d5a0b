"""JSON without the package json: as the package has it, and usable when nothing can be imported."""
import json
import sys

import pytest


@pytest.mark.parametrize("value", [
    {}, [], {"a": [1, 2.5, None, True, "é\u2028\ud800\"\\\n"]}, "text", 7, {"nested": {"x": [[]]}},
    1e300, float("inf"), {0: 2, None: 3, 2.5: 4, True: 5}])
def test_values_are_written_as_json_writes_them(guest, value):
    assert guest.write_json(value) == json.dumps(value).encode()


@pytest.mark.parametrize("value", [{"a": [1, "é\u2028\ud800\"\\\x00\n"]}, "é", (1, 2), 10 ** 30])
def test_strict_values_keep_their_characters(guest, value):
    assert guest.write_strict_json(value) == json.dumps(value, allow_nan=False, ensure_ascii=False)


@pytest.mark.parametrize("value", [[float("nan")], {"a": float("-inf")}, {(1,): 2}, {"a": object()},
                                   [{1}]])
def test_what_json_refuses_is_refused_in_the_same_words(guest, value):
    with pytest.raises((TypeError, ValueError)) as expected:
        json.dumps(value, allow_nan=False)
    with pytest.raises(type(expected.value)) as raised:
        guest.write_strict_json(value)
    assert str(raised.value) == str(expected.value)


def test_a_value_that_contains_itself_is_refused(guest):
    value = []
    value.append(value)
    for write in (guest.write_json, guest.write_strict_json):
        with pytest.raises(ValueError, match="Circular reference"):
            write(value)


def test_values_of_other_types_become_what_default_returns(guest):
    assert guest.write_strict_json([{1}], sorted) == "[[1]]"


@pytest.mark.parametrize("text", [
    b"{}", b'{"a": [1, 2.5e3, null, true, "\\u00e9\\ud83d\\ude00"]}', b" [1] ", b"NaN",
    b"[Infinity, -Infinity]", b'"\xc3\xa9"', b"\t[1, 2]\r\n", b"-0.0", b'{"a": 1, "a": 2}'])
def test_texts_are_read_as_json_reads_them(guest, text):
    for form in (text, str(text, "utf-8"), memoryview(text)):
        assert repr(guest.read_json(form)) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "{", "[1] x", '{"a" 1}', "\ufeff[]", "\xa0[]", '"\n"', "nul"])
def test_texts_that_are_not_json_are_refused_in_the_same_words(guest, text):
    with pytest.raises(ValueError) as expected:
        json.loads(text)
    with pytest.raises(type(expected.value)) as raised:
        guest.read_json(text)
    assert str(raised.value) == str(expected.value)


def test_hooks_see_what_json_shows_them(guest):
    seen = []
    assert guest.read_json('{"a": {"b": NaN}}', lambda d: sorted(d), seen.append) == ["a"]
    assert seen == ["NaN"]


@pytest.mark.parametrize("text", ['[{}]', '[{}', '[{}] x', '[{}, nul]'])
def test_hooks_see_each_object_once(guest, text):
    """Also in a text that is not JSON, and if the hook refuses what it sees."""
    for words in ("", "refused"):
        seen = []

        def hook(found):
            seen.append(found)
            if words:
                raise ValueError(words)
        if words or text != "[{}]":
            with pytest.raises(ValueError, match=words):
                guest.read_json(text, hook)
        else:
            assert guest.read_json(text, hook) == [None]
        assert seen == [{}]


def test_results_are_written_and_read_when_json_cannot_be_imported(guest, monkeypatch):
    """As when the code has used up its descriptors."""
    monkeypatch.setitem(sys.modules, "json", None)
    monkeypatch.setattr(guest, "json", guest.LazyModule("json"))
    assert guest.to_json({"x": [1, "é"], "y": None}) == '{"x": [1, "é"], "y": null}'.encode()
    assert guest.read_json(b'{"x": 1}') == {"x": 1}
    written = b"".join(bytes(piece) for piece in guest.encode_value({"s": {1}, "b": b"\0"}))
    assert guest.decode_value(bytearray(written)) == {"s": {1}, "b": b"\0"}
    assert guest.encode_json({"x": float("nan")}) == b'{"x": null}'


@pytest.mark.parametrize("value", [{"a": [1, "é"]}, "text"])
def test_an_interpreter_without_the_functions_uses_the_package(guest, monkeypatch, value):
    monkeypatch.setattr(guest, "json_in_c", None)
    assert guest.write_json(value) == json.dumps(value).encode()
    assert guest.write_strict_json(value) == json.dumps(value, ensure_ascii=False)
    assert guest.read_json(json.dumps(value)) == value
