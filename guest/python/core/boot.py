"""The zygote: boots once, preloads modules, and becomes a worker in each clone."""
from __future__ import annotations

import _signal
import _socket
import builtins
import gc
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from .forking import other_threads
from .frames import CHANNEL_FD, plain
from .hooks import hook_libraries
from .images import begin_place
from .lazy import load_lazy_modules
from .link import Link, on_interrupt
from .session import Session
from .signals import hold_handlers_back
from .state import state
from .worker import ask_first, begin, find_seeds, rehearse, serve_first, work
from droste._encoding.json_text import write_json
from ..helpers.public import HELPERS, PUBLIC

if TYPE_CHECKING:
    from .aliases import Head

PRELOAD = ("collections", "csv", "datetime", "functools", "heapq", "itertools", "math", "random",
           "re", "string", "textwrap", "time")


# Results of zygote_serve() in guest/zygote/zygote.c.
SERVE_END, SERVE_WORKER, SERVE_WORKER_AMONG_FILES = 0, 1, 2
REHEARSALS = 16     # CPython specialises code after eight runs
THREADS_MAY_END = 20    # checks, 50 ms apart, for threads that an imported module left running


def facts() -> Head:
    """Describes this interpreter; the host binds it into sandboxes accordingly."""
    return {
        "python": sys.version.split()[0],
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix],
        "path": [p for p in sys.path if p],
    }


class ForkHooks:
    """Records whether a preloaded module registers hooks with `os.register_at_fork`.

    A clone runs the hooks only if `wanted` is true, because they take half as long as the clone
    itself. The hooks of `random` do not count: find_seeds() does their work.
    """

    def __init__(self) -> None:
        self.register = os.register_at_fork
        # Modules imported by the site's start-up code may have registered hooks already.
        self.wanted = bool({"random", "threading"} & set(sys.modules))

    def __enter__(self) -> ForkHooks:
        os.register_at_fork = self.note
        return self

    def note(self, **hooks: Any) -> None:
        self.register(**hooks)
        self.wanted = self.wanted or hooks.keys() != {"after_in_child"} or (
            getattr(hooks["after_in_child"], "__module__", "") != "random")

    def __exit__(self, *error: Any) -> None:
        os.register_at_fork = self.register


def learn_pages(library: Any) -> None:
    """Finds the pages that a first cell writes to (guest/zygote/pages.c).

    A trial copy of the zygote serves one cell over a channel of its own, as a clone would.
    """
    from_trial, to_zygote = os.pipe()
    host, guest = _socket.socketpair()
    ask_first(host, 1)
    pid = library.zygote_try()
    if pid == 0:
        try:
            os.dup2(guest.fileno(), CHANNEL_FD)
            begin()
            serve_first()
            library.pages_tell(to_zygote)
        finally:
            os._exit(0)
    os.close(to_zygote)
    host.close()
    guest.close()
    library.pages_prepare(from_trial)
    os.close(from_trial)


def tidy_up(scratch_dir: bytes) -> None:
    """Ends the remaining sandboxes and removes their directories after the host has gone.

    Only acts on the scratch directory that the zygote's plan named, never on the current directory.
    """
    if not scratch_dir or not os.path.basename(scratch_dir).startswith(b"droste-"):
        return
    with open("/proc/thread-self/children") as children:
        for keeper in children.read().split():
            try:
                os.kill(int(keeper), signal.SIGTERM)
                os.kill(int(keeper), signal.SIGCONT)    # the guest may have stopped it
            except ProcessLookupError:
                pass
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass
    import shutil
    own = os.geteuid()
    # With root privileges, each directory belongs to another user; the zygote switches to that one.
    for entry in os.scandir(scratch_dir):
        try:
            os.seteuid(entry.stat(follow_symlinks=False).st_uid)
            shutil.rmtree(entry.path, ignore_errors=True)
            os.seteuid(own)
            os.rmdir(entry.path)
        except OSError:
            pass
    shutil.rmtree(scratch_dir, ignore_errors=True)


def find_threads() -> int:
    """Counts other threads, after giving threads that are about to end one second to do so."""
    for _ in range(THREADS_MAY_END):
        if other_threads() == 0:
            break
        time.sleep(0.05)
    return other_threads()


def last_line(text: str) -> str:
    """Returns the last non-blank line, which names the failure in a library's long message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def preload_all(names: list[str]) -> Head | None:
    """Imports modules; returns the report on the first that cannot be preloaded, or None."""
    for name in names:
        try:
            __import__(name)
        except BaseException as e:
            error = plain("%s: %s" % (type(e).__name__, last_line(str(e))))
            return {"module": name, "error": error[:300]}
        threads = find_threads()
        if threads:
            return {"module": name, "threads": threads}
    return None


def refuse_preload(library: Any, control: int, keeper: int, refused: Head) -> None:
    greeting = write_json(dict(facts(), refused=refused))
    library.zygote_hello(control, keeper, greeting, len(greeting), False, False)
    os._exit(1)


def lay_session() -> None:
    """Creates the built-ins and the session that every clone inherits."""
    things: tuple[Any, ...] = PUBLIC + HELPERS
    for thing in things:
        setattr(builtins, thing.__name__, thing)
    hook_libraries()
    state.session = Session()
    state.session.start()


def boot(control: int, helper: int, keeper: int, warm_up: bool, huge_pages: bool,
         preload: list[str]) -> None:
    """Runs the zygote. In each clone zygote_serve() returns, and the clone becomes a worker.

    With `warm_up`, it first takes the time to make clones fast: it pays from the second clone on.
    """
    import ctypes
    library = state.library = ctypes.PyDLL("/proc/self/fd/%d" % helper)
    library.zygote_fork.argtypes = ctypes.c_int, ctypes.c_uint64
    library.zygote_fork_asked.restype = ctypes.c_uint64
    if huge_pages:
        library.huge_pages_use()
    with ForkHooks() as hooks:
        if warm_up:
            load_lazy_modules()
            for name in PRELOAD:
                __import__(name)
        refused = preload_all(preload)
    if refused:
        refuse_preload(library, control, keeper, refused)
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    lay_session()
    # Created before cloning so that clones need not: this descriptor is the control socket here and
    # the channel in a clone.
    state.link = Link(CHANNEL_FD)
    os.close(helper)
    _signal.signal(_signal.SIGINT, on_interrupt)      # a clone may be interrupted before it serves
    hold_handlers_back()
    os.register_at_fork(after_in_child=state.link.cut)
    state.seeds = find_seeds()
    if warm_up:
        rehearse(REHEARSALS)
        gc.collect()
    gc.freeze()
    gc.enable()     # for one start, it is disabled (src/env/local/zygote_boot.c)
    greeting = write_json(facts())
    rc = library.zygote_hello(control, keeper, greeting, len(greeting), hooks.wanted, warm_up)
    if rc < 0:
        sys.stderr.write("the zygote could not start: %s\n" % os.strerror(-rc))
        os._exit(1)
    if warm_up:
        learn_pages(library)
    library.image_learn()
    became = library.zygote_serve()
    if became == SERVE_END:
        library.zygote_scratch_dir.restype = ctypes.c_char_p
        tidy_up(library.zygote_scratch_dir())
        os._exit(0)
    state.among_files = became == SERVE_WORKER_AMONG_FILES
    begin_place()
    work()
