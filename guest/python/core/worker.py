"""The main loop of a worker, and the rehearsal that prepares its pages."""
from __future__ import annotations

import _socket
import builtins
import os
import select
import sys
import types
from typing import TYPE_CHECKING, Any, Callable

from .cell import execute, source_cache
from .fork_map import close_status
from .forking import fork_session
from .frames import (CLOSE, COMMAND, EXEC, FILE, FORK, HEADER, HELLO, OFFER, READY, RESTORE,
                     SAVE, SET, VERSION)
from .images import refuse_operation, restore_session, save_session
from .lazy import load_lazy_modules
from .link import Link
from .output import flush_output
from .packages import enter_packages
from .serve_files import files_of_host
from .serve_ports import commands_of_host
from .session import Session
from .state import state
from .tools import define_tools, withdraw_tool
from .variables import set_variable
from droste._encoding.json_text import read_json
from ..helpers.public import HELPERS
from ..helpers.texts import search_plain_text
from ..helpers.volume import enter_volume, volume_places
from ..helpers.workspace import enter_workspace, workspace_places

if TYPE_CHECKING:
    from .aliases import Blob, Head

IDLE_MS = 1000      # without an operation, before freed memory is returned
READY_FRAME = HEADER.pack(VERSION, READY, 0, 0, 0, 0)


def find_seeds() -> list[Callable[[], Any]]:
    """Returns functions that reseed random generators, whose state clones inherit."""
    found: list[Callable[[], Any]] = []
    random = sys.modules.get("random")
    if random is not None:
        seed = super(random.Random, random._inst).seed  # the C base class: touches half the pages
        # seed() without arguments reads 2.5 KB from the kernel; 256 bits suffice in half the time.
        found.append(lambda: seed(int.from_bytes(os.urandom(32), "little")))
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):      # imports numpy.random if it is lazy
        seed_numpy = numpy.random.seed
        # seed() without arguments mixes much more entropy, which takes a millisecond.
        found.append(lambda: seed_numpy(memoryview(os.urandom(32)).cast("I").tolist()))
    return found


def apply_hello(head: Head, blob: Blob) -> None:
    for name, value in head.get("env", {}).items():
        os.environ[name] = value
    if "trusted" in head:
        with open(head["trusted_file"], "w", encoding="utf-8") as file:
            file.write(head["trusted"])
    state.session.output_fields = head.get("output_fields")
    if "packages" in head:
        enter_packages(head["packages"])
    own = os.getcwd()
    if head.get("cwd"):
        os.chdir(head["cwd"])
    if "volume" in head:
        enter_volume(head["volume"])
    if "workspace" in head:
        enter_workspace(head["workspace"])
    if head.get("helpers") is False:
        for helper in HELPERS:
            vars(builtins).pop(helper.__name__, None)       # a template may lack them already
    if head.get("literal_grep"):
        search_plain_text()
    state.session.restore_names(head.get("restored", ()))
    if "rules" in head:
        load_lazy_modules()     # their files are not the user's
        head["rules"]["write"] = [own] + volume_places() + workspace_places()
        rules = types.ModuleType("droste_rules")
        exec(compile(blob, __file__, "exec"), rules.__dict__)
        state.session.use(rules.lay(head["rules"]))
    define_tools(head.get("tools", ()))


def take_offer(head: Head) -> None:
    """Handles OFFER: changes the output fields and the tools."""
    if "output_fields" in head:
        state.session.output_fields = head["output_fields"] or None
    for name in head.get("gone", ()):
        withdraw_tool(name)
    define_tools(head.get("tools", ()))


def ask_first(host: _socket.socket, ident: int) -> None:
    """Sends what a host sends first: HELLO and a typical cell."""
    for kind, head, blob in ((HELLO, b"", b""), (EXEC, b'{"echo":true}', b"x = 1 + 1")):
        host.sendall(HEADER.pack(VERSION, kind, 0, len(head), ident, len(blob)) + head + blob)


def serve_first() -> None:
    for _ in range(2):
        serve(*state.link.next_operation())


class Rehearsal:
    """A temporary channel and session, for cells whose effects are discarded."""

    def __enter__(self) -> Rehearsal:
        self.kept, self.main = (state.link, state.session), sys.modules["__main__"]
        self.host, guest = _socket.socketpair()
        state.link, state.session = Link(guest.detach()), Session()
        state.session.start()
        state.link.owner = os.getpid()
        return self

    def play(self, ident: int) -> None:
        ask_first(self.host, ident)
        serve_first()

    def __exit__(self, *error: Any) -> None:
        rehearsed = state.link
        (state.link, state.session), sys.modules["__main__"] = self.kept, self.main
        rehearsed.sock.close()          # no interrupt handler refers to it any more
        self.host.close()
        source_cache().clear()


def rehearse(rounds: int) -> None:
    """Runs cells and discards their effects.

    In the zygote, this makes the interpreter specialise the code of this path (3.11 and later store
    that in the code itself) and fill its caches, which clones then share. A standby clone rehearses
    once to copy the pages that a first cell writes to.
    """
    with Rehearsal() as stage:
        for ident in range(1, rounds + 1):
            state.session.namespace.pop("x", None)
            stage.play(ident)
            stage.host.recv(65536)


def serve(kind: int, ident: int, text: bytes, blob: Blob) -> None:
    head = read_json(text) if text else {}
    if state.refusal is not None and kind in (EXEC, SET, FORK, SAVE):
        refuse_operation(ident)
    elif kind == EXEC:
        execute(ident, head, blob)
    elif kind == SET:
        set_variable(ident, head, blob)
    elif kind == HELLO:
        if head:
            apply_hello(head, blob)
        state.link.send_queue.append(READY_FRAME)
        if state.link.is_late:
            state.link.flush()
    elif kind == OFFER:
        take_offer(head)
    elif kind == FILE:
        files_of_host.serve(ident, head, blob)
    elif kind == COMMAND:
        commands_of_host.serve(ident, head, blob)
    elif kind == FORK and not head:
        fork_session(ident, blob)
    elif kind == FORK:
        close_status(blob)      # for a call that has been given up
    elif kind == SAVE:
        save_session(ident, blob, head)
    elif kind == RESTORE:
        restore_session(blob)
    elif kind == CLOSE:
        flush_output()
        os._exit(0)


def begin() -> bool:
    """Starts a clone. Returns false if the host has not sent anything yet."""
    state.link.owner = os.getpid()
    state.serve = serve
    for seed in state.seeds:
        seed()
    state.link.enter()                    # an interrupt must not start a nested read
    try:
        state.link.receive(_socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    finally:
        state.link.leave()
    return True


def give_memory_back() -> None:
    """Once the session is idle after a cell that took much memory, returns what it has freed.

    The allocator keeps freed blocks for later; a session may wait for its next cell for hours.
    """
    link = state.link
    if state.library is None or link.inbox or commands_of_host.commands:
        return
    if not state.library.heap_has_grown():
        return
    idle = select.poll()        # of its own: a thread of the session may be in the link's
    idle.register(link.sock.fileno(), select.POLLIN)
    link.enter()
    try:
        if not idle.poll(IDLE_MS):
            state.library.heap_trim()
    finally:
        link.leave()


def work() -> None:
    """Serves operations until the host closes the channel."""
    if not begin():
        rehearse(1)     # standby: the host has sent nothing yet
    while True:
        give_memory_back()
        serve(*commands_of_host.next_operation())
