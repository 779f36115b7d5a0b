"""A network of a sandbox's own that leads back, `loopback=True`: what it has, and where it ends."""
import socket

import pytest

import droste

LEVELS = ("full", "light")
MEET = """
import socket
def meet(port, host="127.0.0.1"):
    with socket.socket() as server:
        server.bind((host, port))
        server.listen()
        with socket.create_connection((host, port), 5) as client:
            client.send(b"x")
            with server.accept()[0] as accepted:
                return accepted.recv(1)
"""


@pytest.fixture(scope="module", params=LEVELS)
def sessions(request):
    """Two of one zygote."""
    made = [droste.Interpreter(loopback=True, isolation=request.param) for _ in range(2)]
    try:
        for interp in made:
            interp.start()
    except droste.UnsupportedError as e:
        pytest.skip("%s is not available here: %s" % (request.param, e))
    yield made
    for interp in made:
        interp.shutdown()


def test_programs_of_a_sandbox_meet(sessions):
    """Its cells, and its commands; both sandboxes may take one port."""
    for interp in sessions:
        result = interp.execute(MEET + "s = socket.create_server(('127.0.0.1', 8001))\n"
                                "print(meet(8002), meet(8003, '127.1.2.3'))")
        assert result.stdout == "b'x' b'x'\n", result.error
        assert interp.commands.run(["python3", "-c", "import socket\n"
                                    "socket.create_connection(('127.0.0.1', 8001), 5)"]).ok


def test_nothing_else_is_reached(sessions):
    """Neither a sandbox beside it nor this machine."""
    first, second = sessions
    first.execute("import socket; only = socket.create_server(('127.0.0.1', 8010))")
    with socket.create_server(("127.0.0.1", 0)) as here:
        for port in (8010, here.getsockname()[1]):
            error = second.execute("import socket\n"
                                   "socket.create_connection(('127.0.0.1', %d), 5)" % port).error
            assert error and error.type == "ConnectionRefusedError"
    assert "unreachable" in second.execute(
        "socket.create_connection(('192.0.2.1', 80), 5)").error.message


def test_without_it_there_is_none():
    with droste.Interpreter() as interp:
        assert interp.execute(MEET + "meet(8001)").error.type in ("OSError", "PermissionError")


def test_it_is_refused_where_there_is_no_namespace():
    for more in ({"isolation": "process"}, {"env": "modal"}):
        with pytest.raises(droste.UnsupportedError, match="loopback"), \
                droste.Interpreter(loopback=True, **more) as interp:
            interp.start()
