"""Commands over HTTP: beside the cells of a sandbox, with output as events."""
import base64
import http.client
import json
import signal
import threading
import urllib.parse

import pytest

from server_process import Server, until, WAIT


@pytest.fixture(scope="module", params=["1", "3"], ids=["one", "three"])
def server(request, tmp_path_factory):
    """With one worker, and with three: a sandbox is seldom that of the worker which is asked."""
    started = Server(tmp_path_factory.mktemp("serve"), workers=request.param)
    yield started
    assert started.stop() == 0


class Stream:
    """A request whose answer is a stream of events."""

    def __init__(self, server, method, path, body=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
        self.connection.request(method, path, json.dumps(body) if body else None,
                                {"Content-Type": "application/json"} if body else {})
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()

    def next(self):
        """The next event, with its output decoded; None at the end."""
        name, data = self.answer.fp and self.answer.readline(), self.answer.readline()
        self.answer.readline()
        if not name:
            return None
        name, data = name.decode()[len("event: "):-1], json.loads(data[len("data: "):])
        if name == "output":
            data = (data["stream"], base64.b64decode(data["data"]))
        return name, data

    def until(self, word):
        """Reads until the output has a word."""
        text = b""
        while word not in text:
            name, data = self.next()
            assert name == "output", (name, data, text)
            text += data[1]
        return text

    def rest(self):
        return list(iter(self.next, None))

    def close(self):
        self.answer.close()
        self.connection.close()


def test_a_command_is_streamed(server, sandbox):
    """Both streams, whatever bytes they are; words are not given to a shell."""
    stream = Stream(server, "POST", sandbox + "/commands",
                    {"command": "printf 'a\\377'; cat >&2; exit 3", "stream": True,
                     "env": {"A": "b"}, "cwd": "/"})
    name, data = stream.next()
    assert name == "start" and data["pid"] > 1
    assert stream.next() == ("output", ("stdout", b"a\xff"))
    assert stream.rest() == [("end", {"exit_code": 3, "timed_out": False})]
    stream = Stream(server, "POST", sandbox + "/commands",
                    {"command": ["echo", "$HOME", ";"], "stream": True})
    assert stream.rest()[1:] == [("output", ("stdout", b"$HOME ;\n")),
                                 ("end", {"exit_code": 0, "timed_out": False})]


def test_a_command_is_written_to_and_followed(server, sandbox):
    """By pid or tag, by several readers, which both hear its end; the list has it."""
    first = Stream(server, "POST", sandbox + "/commands",
                   {"command": "while read x; do echo got $x; done; exit 5", "stdin": True,
                    "tag": "echoes", "stream": True})
    pid = first.next()[1]["pid"]
    second = Stream(server, "GET", sandbox + "/commands/echoes/output")
    assert second.next() == ("start", {"pid": pid})
    where = sandbox + "/commands/%d/stdin" % pid
    assert server.ask("POST", where, b"a\n").status == 204
    assert [s.next() for s in (first, second)] == [("output", ("stdout", b"got a\n"))] * 2
    listed = server.ask("GET", sandbox + "/commands").json["commands"]
    assert [c["running"] for c in listed if c.get("tag") == "echoes"] == [True]
    assert server.ask("POST", sandbox + "/commands/echoes/stdin?eof=yes", b"b\n").status == 204
    end = [("output", ("stdout", b"got b\n")), ("end", {"exit_code": 5, "timed_out": False})]
    assert first.rest() == second.rest() == end
    again = Stream(server, "GET", sandbox + "/commands/echoes/output")
    assert again.rest() == [("start", {"pid": pid}), end[1]]


def test_a_command_has_a_terminal_and_hears_signals(server, sandbox):
    stream = Stream(server, "POST", sandbox + "/commands",
                    {"command": "trap 'stty size' WINCH; stty size; while :; do sleep 0.01; done",
                     "terminal": {"columns": 91, "rows": 17}, "tag": "screen", "stream": True})
    stream.next()
    stream.until(b"17 91\r\n")
    where = sandbox + "/commands/screen"
    assert server.ask("POST", where + "/terminal", {"columns": 50, "rows": 20}).status == 204
    stream.until(b"20 50\r\n")
    assert server.ask("POST", where + "/signal", {"signal": signal.SIGKILL}).status == 204
    assert stream.rest()[-1] == ("end", {"exit_code": -signal.SIGKILL, "timed_out": False})


def test_a_client_that_leaves_does_not_end_the_command(server, sandbox):
    """Nor does the command wait for it: it writes more than all buffers hold."""
    first = Stream(server, "POST", sandbox + "/commands",
                   {"command": "read x; yes | head -c 3000000; exit 7", "stdin": True,
                    "tag": "left", "stream": True})
    first.next()
    first.close()
    assert server.ask("POST", sandbox + "/commands/left/stdin?eof=yes", b"go\n").status == 204
    again = Stream(server, "GET", sandbox + "/commands/left/output")
    assert again.rest()[-1] == ("end", {"exit_code": 7, "timed_out": False})


def test_a_slow_reader_loses_nothing(server, sandbox):
    answer = server.ask("POST", sandbox + "/commands", {"command": "read x", "stdin": True})
    assert answer.status == 201 and answer.json["pid"] > 1
    stream = Stream(server, "POST", sandbox + "/commands",
                    {"command": "head -c 3000000 /dev/zero", "stream": True})
    rest = stream.rest()
    assert sum(len(data[1]) for name, data in rest if name == "output") == 3000000
    assert rest[-1][0] == "end"


def test_input_that_is_echoed_does_not_stop_the_command(server, sandbox):
    """More than all buffers hold: the input waits for its output's reader, for nothing else."""
    stream = Stream(server, "POST", sandbox + "/commands",
                    {"command": ["cat"], "stdin": True, "tag": "cat", "stream": True})
    data, found = b"0123456789abcdef" * 100000, []
    reader = threading.Thread(target=lambda: found.extend(stream.rest()))
    reader.start()
    assert server.ask("POST", sandbox + "/commands/cat/stdin?eof=yes", data).status == 204
    reader.join()
    assert b"".join(e[1][1] for e in found if e[0] == "output") == data


def test_a_command_does_not_wait_for_a_cell(server, sandbox):
    cell = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
    code = "import os, time\nopen('begun', 'w').close()\n" \
           "while not os.path.exists('stop'): time.sleep(0.01)\nos.remove('stop'); print('over')"
    cell.request("POST", sandbox + "/execute", json.dumps({"code": code}),
                 {"Content-Type": "application/json"})
    stream = Stream(server, "POST", sandbox + "/commands", {
        "command": "while [ ! -e begun ]; do sleep 0.01; done; : > stop", "stream": True})
    assert stream.rest()[-1][0] == "end"
    assert json.loads(cell.getresponse().read())["stdout"] == "over\n"


@pytest.mark.parametrize("body, status", [
    ({}, 400), ({"command": []}, 400), ({"command": "a\0b"}, 400), ({"command": 1}, 400),
    ({"command": "true", "env": {"A=B": "c"}}, 400), ({"command": "true", "tag": "a/b"}, 400),
    ({"command": "true", "terminal": {"columns": 0, "rows": 1}}, 400),
    ({"command": "true", "cwd": "/no/such"}, 400), ({"command": ["no-such"]}, 400),
    ({"command": "true", "user": "no-such"}, 400)])
def test_mistakes_are_refused(server, sandbox, body, status):
    assert server.ask("POST", sandbox + "/commands", body).status == status


def test_what_is_not_there_is_not_found(server, sandbox):
    for method, rest, body in (("GET", "output", None), ("POST", "stdin", b"x"),
                               ("POST", "signal", {"signal": 9}),
                               ("POST", "terminal", {"columns": 8, "rows": 8})):
        for name in ("999999", "no-such"):
            answer = server.ask(method, "%s/commands/%s/%s" % (sandbox, name, rest), body)
            assert (answer.status, answer.code) == (404, "not_found")
    assert server.ask("POST", sandbox + "/commands", {"command": "sleep 1000", "tag": "mute"}
                      ).status == 201
    for rest, body in (("stdin", b"x"), ("terminal", {"columns": 8, "rows": 8})):
        assert server.ask("POST", sandbox + "/commands/mute/" + rest, body).status == 409


def test_a_follower_that_does_not_read_delays_no_other(server, sandbox):
    """The others get everything; it is told, when it reads again, and one that reads is not."""
    first = Stream(server, "POST", sandbox + "/commands", {
        "command": "read go; head -c 12000000 /dev/zero", "stdin": True, "stream": True,
        "tag": "much"})
    assert first.next()[0] == "start"
    silent, other = (Stream(server, "GET", sandbox + "/commands/much/output") for _ in "12")
    assert silent.next()[0] == other.next()[0] == "start"
    assert server.ask("POST", sandbox + "/commands/much/stdin", b"\n").status == 204
    found = []
    reader = threading.Thread(target=lambda: found.extend(other.rest()))
    reader.start()
    events = first.rest()
    reader.join()
    for seen in (events, found):
        assert sum(len(data[1]) for name, data in seen if name == "output") == 12000000
        assert seen[-1] == ("end", {"exit_code": 0, "timed_out": False})
    event = silent.next()
    while event[0] == "output":
        event = silent.next()
    assert event[0] == "error" and "1 MiB behind" in event[1]["message"]
    for stream in (first, silent, other):
        stream.close()


@pytest.mark.parametrize("tag", ["two words", " lead", "a%20b", "a+b", "a?b#c", "~x"])
def test_a_tag_is_any_printable_text(server, sandbox, tag):
    """It names the command in paths, escaped as any component is."""
    started = server.ask("POST", sandbox + "/commands", {"command": "sleep 1000", "tag": tag})
    assert started.status == 201, started.body
    name = urllib.parse.quote(tag, safe="")
    answer = server.ask("POST", "%s/commands/%s/signal" % (sandbox, name), {"signal": 9})
    assert answer.status == 204, answer.body
    until(lambda: not [c for c in server.ask("GET", sandbox + "/commands").json["commands"]
                       if c["tag"] == tag and c["running"]])
