"""Rich results: a cell returns a list of MIME bundles: the value of the last expression, and what
display() shows, in any media type, within bounds. docs/rich-results.md has the rules.
"""
import pytest

SHAPES = '''
class Shape:
    def __init__(self, **forms):
        for name, value in forms.items():
            setattr(self, name, (lambda value: lambda *a, **k: value)(value))
    def __repr__(self):
        return "<shape>"
'''


@pytest.fixture
def shapes(session):
    """A session with a class whose instances have the methods that the test names."""
    assert session.execute(SHAPES).ok
    return session


def bundles(result):
    return [one.bundle for one in result.results]


def test_a_last_expression_is_the_main_result(session):
    """Its text is its repr, as in the echo."""
    result = session.execute("6 * 7")
    assert bundles(result) == [{"text/plain": "42"}]
    assert result.results[0].is_main_result and result.echo == "42" and result.stdout == ""


def test_a_cell_that_shows_nothing_has_no_results(session):
    for code in ("x = 1", "None", "print('hello')"):
        assert session.execute(code).results == []


@pytest.mark.parametrize("method, media, value", [
    ("_repr_html_", "text/html", "<b>bold</b>"), ("_repr_markdown_", "text/markdown", "**bold**"),
    ("_repr_svg_", "image/svg+xml", "<svg/>"), ("_repr_png_", "image/png", b"\x89PNG\r\n\x00\xff"),
    ("_repr_jpeg_", "image/jpeg", b"\xff\xd8\xff\x00"),
    ("_repr_pdf_", "application/pdf", b"%PDF-1.4\xff"), ("_repr_latex_", "text/latex", "$x^2$"),
    ("_repr_json_", "application/json", {"a": [1, None, "é"]}),
    ("_repr_javascript_", "application/javascript", "alert(1)")])
def test_each_method_gives_its_media_type(shapes, method, media, value):
    """Bytes arrive unchanged, texts as text, JSON as JSON."""
    result = shapes.execute("Shape(%s=%r)" % (method, value))
    assert result.ok and bundles(result) == [{"text/plain": "<shape>", media: value}]


def test_a_mimebundle_may_have_any_media_type(shapes):
    """Data and metadata, as in Jupyter: bytes of binary types may be base64."""
    result = shapes.execute('''
Shape(_repr_mimebundle_=({"application/vnd.custom.v1+json": {"a": 1}, "text/x-thing": "t",
                          "image/png": "iVBORw=="}, {"image/png": {"width": 5}}))''')
    (one,) = result.results
    other = {"application/vnd.custom.v1+json": {"a": 1}, "text/x-thing": "t"}
    assert one.bundle == {"text/plain": "<shape>", "image/png": b"\x89PNG", **other}
    assert one.metadata == {"image/png": {"width": 5}} and one.extra == other


def test_display_shows_values_in_order_and_prints_nothing(shapes):
    result = shapes.execute('''
for i in range(3):
    print("line", i)
    display(i, Shape(_repr_html_=f"<i>{i}</i>"))
"end"''')
    assert result.stdout == "line 0\nline 1\nline 2\n"
    assert [one.text for one in result.results] == ["0", "<shape>", "1", "<shape>", "2", "<shape>",
                                                    "'end'"]
    assert [one.html for one in result.results if one.html] == ["<i>0</i>", "<i>1</i>", "<i>2</i>"]
    assert [one.is_main_result for one in result.results] == [False] * 6 + [True]


def test_display_takes_raw_bundles_and_metadata(session):
    bundle = {"text/html": "<p>", "text/plain": "p"}
    result = session.execute("display(%r, raw=True, metadata={'a': 1})" % bundle)
    assert bundles(result) == [bundle] and result.results[0].metadata == {"a": 1}


def test_a_display_can_be_updated(session):
    result = session.execute(
        "handle = display('one', display_id=True)\nhandle.update('two')\ndisplay(3)")
    assert [one.text for one in result.results] == ["'two'", "3"]


def test_results_of_a_failing_cell_are_kept(session):
    for end, status in (("1 / 0", "error"), ("SUBMIT(a=1)", "submitted")):
        result = session.execute("display('before')\n" + end)
        assert (result.status, [one.text for one in result.results]) == (status, ["'before'"])


def test_a_method_that_raises_costs_only_its_form(shapes):
    """The traceback is on standard error."""
    result = shapes.execute('''
class Broken(Shape):
    def _repr_html_(self):
        raise ValueError("no html")
Broken(_repr_markdown_="m")''')
    assert result.ok and bundles(result) == [{"text/plain": "<shape>", "text/markdown": "m"}]
    assert ("_repr_html_ of a value of type Broken failed" in result.stderr
            and "no html" in result.stderr)


def test_an_object_that_has_every_attribute_has_its_text_only(session):
    """As in IPython: mocks and proxies answer to every name."""
    result = session.execute('''
class Yes:
    def __getattr__(self, name):
        return lambda *a, **k: "yes"
    def __repr__(self):
        return "yes"
Yes()''')
    assert bundles(result) == [{"text/plain": "yes"}]


def test_a_list_or_dict_has_json_too(session):
    """As in E2B's code interpreter; what is not JSON has its text only."""
    assert bundles(session.execute("{'a': [1, 2.5, None]}")) == [
        {"text/plain": "{'a': [1, 2.5, None]}", "application/json": {"a": [1, 2.5, None]}}]
    assert bundles(session.execute("[1, {2}]")) == [{"text/plain": "[1, {2}]"}]


def test_what_is_no_media_type_is_refused(session):
    for name in ("html", "text/", "/x", "text/ html", "te\\nxt/x", "text/html; charset=utf-8",
                 "x" * 200 + "/y"):
        result = session.execute('display({"%s": "x"}, raw=True)' % name)
        assert result.status == "error"
        assert "is not a media type; use a name such as 'text/html'" in result.error.message
    assert session.execute('display({"text/html": "x"}, raw=True)').ok


def test_a_text_replaces_what_does_not_fit(session):
    """64 MiB for the results of a cell; the next cell has them again."""
    result = session.execute('''
display({"image/png": b"x" * (60 << 20), "text/plain": "sixty"}, raw=True)
display({"image/png": b"x" * (5 << 20), "text/plain": "five"}, raw=True)
display("small")''')
    first, second, third = result.results
    assert len(first.png) == 60 << 20 and second.png is None and third.text == "'small'"
    assert second.text == (
        "five\n[image/png of 5.2 MB left out: the results of a cell may have 67.1 MB "
        "(results-limit)]")
    (whole,) = session.execute('display({"image/png": b"x" * (64 << 20)}, raw=True)').results
    assert len(whole.png) == 64 << 20


def test_the_limit_is_a_setting(opened):
    """results-limit bounds a cell, each anew; what fits is kept."""
    interp = opened(results_limit="10K")
    for _ in range(2):
        fits, not_any_more = interp.execute(
            "display({'image/png': b'x' * 9000}, raw=True)\n"
            "display({'image/png': b'x' * 2000}, raw=True)").results
        assert len(fits.png) == 9000 and not_any_more.bundle == {
            "text/plain": "[image/png of 2000 bytes left out: "
                          "the results of a cell may have 10240 bytes (results-limit)]"}


def test_one_result_has_a_limit(opened):
    """result-size bounds each alone, with all its forms; the cell may show more of that size."""
    interp = opened(result_size="10K")
    first, second, large = interp.execute(
        "for n in (9000, 9000, 11000):\n"
        "    display({'image/png': b'x' * n, 'text/plain': 't'}, raw=True)").results
    assert len(first.png) == len(second.png) == 9000
    assert large.bundle == {"text/plain": "t\n[image/png of 11000 bytes left out: "
                                          "one result may have 10240 bytes (result-size)]"}


def test_a_forged_result_has_the_same_limit(opened):
    """The host checks again what the guest should have left out."""
    interp = opened(result_size="10K")
    forge = FORGE + "forge(0, parts=(b'x' * %d,))"
    assert len(interp.execute(forge % 10240).results[0].text) == 10240
    (one,) = interp.execute(forge % 10241).results
    assert one.text == ("[a result of 10241 bytes left out: one result may have 10240 bytes "
                        "(result-size)]")


@pytest.fixture
def listening(opened):
    """A session, and what its listener is called with."""
    seen = []
    session = opened(on_result=seen.append)
    session.results = seen
    return session


def test_results_arrive_while_the_cell_runs(opened):
    """The listener interrupts a cell that would sleep on, so it was called before the end."""
    def tell(result):
        seen.append(result.text)
        if result.text == "'ask'":
            session.interrupt()
    seen = []
    session = opened(on_result=tell)
    result = session.execute("display('first')\ndisplay('ask')\nimport time\ntime.sleep(600)")
    assert seen == ["'first'", "'ask'"] and result.error.type == "KeyboardInterrupt"


def test_a_listener_gets_updates_and_the_last_expression(listening):
    """An update has the id of what it replaces, also in another cell; the main result comes last,
    with its text and with its forms."""
    listening.execute("h = display('a', display_id='x')\nh.update('b')\n6 * 7").raise_for_status()
    listening.execute("update_display('c', display_id='x')\n[1]").raise_for_status()
    assert [(r.text, r.display_id, r.is_update, r.is_main_result) for r in listening.results] == [
        ("'a'", "x", False, False), ("'b'", "x", True, False), ("42", None, False, True),
        ("'c'", "x", True, False), ("[1]", None, False, True)]
    assert listening.results[-1].json == [1]


def test_clear_output_removes_what_the_cell_has_shown(listening):
    """At once, or with the next result or output; the listener is called with None, and output
    stays."""
    result = listening.execute("display(1)\nclear_output()\ndisplay(2)\nclear_output(wait=True)\n"
                               "print('out')\ndisplay(3)\nclear_output(wait=True)")
    assert [r and r.text for r in listening.results] == ["1", None, "2", None, "3"]
    assert [r.text for r in result.results] == ["3"] and result.stdout == "out\n"
    result = listening.execute("print(1)\ndisplay(4)\nclear_output(wait=True)\nprint('out')")
    assert [r and r.text for r in listening.results[-2:]] == ["4", None] and result.results == []
    result = listening.execute("display(5)\nclear_output(wait=True)\n6")
    assert [r and r.text for r in listening.results[-3:]] == ["5", None, "6"]


def test_updates_take_the_place_of_what_they_replace(opened):
    """Thousands of them are neither too many results nor too many bytes, and a cleared cell may
    show as much again."""
    interp = opened(results_limit="10K")
    (one,) = interp.execute("h = display(0, display_id=True)\n"
                            "for i in range(3000): h.update('x' * 3000 + str(i))").results
    assert one.text == repr("x" * 3000 + "2999")
    (one,) = interp.execute("for i in range(1500):\n    clear_output()\n"
                            "    display({'text/plain': 'y' * 9000}, raw=True)").results
    assert one.text == "y" * 9000


def test_more_than_a_thousand_results_are_left_out(session):
    found = session.execute("for i in range(1500): display(i)").results
    assert found[-1].text == "[further results left out: a cell may have 1000]"
    assert len(found) == 1000
    assert [one.text for one in found[:999]] == [str(i) for i in range(999)]


def test_threads_show_results_and_forks_print_them(session):
    result = session.execute('''
import os, threading
threads = [threading.Thread(target=display, args=(i,)) for i in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
pid = os.fork()
if pid == 0:
    display("child")
    os._exit(0)
_ = os.waitpid(pid, 0)''')
    assert sorted(one.text for one in result.results) == [str(i) for i in range(8)]
    assert result.stdout == "'child'\n"


FORGE = '''
import builtins
own = builtins.display.__globals__["state"]
def forge(shift, head=b'{"types": [["text/plain", "text"]]}', parts=(b"forged",)):
    own.link.send(22, own.session.running + shift, head, parts)
'''


@pytest.mark.parametrize("head, parts, why", [
    ('{"types": [["text/html", "text"]]}', ["a", "b"], "1 types and 2 parts"),
    ('{"types": []}', [], "0 types and 0 parts"),
    ('{"types": [["text", "text"]]}', ["a"], "malformed media type"),
    ('{"types": [["text/html", "code"]]}', ["a"], "unknown form"),
    ('{"types": ["text/html"]}', ["a"], "not a pair"),
    ('{"types": [["a/b", "text"], ["a/b", "text"]]}', ["a", "b"], "two items of one type"),
    ('{"types": [["text/html", "text"]]}', ["\\xff"], "not UTF-8"),
    ('[]', ["a"], "not an object"),
    ('{"clear": true}', ["a"], "a removal of results with data"),
    ('{"types": [["a/b", "text"]], "id": "%s"}' % ("x" * 300), ["a"], "an id of over")])
def test_a_forged_result_ends_the_sandbox(session, head, parts, why):
    """The guest is hostile: what it sends is checked, and a violation ends this sandbox only."""
    result = session.execute(FORGE + "forge(0, %r.encode(), [%s])\nimport time; time.sleep(60)" % (
        head, ", ".join("b'%s'" % part for part in parts)))
    assert (result.status, result.killed) == ("killed", "protocol") and why in str(result.error)


def test_a_result_of_a_past_cell_is_dropped(session):
    """A thread may show something while its cell ends. What is of a later cell is forged."""
    assert session.execute(FORGE).ok
    result = session.execute("forge(-1); forge(0)")
    assert result.ok and bundles(result) == [{"text/plain": "forged"}]
    result = session.execute("forge(1)\nimport time; time.sleep(60)")
    assert result.killed == "protocol" and "a rich result of no cell" in str(result.error)


def test_forged_json_is_replaced_by_a_text(session):
    """The host parses JSON strictly; consumers never see what is not JSON."""
    result = session.execute(
        FORGE + """forge(0, b'{"types": [["application/json", "json"]]}', [b"{NaN"])""")
    ((media, text),) = bundles(result)[0].items()
    assert media == "text/plain" and text.startswith("[application/json of 4 bytes left out: ")
