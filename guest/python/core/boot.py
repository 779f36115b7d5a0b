"""The zygote."""
import _socket
import builtins
import gc
import importlib
import json
import os
import signal
import sys
import time

from .frames import CHANNEL_FD, plain
from .link import Link, on_interrupt
from .session import Session
from .state import state
from .worker import ask_first, begin, find_seeds, rehearse, serve_first, settle, work
from ..helpers.public import HELPERS, PUBLIC

PRELOAD = ("collections", "csv", "datetime", "functools", "heapq", "itertools", "math", "random",
           "re", "string", "textwrap", "time")


SERVE_END, SERVE_WORKER, SERVE_WORKER_AMONG_FILES = 0, 1, 2     # guest/zygote/zygote.c
REHEARSALS = 16     # CPython specialises code when it has run eight times
THREADS_MAY_END = 20    # looks at the threads of a module that was imported


def facts():
    """What the host must know of this interpreter to bind it into a sandbox."""
    return {
        "python": sys.version.split()[0],
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix],
        "path": [p for p in sys.path if p],
    }


class ForkHooks:
    """Whether somebody wants to hear of forks. A clone runs the hooks of `os.register_at_fork` only
    if a preloaded module has some: they cost as much as half of a clone. Ours and those of `random`,
    whose work find_seeds does, do not count."""

    def __init__(self):
        self.register = os.register_at_fork
        # What a site's own start-up has imported may have hooks already.
        self.wanted = bool({"random", "threading"} & set(sys.modules))

    def __enter__(self):
        os.register_at_fork = self.note
        return self

    def note(self, **hooks):
        self.register(**hooks)
        self.wanted = self.wanted or hooks.keys() != {"after_in_child"} or (
            getattr(hooks["after_in_child"], "__module__", "") != "random")

    def __exit__(self, *error):
        os.register_at_fork = self.register


def learn_pages(library):
    """Has a copy of the zygote be a worker, with the channel and the session that clones have, to see which pages its first
    cell needs (guest/zygote/pages.c)."""
    library.pages_keep_code()
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


def tidy_up(scratch_dir):
    """The host is gone. Among its files: ends what is left of the sandboxes, and their directories, which
    are in the one that the zygote's plan named; never where it merely happens to stand."""
    if not scratch_dir or not os.path.basename(scratch_dir).startswith(b"droste-"):
        return
    with open("/proc/thread-self/children") as children:
        for keeper in children.read().split():
            try:
                os.kill(int(keeper), signal.SIGTERM)
                os.kill(int(keeper), signal.SIGCONT)    # its guest may have stopped it
            except ProcessLookupError:
                pass
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass
    import shutil
    own = os.geteuid()
    for entry in os.scandir(scratch_dir):      # as root, each is another user's, which the zygote can become
        try:
            os.seteuid(entry.stat(follow_symlinks=False).st_uid)
            shutil.rmtree(entry.path, ignore_errors=True)
            os.seteuid(own)
            os.rmdir(entry.path)
        except OSError:
            pass
    shutil.rmtree(scratch_dir, ignore_errors=True)


def count_threads():
    return len(os.listdir("/proc/self/task"))


def find_threads():
    """How many there are beside this one, once those that are about to end had the time to."""
    for _ in range(THREADS_MAY_END):
        if count_threads() == 1:
            break
        time.sleep(0.05)
    return count_threads() - 1


def last_line(text):
    """What failed, where a library says much before it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def preload_all(names):
    """Imports them. What the host is told of the first that cannot be preloaded; None: all can."""
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as e:
            return {"module": name, "error": plain("%s: %s" % (type(e).__name__, last_line(str(e))))[:300]}
        threads = find_threads()
        if threads:
            return {"module": name, "threads": threads}
    return None


def refuse_preload(library, control, keeper, refused):
    told = json.dumps(dict(facts(), refused=refused)).encode()
    library.zygote_hello(control, keeper, told, len(told), False)
    os._exit(1)


def lay_session():
    """What code finds, in every clone."""
    for thing in PUBLIC + HELPERS:
        setattr(builtins, thing.__name__, thing)
    state.session = Session()
    state.session.start()


def boot(control, helper, keeper, preload):
    """Runs the zygote; comes back from zygote_serve in each worker."""
    import ctypes
    library = ctypes.PyDLL("/proc/self/fd/%d" % helper)
    with ForkHooks() as hooks:
        for name in PRELOAD:
            importlib.import_module(name)
        refused = preload_all(preload)
    if refused:
        refuse_preload(library, control, keeper, refused)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    lay_session()
    # Made here, so that a clone need not: on its number stands the control socket now, and in a
    # clone the channel.
    state.link = Link(CHANNEL_FD)
    os.close(helper)
    signal.signal(signal.SIGINT, on_interrupt)      # a clone may be interrupted before it works
    os.register_at_fork(after_in_child=state.link.cut)
    state.seeds = find_seeds()
    rehearse(REHEARSALS)
    gc.collect()
    gc.freeze()
    told = json.dumps(facts()).encode()
    rc = library.zygote_hello(control, keeper, told, len(told), hooks.wanted)
    if rc < 0:
        sys.stderr.write("the zygote cannot work here: %s\n" % os.strerror(-rc))
        os._exit(1)
    learn_pages(library)
    became = library.zygote_serve()
    if became == SERVE_END:
        library.zygote_scratch_dir.restype = ctypes.c_char_p
        tidy_up(library.zygote_scratch_dir())
        os._exit(0)
    if became == SERVE_WORKER_AMONG_FILES:
        settle()
    work()
