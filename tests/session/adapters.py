"""Environments under test: how sessions are opened in one, what it has not, and what only it knows
of the host.

All that the suite knows of an environment is here; a test sees an `Adapter`, and nothing of pids,
paths or files of the host. `--environment NAME[:WORD][,SETTING=VALUE…]` names one. An environment
that no class below knows is opened by its name with its settings, as `Adapter` does it: for most
that is enough.

One that needs more is a class in a file of its own, `--adapter=FILE`, which registers itself:

    from adapters import ADAPTERS, Adapter

    @ADAPTERS.register
    class Mine(Adapter):
        name = "mine"
        lacks = {"volume": "mine keeps nothing"}
"""
import atexit
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid

import droste
from droste._remote import client

#: What an environment may declare not to have, and what that is.
FEATURES = {
    "volume": "a directory that outlives sessions (volume_name)",
    "volume at once": "sessions that share a volume see what the others write as they write it",
    "volume watch": "how much is in a volume is watched while a cell runs",
    "volume links": "a volume keeps links and empty directories",
    "volume size": "a bound on what a volume may hold (volume_size)",
    "workspace": "files that are staged (repo_url, context_path)",
    "workspace size": "a bound on what a session makes of them (workspace_size)",
    "files": "the host's files are out of the guest's reach",
    "network": "no network is within the guest's reach",
    "read": "a path of the host's is shown where that is asked for (read)",
    "preload": "modules are imported before the session starts (preload)",
    "memory": "a bound on memory (memory)",
    "memory together": "a bound on the memory of all processes together",
    "processes": "a bound on processes and threads (processes)",
    "cpu time": "a bound on processor time (cpu_time)",
    "cpus": "a share of processors (cpus)",
    "open files": "a bound on open files (open_files)",
    "file size": "a bound on the size of a file (file_size)",
    "tmp size": "a bound on temporary files (tmp_size)",
    "semaphores": "named semaphores and shared memory, which multiprocessing's pools need",
    "whole": "a sandbox that is killed from outside takes all its processes with it",
    "with host": "a sandbox whose host is killed ends at once",
    "alone": "no process of another session is in the sandbox",
    "any names": "names of files that are not UTF-8",
    "directories": "a directory of this machine as a value",
    "outside": "other processes on this machine can see and end the guest's processes",
}


class Adapters(dict):
    """Classes by the name of their environment."""

    def register(self, adapter):
        self[adapter.name] = adapter
        return adapter


ADAPTERS = Adapters()


class Adapter:
    """An environment that has all features, and is known by its name alone."""
    name = None
    #: {feature: why it is not supported}
    lacks = {}
    #: what a bare word after the colon sets
    word = None
    #: code that defines raw(data), which writes bytes to the channel behind the guest's back
    raw = "import os\ndef raw(data): os.write(3, data)\n"
    #: operations of a session before its first cell: where a start takes its time, one waits for it
    operations = 0
    #: code that closes that channel
    cut = "import os\nos.close(3)\n"

    def __init__(self, text, settings):
        self.id, self.settings = text, settings
        unknown = set(self.lacks) - set(FEATURES)
        assert not unknown, "%s lacks what is not a feature: %s" % (text, unknown)

    def __repr__(self):
        return self.id

    # -- sessions

    def interpreter(self, **settings):
        """An interpreter that is not started yet."""
        return droste.Interpreter(**{**self.settings, **settings})

    def open(self, **settings):
        """A session."""
        interp = self.interpreter(**settings)
        interp.start()
        return interp

    def rlm(self, model, **settings):
        """Runs, whose sessions are in this environment."""
        return droste.RLM(model, database="none", **{**self.settings, **settings})

    # -- the host

    def place(self):
        """A new directory of the host's that the environment can show to its guests; the caller
        removes it."""
        place = tempfile.mkdtemp(prefix="droste-suite-")
        os.chmod(place, 0o755)      # the guest of root is another user
        return place

    def mark(self, interp):
        """What the processes of this session are, as kill() and left() know them: plain JSON. The
        session must be idle. A process of the guest's stays behind in it."""
        word = new_word()
        made = interp.execute("import subprocess as _s; _p = _s.Popen(['sleep', %r])" % word)
        assert made.ok, made.error
        top = self.guest_of(wait_for(lambda: self.processes_of(word))[0])[-1]
        return {"top": top, "all": family(top[0])}

    def processes_of(self, word):
        """The processes on this machine that have a word of new_word() in their command line, as
        guests sleep for so long."""
        return [pid for pid in everybody() if word.encode() in command_of(pid)]

    def guest_of(self, pid):
        """[(pid, start)…] from a process up to the guest's first: it and those above it in another
        space of pids."""
        inside = [p for p in ancestors(pid) if is_inside(p[0])]
        assert inside, ("no process of the guest's is seen from here: "
                        "the adapter of %s must say how to find it" % self)
        return inside

    def kill(self, mark):
        """Ends a guest from outside, as the kernel, an administrator or a feature cut does."""
        pid, start = mark["top"]
        assert start_of(pid) == start
        os.kill(pid, signal.SIGKILL)

    def left(self, mark):
        """The processes of a session that are still there."""
        return [pid for pid, start in mark["all"] if start_of(pid) == start]

    def is_gone(self, mark):
        """Whether what was killed has ended."""
        pid, start = mark["top"]
        return start_of(pid) != start

    def sweep(self, mark):
        """Ends what is left, at the end of a test."""
        for pid in self.left(mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass

    def holdings(self):
        """How much of the host this process has: numbers by name. Nothing of it may grow with the
        number of sessions that were closed. The suite has a directory of its own for temporary
        files (conftest.py)."""
        droste.close_idle_engines()
        return {"descriptors": len(os.listdir("/proc/self/fd")),
                "processes": len(family(os.getpid())) - 1,
                "temporary files": len(os.listdir(tempfile.gettempdir()))}


@ADAPTERS.register
class Local(Adapter):
    """Sandboxes of this machine, at one isolation."""
    name = "local"
    word = "isolation"

    ORPHANS = (
        "without a space of pids, what the guest has started outlives the process that keeps it")
    LACKS = {
        "landlock": {"whole": ORPHANS,
                     "tmp size": "temporary files are the host's, bounded by file_size alone",
                     "semaphores": "/dev/shm is the host's, and closed"},
        "process": {
            "whole": ORPHANS,
            "tmp size": "temporary files are the host's, bounded by file_size alone",
            "files": "it is not a security boundary: the code reads what the user may read",
            "network": "it is not a security boundary: the code has the host's network",
            "processes": "the kernel counts all processes of a user together",
        },
    }

    def __init__(self, text, settings):
        super().__init__(text, settings)
        self.lacks = {**self.lacks, **self.LACKS.get(settings.get("isolation"), {})}
        why = no_cgroup(settings)
        if why:
            self.lacks.update({"cpus": why})

    def guest_of(self, pid):
        """The first process below the zygote, which is this process' child, or, with an image, the
        only child of a keeper."""
        chain, host = ancestors(pid), [p for p, _ in ancestors(os.getpid())]
        own = [p for p in chain if p[0] not in host]
        return own[:-2 if command_of(own[-1][0])[0] == b"keeper" else -1]


@ADAPTERS.register
class Forked(Local):
    """Sessions that are forks of a local one, which is closed before the test uses the fork."""
    name = "forked"
    lacks = {"whole": "processes that a fork's code has moved to a session of their own stay until "
                      "the last fork is closed",
             "alone": "the fork's keeper is in the sandbox of the first session"}
    operations = 1

    def __init__(self, text, settings):
        super().__init__(text, {**settings, "env": "local"})

    def guest_of(self, pid):
        """Up to the fork's keeper, below that of the first session."""
        return super().guest_of(pid)[:-1]

    def open(self, **settings):
        interp = super().open(**settings)
        try:
            return interp.fork()
        finally:
            interp.shutdown()


@ADAPTERS.register
class RolledBack(Forked):
    """Sessions that have lost what they did after a checkpoint."""
    name = "rolled-back"
    operations = 2

    def open(self, **settings):
        interp = Local.open(self, **settings)
        checkpoint = interp.checkpoint()
        interp.execute("import os; os._exit(1)")
        interp.rollback(checkpoint)
        return interp


@ADAPTERS.register
class Templated(Local):
    """Sessions that have started from a template, which lives as long as they do."""
    name = "templated"
    operations = 1

    def __init__(self, text, settings):
        super().__init__(text, {**settings, "env": "local"})

    def open(self, **settings):
        if not set(settings).isdisjoint(("volume_name", "repo_url", "context_path")):
            return super().open(**settings)     # templates are made without
        template = droste.Template(**{**self.settings, **settings_of_templates(settings)})
        interp = droste.Interpreter(**settings, template=template)
        interp.start()
        return interp


@ADAPTERS.register
class Server(Local):
    """Sessions of `droste serve`, through the client in pure Python. A setting that a server does
    not take from clients is a flag of one that is started for it."""
    name = "server"
    word = "isolation"
    operations = 1
    lacks = {"volume": "a client cannot name a volume", "workspace": "a client names no workspace",
             "with host": "a client's sandboxes outlive it, until they are idle for too long",
             "any names": "a server's paths are UTF-8", "directories": "load() reads them here"}
    DROSTE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(
        os.path.abspath(__file__)))), os.environ.get("BUILD", "build"), "droste")

    def __init__(self, text, settings):
        super().__init__(text, {**settings, "env": "local"})
        self.settings = {name: value for name, value in settings.items() if name != "env"}
        self.servers = {}

    def server(self, settings):
        """The address of a server with these settings."""
        flags = []
        for name, value in sorted(settings.items()):
            for one in value if isinstance(value, (list, tuple)) else [value]:
                text = {True: "yes", False: "no"}.get(one, one) if isinstance(one, bool) else one
                flags.append("--%s=%s" % (name.replace("_", "-"), text))
        key = tuple(flags)
        if key not in self.servers:
            process = subprocess.Popen(
                [self.DROSTE, "serve", "--listen", "127.0.0.1:0", "--database=none", *flags],
                stdout=subprocess.PIPE, text=True)
            atexit.register(self.stop, process)
            self.servers[key] = process, process.stdout.readline().strip()
        assert self.servers[key][1], "the server did not start with %s" % (key,)
        return self.servers[key][1]

    @staticmethod
    def stop(process):
        process.terminate()
        process.wait()
        process.stdout.close()

    def interpreter(self, **settings):
        return self.make(settings, False)

    def open(self, **settings):
        return self.make(settings, True)

    def make(self, settings, starts):
        kept, asked = dict(self.settings), dict(settings)
        while True:
            address = self.server(kept)
            interp = droste.Interpreter(server=address, **asked)
            if not starts:
                return interp
            try:
                interp.start()
                return interp
            except (droste.UnsupportedError, droste.ArgumentError) as e:
                interp.shutdown()
                name = is_kept(str(e))
                if name not in asked:
                    raise
                kept[name] = asked.pop(name)

    def guest_of(self, pid):
        chain = ancestors(pid)
        hosts = {process.pid for process, _ in self.servers.values()}
        at = next(i for i, (p, _) in enumerate(chain) if p in hosts)
        return chain[:at - 1]

    def holdings(self):
        for server in list(client._servers):
            server.forget()     # the connections that are kept for the next request
        return super().holdings()

    def rlm(self, model, **settings):
        return droste.RLM(model, database="none", env="local", **{**self.settings, **settings})


def is_kept(message):
    """The setting that a server's refusal names."""
    found = re.match(r"'([a-z-]+)' is not an option that a client|([a-z-]+) is at most", message)
    return found and (found.group(1) or found.group(2)).replace("-", "_")


def settings_of_templates(settings):
    """Without those that are parameters of Interpreter alone, or that run code in each session."""
    return {name: value for name, value in settings.items()
            if name not in ("tools", "on_output", "on_result", "tool_threads", "output_fields",
                            "setup_code", "setup_each", "tool_data", "timeout")}


@ADAPTERS.register
class Docker(Adapter):
    """Containers. The image is DROSTE_TEST_IMAGE, unless one is named."""
    name = "docker"
    word = "image"
    operations = 1

    def __init__(self, text, settings):
        image = os.environ.get("DROSTE_TEST_IMAGE")
        super().__init__(text, {**({"image": image} if image else {}), **settings})


def no_cgroup(settings):
    """Why there is no cgroup for sandboxes here; None where there is."""
    try:
        with droste.Interpreter(**settings, cpus=0.5) as interp:
            assert interp.execute("1").ok
    except droste.UnsupportedError as e:
        return str(e).partition(" (version")[0] if "cgroup" in str(e) else None
    return None


def parse(text):
    """The adapter of a word such as `local:full` or `docker:image=python:3.12,memory=1G`."""
    name, _, rest = text.partition(":")
    adapter, settings = ADAPTERS.get(name, Adapter), {"env": name}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            key, value = adapter.word, part
        if key is None:
            raise ValueError("%r: %s has settings, name=value; what is %r?" % (text, name, part))
        settings[key.replace("-", "_")] = value
    return adapter(text, settings)


# -- processes, as /proc has them

def stat_of(pid):
    """(parent, start), or None where there is none, or only its end is waited for."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            fields = f.read().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else (int(fields[1]), int(fields[19]))
    except (OSError, IndexError):
        return None


def start_of(pid):
    found = stat_of(pid)
    return found and found[1]


def everybody():
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: stat for pid, stat in ((pid, stat_of(pid)) for pid in pids) if stat}


def family(pid):
    """[(pid, start)…] of a process and all below it."""
    stats, found, grew = everybody(), {pid}, True
    while grew:
        more = {p for p, s in stats.items() if s[0] in found} - found
        found |= more
        grew = bool(more)
    return [(p, stats[p][1]) for p in sorted(found) if p in stats]


def ancestors(pid):
    """[(pid, start)…] from a process upwards, init not counted."""
    chain = []
    while pid > 1:
        stat = stat_of(pid)
        if stat is None:
            break
        chain.append((pid, stat[1]))
        pid = stat[0]
    return chain


def is_inside(pid):
    """Whether it is in a space of process ids below ours."""
    try:
        with open("/proc/%d/status" % pid) as status:
            return any(line.startswith("NSpid:") and len(line.split()) > 2 for line in status)
    except OSError:
        return False


def command_of(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as line:
            return line.read().split(b"\0")
    except OSError:
        return []


def new_word():
    """A number of seconds, of days, that nobody else sleeps for."""
    return "%d.%d" % (10 ** 6, uuid.uuid4().int % 10 ** 12)


def wait_for(condition, seconds=60):
    """What must come; the limit only ends a test that fails."""
    end, pause = time.monotonic() + seconds, 0.005
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(pause)
        pause = min(2 * pause, 0.2)


def remove(place):
    shutil.rmtree(place, ignore_errors=True)
