"""Jupyter's server API: kernels that are sandboxes, over both formats of its WebSocket."""
import base64
import json
import struct

import pytest

import websocket
from server_process import WORKERS, Server, until
from jupyter_channel import BINARY, Channel, packed, reply
from test_keys import create

NONE = "00000000-0000-0000-0000-000000000000"


def start_kernel(server, **body):
    answer = server.ask("POST", "/api/kernels", body)
    assert answer.status == 201, answer.body
    assert answer.headers["Location"] == "/api/kernels/" + answer.json["id"]
    return answer.json["id"]


@pytest.fixture
def kernel(server):
    made = start_kernel(server)
    yield made
    server.ask("DELETE", "/api/kernels/" + made)


@pytest.fixture
def channel(server, kernel):
    client = Channel(server, kernel)
    assert client.status == 101
    yield client
    client.close()


@pytest.mark.parametrize("binary", [False, True])
def test_a_kernel_runs_cells(server, kernel, binary):
    client = Channel(server, kernel, binary)
    assert (BINARY in client.head) == binary
    info = client.ask("kernel_info_request")
    assert info["language_info"]["name"] == "python" and info["protocol_version"] == "5.3"
    assert info["language_info"]["version"].startswith("3.")
    shown, reply = client.run("x = 20\nprint('é')\nx + 1")
    assert shown[0] == ("stream", {"name": "stdout", "text": "é\n"})
    assert shown[1][0] == "execute_result" and shown[1][1]["data"] == {"text/plain": "21"}
    assert (reply["status"], reply["execution_count"]) == ("ok", 1)
    assert client.run("x")[0][0][1]["data"]["text/plain"] == "20"
    client.close()


def test_an_error_ends_the_cells_that_wait(channel):
    """The first waits for a text, which is sent behind the other two: so they wait, too."""
    cells = [channel.tell("execute_request", {"code": code, "stop_on_error": stop})
             for code, stop in (("input(); 1 / 0", False), ("2 / 0", True), ("3", True))]
    kinds = [reply(channel.answers(number, "go"))["status"] for number in cells]
    assert kinds == ["error", "error", "aborted"]
    shown, end = channel.run("x = 1\n1 / 0")
    assert shown[0][0] == "error" and shown[0][1]["ename"] == end["ename"] == "ZeroDivisionError"
    assert "1 / 0" in "\n".join(end["traceback"])
    assert channel.run("x")[1]["status"] == "ok"


def test_what_an_editor_asks(channel):
    channel.run("number = 3")
    names = channel.ask("complete_request", code="x = numb", cursor_pos=8)
    assert (names["matches"], names["cursor_start"], names["cursor_end"]) == (["number"], 4, 8)
    found = channel.ask("inspect_request", code="len(", cursor_pos=4, detail_level=0)
    assert found["found"] and "number of items" in found["data"]["text/plain"]
    assert not channel.ask("inspect_request", code="no_such", cursor_pos=3)["found"]
    states = [channel.ask("is_complete_request", code=code)["status"]
              for code in ("x = 1", "for i in x:", "x = )", "await f()")]
    assert states == ["complete", "incomplete", "invalid", "complete"]
    assert channel.ask("history_request", hist_access_type="tail", n=1)["history"] == [
        [1, 1, "number = 3"]]
    assert channel.ask("history_request", hist_access_type="search", pattern="no*")["history"] == []
    channel.run("number = 3")
    found = [channel.ask("history_request", hist_access_type=access, **more)["history"]
             for access, more in (("search", {"pattern": "num*", "unique": True}),
                                  ("range", {"start": 1, "stop": 2, "output": True}))]
    assert found == [[[1, 2, "number = 3"]], [[1, 1, ["number = 3", None]]]]
    assert channel.ask("comm_info_request")["comms"] == {}
    assert channel.ask("magic_request")["status"] == "error"
    assert channel.ask("kernel_info_request", "control")["status"] == "ok"
    expressions = channel.run("", user_expressions={"a": "number + 1", "b": "1 / 0"})[1]
    assert expressions["user_expressions"]["a"]["data"] == {"text/plain": "4"}
    assert expressions["user_expressions"]["b"]["ename"] == "ZeroDivisionError"


def test_silent_cells_show_and_count_nothing(channel):
    channel.run("1")
    assert channel.run("print(1)\n2", silent=True)[0] == []
    assert channel.run("3")[1]["execution_count"] == 2


def test_input_asks_the_client(channel):
    shown, reply = channel.run("import getpass\ninput('Name? ') + getpass.getpass()", typed="b")
    assert reply["status"] == "ok" and shown[0][1]["data"]["text/plain"] == "'bb'"
    shown, reply = channel.run("input()", allow_stdin=False)
    assert reply["ename"] == "StdinNotImplementedError" and channel.run("1")[1]["status"] == "ok"


def test_a_client_that_leaves_does_not_hold_the_kernel(server, kernel, channel):
    """input() that asked it fails, and its cells go on."""
    leaving = Channel(server, kernel)
    leaving.tell("execute_request", {"code": "try: input()\nexcept EOFError: x = 'left'"})
    while leaving.heard_one()["header"]["msg_type"] != "input_request":
        pass
    leaving.close()
    assert channel.run("x")[0][0][1]["data"]["text/plain"] == "'left'"


def test_results_can_be_updated_and_removed(channel):
    shown, _ = channel.run("h = display(1, display_id='a')\nh.update(2)\nclear_output()\n"
                           "class P:\n  def _repr_png_(self): return b'png'\nP()")
    assert [kind for kind, _ in shown] == [
        "display_data", "update_display_data", "clear_output", "execute_result"]
    assert shown[1][1]["transient"] == {"display_id": "a"}
    assert base64.b64decode(shown[3][1]["data"]["image/png"]) == b"png"


def test_nothing_that_a_cell_shows_runs_in_the_page(channel):
    """HTML is in a frame without scripts, an SVG is an image, JavaScript is not shown."""
    shown, _ = channel.run('''
class Page:
    def _repr_html_(self): return '<script>alert(1)</script>"\\'&'
class Drawing:
    def _repr_svg_(self): return '<svg onload="alert(1)"/>'
class Script:
    def _repr_javascript_(self): return 'alert(1)'
display(Page(), Drawing(), Script())''')
    page, drawing, script = (content["data"] for _, content in shown)
    assert page["text/html"].startswith("<iframe sandbox=''") and "<script" not in page["text/html"]
    assert "&lt;script&gt;" in page["text/html"] and page["text/html"].count('"') == 2
    assert drawing["text/html"].startswith("<img src='data:image/svg+xml;base64,")
    assert list(script) == ["text/plain"]


def test_checkpoints_and_forks_are_magics(server, channel):
    cells = ["x = 1", "%checkpoint", "x = 2", "%rollback", "x", "%fork other", "%session other",
             "x = 5; input()", "%session main", "x", "%sessions", "%session none", "%rollback 99",
             "%fork other", "%matplotlib inline"]
    out = [channel.run(code, typed="i") for code in cells]
    texts = [shown[0][1] for shown, _ in out if shown]
    assert texts[0]["text"] == "checkpoint 1\n"
    assert texts[1]["text"] == "rolled back to checkpoint 1\n"
    assert texts[2]["data"]["text/plain"] == texts[7]["data"]["text/plain"] == "1"
    assert texts[8]["text"] == "* main\n  other\n"
    assert [reply["status"] for _, reply in out[-4:]] == ["error"] * 4
    assert len(server.ask("GET", "/v1/sandboxes").json["sandboxes"]) == 2


@pytest.mark.parametrize("over", ["rest", "control"])
def test_an_interrupt_keeps_the_variables(server, kernel, channel, over):
    number = channel.tell("execute_request", {"code": "x = 1\nprint(1)\nwhile True: pass"})
    while channel.heard_one()["header"]["msg_type"] != "stream":
        pass
    if over == "control":
        channel.tell("interrupt_request", {}, "control")
    else:
        assert server.ask("POST", "/api/kernels/%s/interrupt" % kernel).status == 204
    heard = channel.answers(number)
    assert [m["content"]["ename"] for m in heard if "ename" in m["content"]] == [
        "KeyboardInterrupt"] * 2
    assert channel.run("x")[0][0][1]["data"]["text/plain"] == "1"


def test_a_restart_forgets_the_variables_and_what_waits(server, kernel, channel):
    channel.run("x = 1")
    number = channel.tell("execute_request", {"code": "print(1)\nwhile True: pass"})
    while channel.heard_one()["header"]["msg_type"] != "stream":
        pass
    waits = channel.tell("execute_request", {"code": "1"})
    answer = server.ask("POST", "/api/kernels/%s/restart" % kernel)
    assert answer.status == 200 and answer.json["id"] == kernel
    for one in (number, waits):
        assert channel.answers(one)[-2]["content"] == {"status": "aborted"}
    number = channel.tell("execute_request", {"code": "'x' in globals()"})
    states = []     # without "restarting", which says that a kernel has died
    while states[-1:] != ["idle"]:
        message = channel.heard_one()
        states += [s for s in [message["content"].get("execution_state")] if s]
        if message["header"]["msg_type"] == "execute_result":
            assert message["content"]["data"]["text/plain"] == "False"
            assert message["content"]["execution_count"] == 1
    assert states == ["busy", "idle"]
    assert len(server.ask("GET", "/v1/sandboxes").json["sandboxes"]) == 1


def test_a_sandbox_that_ends_is_an_error_and_a_new_one_begins(channel):
    _, lost = channel.run("import os; os._exit(3)")
    assert lost["status"] == "error" and "exited with status 3" in lost["evalue"]
    assert channel.heard_one()["content"] == {"execution_state": "restarting"}
    assert channel.run("6 * 7")[0][0][1]["data"]["text/plain"] == "42"


def closes(client):
    """The status with which the server closes; messages before it are read."""
    return client.closing()


@pytest.mark.parametrize("how", ["delete", "shutdown", "sandbox"])
def test_the_end_of_a_kernel_leaves_nothing(server, how):
    kernel = start_kernel(server)
    client = Channel(server, kernel)
    client.run("%fork other")
    if how == "delete":
        assert server.ask("DELETE", "/api/kernels/" + kernel).status == 204
    elif how == "shutdown":
        client.tell("shutdown_request", {"restart": False}, "control")
    else:
        first = server.ask("GET", "/v1/sandboxes").json["sandboxes"][-1]["id"]
        server.ask("DELETE", "/v1/sandboxes/" + first)
    assert closes(client) == 1000
    states = [json.loads(data)["content"].get("execution_state") for opcode, data in client.heard
              if opcode == websocket.TEXT]
    assert states[-1] == "dead"
    assert server.ask("GET", "/api/kernels/" + kernel).status == 404
    until(lambda: not server.ask("GET", "/v1/sandboxes").json["sandboxes"])


def connected(client):
    """The client; None: its kernel had ended already."""
    return client if client.status == 101 else client.close()


def test_an_unused_kernel_ends_also_with_a_client(start):
    server = start("--idle", "1")
    client = until(lambda: connected(Channel(server, start_kernel(server))))
    assert closes(client) == 1000
    until(lambda: server.ask("GET", "/api/kernels").json == [])


def test_the_environment_of_a_kernel(server):
    kernel = start_kernel(server, name="droste", env={"KERNEL_USERNAME": "me"})
    client = Channel(server, kernel)
    for _ in range(2):
        shown, _ = client.run("import os; os.environ['KERNEL_USERNAME']")
        assert shown[0][1]["data"]["text/plain"] == "'me'"
        server.ask("POST", "/api/kernels/%s/restart" % kernel)
    server.ask("DELETE", "/api/kernels/" + kernel)


HEADER = {"msg_id": "1", "msg_type": "execute_request", "version": "5.3"}
WHOLE = {"channel": "shell", "header": HEADER, "content": {"code": "1"}}
BAD_TEXTS = [b"{", b"[]", b"null", b'{"header": {}}', b'{"header": 1, "content": {}}',
             *(json.dumps({**WHOLE, **change}).encode() for change in (
                 {"channel": "iopub"}, {"channel": "hb"}, {"content": None}, {"header": {}},
                 {"header": {**HEADER, "version": "4.1"}}, {"header": {**HEADER, "msg_id": 1}},
                 {"header": {**HEADER, "msg_type": "x" * 100}}))]


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_malformed_messages_end_their_connection_only(server, kernel, channel, text):
    bad = Channel(server, kernel)
    bad.send(websocket.TEXT, text)
    assert closes(bad) == 1008
    assert channel.run("1")[1]["status"] == "ok"


GOOD = packed("shell", {"header": HEADER, "parent_header": {}, "metadata": {},
                        "content": {"code": "1"}})


@pytest.mark.parametrize("data", [
    b"", b"\0" * 8, GOOD[:40], b"\xff" * 64, struct.pack("<Q", 1 << 60) + GOOD[8:],
    GOOD[:8] + struct.pack("<Q", 1 << 63) + GOOD[16:],
    GOOD[:24] + struct.pack("<Q", 1) + GOOD[32:], GOOD[:-5]])
def test_malformed_tables_end_their_connection_only(server, kernel, data):
    bad, good = Channel(server, kernel, True), Channel(server, kernel, True)
    bad.send(websocket.BINARY, data)
    assert closes(bad) == 1008
    good.send(websocket.BINARY, GOOD)
    assert good.answers("1")[-2]["content"]["status"] == "ok"


def test_buffers_before_a_text_message(server, kernel, channel):
    """Clients send them for widgets; what they are in is read, and a wrong table is refused."""
    text = json.dumps(WHOLE).encode()
    channel.send(websocket.BINARY, struct.pack("!III", 2, 12, 12 + len(text)) + text + b"buffer")
    assert channel.answers("1")[-2]["content"]["status"] == "ok"
    for table in (struct.pack("!III", 2, 12, 1 << 31), struct.pack("!I", 0), b"\xff" * 12):
        bad = Channel(server, kernel)
        bad.send(websocket.BINARY, table)
        assert closes(bad) == 1008


def test_a_message_has_a_largest_size(server, kernel, channel):
    assert channel.run("len(%r)" % ("x" * (1 << 20)))[0][0][1]["data"]["text/plain"] == "1048576"
    bad = Channel(server, kernel)
    bad.socket.sendall(struct.pack("!BBQ", 0x81, 0x80 | 127, 64 << 20) + b"mask")
    assert closes(bad) == 1009


def test_a_comm_is_closed_at_once(channel):
    channel.tell("comm_open", {"comm_id": "c", "target_name": "widget", "data": {}})
    kinds = []
    while "comm_close" not in kinds:
        kinds.append(channel.heard_one()["header"]["msg_type"])
    assert channel.run("1")[1]["status"] == "ok"


def test_what_there_is_not(server):
    """Errors have the form that Jupyter's clients read."""
    for method, path, body, status in (
            ("GET", "/api/kernels/" + NONE, None, 404), ("GET", "/api/kernels/x", None, 404),
            ("DELETE", "/api/sessions/" + NONE, None, 404), ("GET", "/api/nothing", None, 404),
            ("GET", "/api/kernelspecs/ir", None, 404), ("PUT", "/api/kernels", None, 405),
            ("POST", "/api/kernels", {"name": "ir"}, 404),
            ("POST", "/api/kernels", {"name": 1}, 400),
            ("POST", "/api/kernels", {"env": {"A=": ""}}, 400),
            ("GET", "/api/kernels/%s/channels" % NONE, None, 404)):
        answer = server.ask(method, path, body)
        assert answer.status == status, (method, path, answer.body)
        assert set(answer.json) == {"message", "reason"}


def test_without_the_flag_there_are_no_files(server):
    for method, path in (("GET", ""), ("GET", "/a"), ("PUT", "/a"), ("POST", "/a/checkpoints")):
        answer = server.ask(method, "/api/contents" + path, {} if method != "GET" else None)
        assert answer.status == 404 and "--notebooks DIR" in answer.json["message"]


def test_what_there_is(server, kernel):
    assert server.ask("GET", "/api").json == {"version": "2.0.0"}
    specs = server.ask("GET", "/api/kernelspecs").json
    assert specs["default"] == "python3" and set(specs["kernelspecs"]) == {"python3", "droste"}
    one = server.ask("GET", "/api/kernelspecs/python3").json
    assert one == specs["kernelspecs"]["python3"] and one["spec"]["language"] == "python"
    assert server.ask("GET", "/api/me").json["identity"]["username"] == "local"
    assert server.ask("GET", "/api/status").json["kernels"] == 1
    model = server.ask("GET", "/api/kernels/" + kernel).json
    assert server.ask("GET", "/api/kernels").json[0]["id"] == model["id"] == kernel
    assert model["execution_state"] in ("idle", "busy") and model["connections"] == 0


def test_notebooks_have_kernels(server):
    made = server.ask("POST", "/api/sessions", {"path": "a.ipynb", "name": "a", "type": "notebook",
                                                "kernel": {"name": "python3"}})
    assert made.status == 201 and made.json["notebook"] == {"path": "a.ipynb", "name": "a"}
    place, kernel = "/api/sessions/" + made.json["id"], made.json["kernel"]["id"]
    again = server.ask("POST", "/api/sessions", {"path": "a.ipynb", "kernel": {"name": "python3"}})
    assert again.json["id"] == made.json["id"]
    other = server.ask("POST", "/api/sessions", {"path": "b", "kernel": {"id": kernel}})
    assert other.json["kernel"]["id"] == kernel
    assert len(server.ask("GET", "/api/sessions").json) == 2
    moved = server.ask("PATCH", place, {"path": "c.ipynb", "kernel": {"name": "droste"}})
    assert moved.status == 200 and moved.json["path"] == "c.ipynb"
    assert moved.json["kernel"]["id"] != kernel
    assert server.ask("GET", "/api/kernels/" + kernel).status == 404
    until(lambda: server.ask("GET", place).json["kernel"]["execution_state"] == "idle")
    assert server.ask("GET", "/api/sessions").json == [server.ask("GET", place).json]
    assert server.ask("POST", "/api/sessions", {"kernel": {"id": NONE}}).status == 404
    assert server.ask("DELETE", place).status == 204
    assert server.ask("GET", "/api/kernels").json == server.ask("GET", "/api/sessions").json == []


@pytest.mark.parametrize("workers", ["1"] if WORKERS == "1" else ["1", WORKERS])
def test_kernels_belong_to_keys(tmp_path, workers):
    """A key is a token in a field or in the query, which no log has."""
    one, other, reader = (create(tmp_path, name, "--scopes", scopes) for name, scopes in (
        ("one", "read,sandboxes"), ("other", "read,sandboxes"), ("reader", "read")))
    log, audit = tmp_path / "log", tmp_path / "audit"
    with open(log, "w") as stderr:
        server = Server(tmp_path, "--log-level", "debug", "--audit-log", str(audit), stderr=stderr,
                        workers=workers)
    assert server.ask("GET", "/api").status == 200
    for field in ({}, {"Authorization": "token " + one[:-1] + "x"}, {"Authorization": one}):
        assert server.ask("POST", "/api/kernels", {}, field).status == 401
    made = server.ask("POST", "/api/kernels", {}, {"Authorization": "token " + one})
    path = "/api/kernels/" + made.json["id"]
    assert server.ask("GET", path + "?token=" + one).json["id"] == made.json["id"]
    assert server.ask("GET", "/v1/sandboxes?token=" + one).status == 401
    assert server.ask("GET", path + "?token=" + other).status == 404
    assert server.ask("GET", "/api/kernels?token=" + other).json == []
    assert server.ask("POST", "/api/kernels?token=" + reader, {}).status == 403
    assert Channel(server, made.json["id"]).status == 401
    assert Channel(server, made.json["id"], query="?token=" + reader).status == 403
    client = Channel(server, made.json["id"], query="?session_id=s&token=" + one)
    assert client.run("6 * 7")[0][0][1]["data"]["text/plain"] == "42"
    client.close()
    assert server.ask("DELETE", path + "?token=" + one).status == 204
    assert server.stop() == 0
    text = log.read_text() + audit.read_text()
    assert path in text and one not in text and other not in text and "token" not in text


def test_kernels_of_several_workers(tmp_path):
    """Each connection may come to another worker than the kernel's."""
    server = Server(tmp_path, workers="2")
    kernels = [start_kernel(server) for _ in range(2)]
    for kernel in kernels * 2:
        client = Channel(server, kernel, binary=True)
        assert client.run("1 + 1")[1]["status"] == "ok"
        client.close()
        assert {k["id"] for k in server.ask("GET", "/api/kernels").json} == set(kernels)
        assert server.ask("GET", "/api/status").json["kernels"] == 2
    assert server.stop() == 0
