"""A remote worker, and its keeper: the process that guards it.

The supervisor forks the keeper, and the keeper forks the worker, which runs the user's code. The
keeper reaps orphans of the worker (PR_SET_CHILD_SUBREAPER) and forwards interrupts (SIGUSR1). When
the worker ends, or on SIGTERM, it kills the whole tree and reports on the status pipe.

prctl(2) needs ctypes. Without it, daemons become visible only as children of the supervisor, and
the worker can see the supervisor's and keepers' files in /proc.
"""
from __future__ import annotations

import _signal
import fcntl
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Callable, Iterable

from .unpack import pack_files, unpack_files
from ..core.boot import preload_all
from ..core.frames import CHANNEL_FD, plain
from ..core.images import settle
from ..core.link import Link
from ..core.state import state
from ..core.worker import work

if TYPE_CHECKING:
    from ..core.aliases import Head

TREE_SECONDS = 3

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36


def find_prctl() -> Callable[[int, int], bool] | None:
    """Returns a function for prctl(2) with one argument, or None without ctypes."""
    try:
        import ctypes
        function = ctypes.CDLL(None, use_errno=True).prctl
        return lambda option, value: function(option, value, 0, 0, 0) == 0
    except Exception:
        return None


def control(option: int, value: int) -> bool:
    return state.prctl is not None and state.prctl(option, value)


def close_all_but(kept: set[int]) -> None:
    try:
        numbers: Iterable[int] = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        numbers = range(1024)
    for number in numbers:
        if number not in kept:
            try:
                os.close(number)
            except OSError:
                pass


def children_of() -> dict[int, list[int]]:
    """Returns {pid: [pids of its children]} for all visible processes."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return children
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue                    # it has ended
        children.setdefault(parent, []).append(int(name))
    return children


def read_children(pid: int) -> list[int]:
    """Returns the pids of a process's children. OSError: it has ended, or the kernel does not
    tell (CONFIG_PROC_CHILDREN)."""
    found: list[int] = []
    for thread in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/children" % (pid, thread), "rb", 0) as file:
            found += map(int, file.read().split())
    return found


def descendants(spared: Iterable[int] = ()) -> list[int]:
    """Returns the pids of all descendants, except the trees of `spared` processes.

    A search of all of /proc takes longer than a process lives that forks and exits again and again,
    so it is only the way of kernels that list no children.
    """
    try:
        own = read_children(os.getpid())
    except OSError:
        children = children_of()
        own, look = children.get(os.getpid(), []), lambda pid: children.get(pid, ())
    else:
        look = read_children
    found = [pid for pid in own if pid not in spared]
    for pid in found:
        try:
            found += look(pid)
        except OSError:
            pass                        # it has ended
    return found


def kill_quietly(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


def make_home() -> str:
    """Creates a worker's directory in the first writable location."""
    directories = [os.environ.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm", os.getcwd()]
    for place in filter(None, directories):
        home = os.path.join(place, "droste-" + os.urandom(8).hex())
        try:
            os.mkdir(home, 0o700)
            return home
        except OSError as e:
            failure = e
    raise OSError(failure.errno,
                  "no directory is writable, not even /tmp: " + failure.strerror)


def remove_tree(path: str) -> None:
    try:
        import shutil
        shutil.rmtree(path, ignore_errors=True)
    except Exception:
        pass


# Except two signals that the C library reserves.
ALL_SIGNALS = set(range(1, _signal.NSIG)) - {32, 33}


class Keeper:
    """Guards one worker. Starts with all signals blocked, because an early one would kill it."""

    def __init__(self, options: Head, home: str, channel: int, out: int, err: int,
                 status: int) -> None:
        self.options, self.home = options, home
        self.ends = (channel, out, err)
        self.status = status
        self.supervisor = os.getppid()
        self.worker: int | None = None
        self.wait_status = -1
        self.rss = 0

    def run(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        close_all_but({0, 1, 2, self.status} | set(self.ends))
        os.setpgid(0, 0)        # survives a kill of the supervisor's group, to end its own tree
        control(PR_SET_PDEATHSIG, signal.SIGTERM)
        control(PR_SET_CHILD_SUBREAPER, 1)
        if os.getppid() != self.supervisor:
            self.remove_home()
            os._exit(1)
        keeper = os.getpid()
        try:
            self.worker = os.fork()
        except OSError as e:
            self.say({"left": False, "error": str(e)})
            os._exit(1)
        if self.worker == 0:
            self.become_worker(keeper)
        for fd in self.ends:
            os.close(fd)
        self.watch()
        self.report(self.end_tree())
        self.remove_home()
        if self.options.get("ephemeral"):
            remove_tree(self.options["files"])
        os._exit(0)

    def remove_home(self) -> None:
        if "beside" not in self.options:
            remove_tree(self.home)

    def reap(self, how: int) -> bool:
        """Reaps a child. Returns false if none has ended; raises ChildProcessError without any."""
        pid, status, used = os.wait4(-1, how)
        if pid == self.worker:
            self.wait_status, self.rss = status, used.ru_maxrss
        return pid != 0

    def watch(self) -> None:
        wanted = {signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM}
        while self.wait_status == -1:
            number = signal.sigwaitinfo(wanted).si_signo
            if number == signal.SIGTERM:
                return
            if number == signal.SIGUSR1:
                kill_quietly(self.worker, signal.SIGINT)
                continue
            try:
                while self.reap(os.WNOHANG):
                    pass
            except ChildProcessError:
                return

    def end_tree(self) -> bool:
        """Kills all descendants. Returns true if some are left.

        Each round waits for one of the killed processes, whose children then become the keeper's.
        The supervisor handles trees that fork faster than this kills; without one, they are the
        keeper's until they end.
        """
        until = time.monotonic() + TREE_SECONDS
        try:
            while time.monotonic() < until or os.getppid() != self.supervisor:
                while self.reap(os.WNOHANG):
                    pass
                found = descendants()
                for pid in found:
                    kill_quietly(pid, signal.SIGKILL)
                if not found and not os.path.isdir("/proc/self"):
                    os.killpg(self.worker, signal.SIGKILL)
                    return True
                self.reap(0 if found else os.WNOHANG)   # a process missed now is found next time
            return True
        except OSError:                 # no children are left
            return False

    def report(self, left: bool) -> None:
        import resource
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.say({"left": left, "status": self.wait_status, "rss": self.rss,
                  "cpu": used.ru_utime + used.ru_stime})

    def say(self, facts: Head) -> None:
        try:
            os.write(self.status, json.dumps(facts).encode() + b"\n")
        except OSError:
            pass

    # -- the worker

    def become_worker(self, keeper: int) -> None:
        try:
            self.settle_in(keeper)
            if "files" in self.options:
                since = self.options.get("since")
                if since is None:
                    unpack_files(CHANNEL_FD, self.options["files"],
                                 self.options.get("ephemeral", False))
                else:
                    pack_files(CHANNEL_FD, self.options["files"], since, self.options["sum"])
                os._exit(0)
            refused = preload_all(self.options.get("preload", ()))
            if refused:
                raise ImportError("preload '%s': %s" % (
                    refused["module"], refused.get("error", "importing it starts threads")))
        except BaseException as e:
            self.say({"error": plain("%s: %s" % (type(e).__name__, e))[:300]})
            os._exit(125)
        os.close(self.status)
        work()

    def settle_in(self, keeper: int) -> None:
        os.setsid()
        control(PR_SET_PDEATHSIG, signal.SIGKILL)
        # Gives the worker access to its own files in /proc, and others of its user access to it.
        control(PR_SET_DUMPABLE, int("beside" not in self.options))
        if os.getppid() != keeper:
            os._exit(1)
        self.arrange_descriptors()
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")      # prefer the worker when memory runs out
        except OSError:
            pass
        os.chdir(self.home)
        settle()
        for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
            stream = open(number, mode, encoding="utf-8", closefd=False,
                          errors="strict" if mode == "r" else "backslashreplace", buffering=1)
            setattr(sys, name, stream)
            setattr(sys, "__%s__" % name, stream)
        self.set_limits()
        state.link = Link(CHANNEL_FD)
        state.link.owner = os.getpid()
        state.link.is_late = True
        os.register_at_fork(after_in_child=state.link.cut)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def arrange_descriptors(self) -> None:
        channel, out, err = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16) for fd in self.ends]
        status = fcntl.fcntl(self.status, fcntl.F_DUPFD_CLOEXEC, 16)
        null = os.open("/dev/null", os.O_RDONLY)
        for fd, number in ((null, 0), (out, 1), (err, 2)):
            os.dup2(fd, number)
        os.dup2(channel, CHANNEL_FD, inheritable=False)
        self.status = status
        close_all_but({0, 1, 2, CHANNEL_FD, status})

    def set_limits(self) -> None:
        import resource
        for name, value in self.options.get("limits", {}).items():
            kind = getattr(resource, name, None)
            if kind is None:
                continue
            hard = value + 1 if name == "RLIMIT_CPU" else value
            now = resource.getrlimit(kind)[1]
            if now != resource.RLIM_INFINITY:
                value, hard = min(value, now), min(hard, now)
            resource.setrlimit(kind, (value, hard))
