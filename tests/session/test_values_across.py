"""Values both ways: texts, bytes, JSON and files go in (`set`, `load`, variables of a cell) and
come back (`get`, SUBMIT), of any size, and arrive as they were. docs/python.md: "what is set is
`str` or `bytes` as it is, or goes as JSON, and what is fetched is what JSON has."
"""
import hashlib
import json

import pytest

import droste

TEXTS = {
    "empty": "", "NUL": "a\0b\0", "BOM": "\ufeffa",
    "emoji": "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467", "CRLF": "a\r\nb\rc\n",
    "separators": "\u2028\u2029\x85\x0b\x0c", "quotes": "'''\"\"\"\\\\n\\",
    "controls": "".join(map(chr, range(32))) + "\x7f",
    "noncharacters": "\uffff\ufdd0\U0010ffff", "combining": "e\u0301\u202etfel",
    "brackets": "</script>{{}}%s${x}",
}
LARGE = 20 << 20


def seen(session, name="v"):
    """What the guest says of a variable: its type, its length, and a hash of its bytes."""
    return session.execute(
        "import hashlib\nd = %s if isinstance(%s, bytes) else %s.encode('utf-8', 'surrogatepass')\n"
        "SUBMIT(s=[type(%s).__name__, len(%s), hashlib.sha256(d).hexdigest()])" % ((name,) * 5)).s


def as_seen(value):
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return [type(value).__name__, len(value), hashlib.sha256(data).hexdigest()]


@pytest.mark.parametrize("name", TEXTS)
def test_awkward_texts_are_as_they_were_both_ways(session, name):
    """Set, passed with a cell, submitted, fetched: texts are not normalised, stripped or cut."""
    session.set("v", TEXTS[name])
    assert seen(session) == as_seen(TEXTS[name])
    assert session.get("v") == TEXTS[name] == session.execute("SUBMIT(v=w)", {"w": TEXTS[name]}).v
    assert session.execute("SUBMIT(**{%r: v})"
                           % ("k" + TEXTS[name])).fields == {"k" + TEXTS[name]: TEXTS[name]}


def test_lone_surrogates_go_in_with_a_cell_and_are_refused_as_answers(session):
    """As documented: they are not text, so that SUBMIT refuses them and says what to do."""
    assert session.execute("v == chr(0xd800)", {"v": "\ud800"}).echo == "True"
    assert "surrogate" in session.execute("SUBMIT(v=v)").error.message


@pytest.mark.parametrize("value", [b"", b"\0\xff\xfe\r\n", bytes(range(256)) * 300],
                         ids=["empty", "few", "all"])
def test_bytes_are_bytes(session, value):
    """Whatever is in them."""
    session.set("v", value)
    assert seen(session) == as_seen(value)
    assert session.execute("v == w", {"w": value}).echo == "True"


@pytest.mark.parametrize("value", [
    0, -1, 2 ** 53, 2 ** 64 + 1, 1.5, 1e-300, -0.0, True, False, None, [], {}, [[]], {"": {"": []}},
    [1, "a", None, {"k": [1.5, True]}],
    {"a b": 1, "é": 2, "\0": 3, "\U0001f600": 4}, "text"], ids=repr)
def test_json_is_as_it_was_both_ways(session, value):
    """Numbers keep their type and size, objects their order."""
    session.set("v", value)
    back = session.get("v")
    assert (back, type(back), json.dumps(back)) == (value, type(value), json.dumps(value))


def test_deep_json_goes_as_deep_as_documented(session):
    """Levels below the limit arrive; what is deeper is refused before anything is sent, and the
    session goes on."""
    value = []
    for _ in range(60):
        value = [value]
    session.set("v", value)
    assert session.get("v") == value
    for _ in range(100_000):
        value = [value]
    with pytest.raises(droste.ArgumentError):
        session.set("v", value)
    assert session.execute("1").ok


@pytest.mark.parametrize("value", ["x" * LARGE, "\U0001f600\r\n\0" * (LARGE // 7),
                                   b"\xff\0\r\n" * (LARGE // 4)],
                         ids=["ASCII", "unicode", "bytes"])
def test_large_values_go_in(session, value):
    """20 MiB, to the last byte."""
    session.set("v", value)
    assert seen(session) == as_seen(value)


def test_a_large_text_comes_back(session):
    """20 MiB in one submitted field, made in the sandbox."""
    result = session.execute("SUBMIT(n=1, text=('x' * 1000 + '\\U0001f600\\r\\n\"') * %d)"
                             % (LARGE // 1007))
    assert result.text == ("x" * 1000 + "\U0001f600\r\n\"") * (LARGE // 1007) and result.n == 1


def test_large_json_goes_both_ways(session):
    """Tens of thousands of small values, nested."""
    value = [{"id": n, "tags": ["a", None], "text": "é" * 5} for n in range(20_000)]
    session.set("v", value)
    assert session.get("v") == value


def test_many_values_stay_apart(session):
    """Each variable of a cell is its own, and large ones that have not changed are still there."""
    values = {"v%d" % n: "x" * (n * 1000) for n in range(60)}
    for _ in range(2):
        assert session.execute("SUBMIT(n=[len(globals()['v%d' % n]) for n in range(60)])",
                               values).n == [n * 1000 for n in range(60)]


@pytest.mark.needs("directories")
def test_files_are_loaded_as_values(session, tmp_path):
    """A file as text, JSON or bytes, and a directory as a dict of texts."""
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "a.json").write_text('{"k": [1, null]}')
    (tmp_path / "b.bin").write_bytes(b"\xff\0")
    (tmp_path / "d" / "sub" / "é.txt").write_bytes("a\r\n\U0001f600".encode())
    for path, kind, value in ((tmp_path / "a.json", None, {"k": [1, None]}),
                              (tmp_path / "a.json", "text", '{"k": [1, null]}'),
                              (tmp_path / "d", None, {"sub/é.txt": "a\r\n\U0001f600"})):
        session.load("v", path, kind)
        assert session.get("v") == value
    session.load("v", tmp_path / "b.bin")
    assert seen(session) == as_seen(b"\xff\0")


@pytest.mark.parametrize("code, value", [
    ("x = 'é\U0001f600'\r\ny = 'b'\r\nSUBMIT(v=x + y)\r\n", "é\U0001f600b"),
    ("größe = 1\nSUBMIT(v=größe)", 1), ("SUBMIT(v='a\\0b')", "a\0b"),
    ("\n\n# only\n\tSUBMIT(v=1)".replace("\t", ""), 1), ("SUBMIT(v='''a\r\nb''')", "a\nb"),
    ("SUBMIT(v=1)" + "\n# x" * 50_000, 1),
    ("x = [\n" + "1,\n" * 20_000 + "]\nSUBMIT(v=len(x))", 20_000)],
    ids=["line ends", "names", "escapes", "comments", "line ends in a text", "long", "many lines"])
def test_code_is_as_it_was_written(session, code, value):
    """Whatever is in it, and however long it is."""
    assert session.execute(code).v == value


def test_code_with_a_nul_is_a_syntax_error(session):
    """As in Python; and nothing of it runs."""
    result = session.execute("x = 1\ny = '\0'")
    assert result.status == "error" and result.error.type in ("SyntaxError", "ValueError")
    assert session.execute("'x' in globals()").echo == "False"


def test_names_that_are_none_are_refused(session):
    """In the host, before anything is sent."""
    for name in ("not a name", "1a", "", "class", "a.b", "a;b"):
        with pytest.raises(droste.ArgumentError):
            session.set(name, 1)
