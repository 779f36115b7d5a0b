"""The main loop of a clone."""
import _socket
import builtins
import json
import linecache
import os
import sys
import types

from .cell import execute
from .frames import CLOSE, EXEC, HEADER, HELLO, OFFER, READY, SET, VERSION
from .link import Link
from .output import flush_output
from .session import Session
from .state import state
from .tools import define_tools, withdraw_tool
from .variables import set_variable
from ..helpers.public import HELPERS
from ..helpers.texts import search_plain_text
from ..helpers.volume import enter_volume, volume_places
from ..helpers.workspace import enter_workspace, workspace_places

READY_FRAME = HEADER.pack(VERSION, READY, 0, 0, 0, 0)


def find_seeds():
    """Functions that give the random generators a new state; a clone copies that of the zygote."""
    random = sys.modules["random"]
    seed = super(random.Random, random._inst).seed      # in C: half the pages touched
    # By itself it would ask the kernel for 2.5 KB; 256 bits are as good, and take half the time.
    found = [lambda: seed(int.from_bytes(os.urandom(32), "little"))]
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):      # which imports it, where numpy would later
        seed_numpy = numpy.random.seed
        # By itself it would mix much more, in a millisecond.
        found.append(lambda: seed_numpy(memoryview(os.urandom(32)).cast("I").tolist()))
    return found


def settle():
    """Among the host's files: the directory that the plan leads to is the session's own, for temporary
    files too. In a root of its own that is /tmp, as the environment says already."""
    os.environ["HOME"] = os.environ["TMPDIR"] = os.getcwd()
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].tempdir = None


def apply_hello(head, blob):
    for name, value in head.get("env", {}).items():
        os.environ[name] = value
    state.session.output_fields = head.get("output_fields")
    own = os.getcwd()
    if head.get("cwd"):
        os.chdir(head["cwd"])
    if "volume" in head:
        enter_volume(head["volume"])
    if "workspace" in head:
        enter_workspace(head["workspace"])
    if head.get("helpers") is False:
        for helper in HELPERS:
            delattr(builtins, helper.__name__)
    if head.get("literal_grep"):
        search_plain_text()
    state.session.restore_names(head.get("restored", ()))
    if "rules" in head:
        head["rules"]["write"] = [own] + volume_places() + workspace_places()
        rules = types.ModuleType("droste_rules")
        exec(compile(blob, __file__, "exec"), rules.__dict__)
        state.session.use(rules.lay(head["rules"]))
    define_tools(head.get("tools", ()))


def take_offer(head):
    """What the session has from now on: other fields of the answer, other tools."""
    if "output_fields" in head:
        state.session.output_fields = head["output_fields"] or None
    for name in head.get("gone", ()):
        withdraw_tool(name)
    define_tools(head.get("tools", ()))


def ask_first(host, ident):
    """What a host says first, on the other end of a channel: a greeting and a cell, as most are."""
    for kind, head, blob in ((HELLO, b"", b""), (EXEC, b'{"echo":true}', b"x = 1 + 1")):
        host.sendall(HEADER.pack(VERSION, kind, 0, len(head), ident, len(blob)) + head + blob)


def serve_first():
    for _ in range(2):
        serve(*state.link.next_operation())


class Rehearsal:
    """A channel and a session of their own, for cells that are forgotten."""

    def __enter__(self):
        self.kept, self.main = (state.link, state.session), sys.modules["__main__"]
        self.host, guest = _socket.socketpair()
        state.link, state.session = Link(guest.detach()), Session()
        state.session.start()
        state.link.owner = os.getpid()
        return self

    def play(self, ident):
        ask_first(self.host, ident)
        serve_first()

    def __exit__(self, *error):
        rehearsed = state.link
        (state.link, state.session), sys.modules["__main__"] = self.kept, self.main
        rehearsed.sock.close()          # nobody reads it any more, not even an interrupt
        self.host.close()
        linecache.cache.clear()


def rehearse(rounds):
    """Runs cells and forgets them.

    In the zygote: the interpreter has then specialised the code of this path (3.11 and later write
    that into the code itself) and has filled its caches, and clones share the result. In a clone
    that is made in advance: it has the time to copy the pages that a first cell writes to."""
    with Rehearsal() as stage:
        for ident in range(1, rounds + 1):
            state.session.namespace.pop("x", None)
            stage.play(ident)
            stage.host.recv(65536)


def serve(kind, ident, head, blob):
    head = json.loads(head) if head else {}
    if kind == EXEC:
        execute(ident, head, blob)
    elif kind == SET:
        set_variable(ident, head, blob)
    elif kind == HELLO:
        if head:
            apply_hello(head, blob)
        state.link.outbox.append(READY_FRAME)
        if state.link.is_late:
            state.link.flush()
    elif kind == OFFER:
        take_offer(head)
    elif kind == CLOSE:
        flush_output()
        os._exit(0)


def begin():
    """What a clone does first; false if nothing was asked of it yet."""
    state.link.owner = os.getpid()
    for seed in state.seeds:
        seed()
    state.link.enter()                    # else an interrupt would read within this reading
    try:
        state.link.receive(_socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    finally:
        state.link.leave()
    return True


def work():
    """Serves operations until the host closes the channel."""
    if not begin():
        rehearse(1)     # there is time
    while True:
        serve(*state.link.next_operation())
