"""Rules for the user's Python: what cells may import, call and open.

Rules prevent accidents; they are not a security boundary, because Python code can get around all of
them. The host sends this module in HELLO to sessions with rules; other sessions never load it.

`__main__` gets built-ins of its own. Only its frames look up `__import__`, `eval` and `open` there,
so rules apply to cells but not to the libraries that cells use. An audit hook (PEP 578) checks
files and sees every open, whether by open(), by pathlib or by a library on a cell's behalf.

Setup code belongs to the operator, not to the model, so it and its functions are exempt.
"""
from __future__ import annotations

import builtins
import errno
import importlib.util
import os
import sys
import types

TYPE_CHECKING = False       # type checkers take it as true; saves the import of `typing` here
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

# Prefixes of the names of setup code and tools; src/session/prepare.c
SETUP = ("<setup>", "<tools")

# Modules for computing, storing and formatting. Modules that start processes, use the network, raw
# memory, a terminal or the interpreter itself, or open files unseen by Python, are missing on
# purpose.
STANDARD = frozenset("""
    __future__ __main__ _strptime abc argparse array ast asyncio atexit base64 binascii bisect bz2
    calendar cmath codecs collections colorsys concurrent configparser contextlib contextvars copy
    copyreg csv dataclasses datetime decimal difflib dis email encodings enum errno filecmp fileinput
    fnmatch fractions functools gc getopt gettext glob graphlib gzip hashlib heapq hmac html inspect
    io ipaddress itertools json keyword linecache locale logging lzma math mimetypes numbers operator
    optparse pathlib pickle pickletools platform plistlib pprint queue quopri random re reprlib sched
    secrets shlex shutil sqlite3 stat statistics string stringprep struct symtable sys tarfile tempfile
    textwrap threading time timeit token tokenize tomllib traceback tracemalloc types typing
    unicodedata unittest urllib.error urllib.parse uu uuid warnings wave weakref xml zipfile zlib
    zoneinfo
""".split())

# Not libraries: the language itself and the module of the cells.
ALWAYS = ("__future__", "__main__")

# Built-ins that are switched off for cells, with the alternative that the error names.
SWITCHED_OFF = {
    "eval": "for data use ast.literal_eval or json.loads",
    "exec": "write the code into the cell itself",
    "compile": "write the code into the cell itself",
    "input": "cells have no standard input",
    "breakpoint": "cells have no standard input",
    "run": "cells may not start processes",
    "start_background_process": "cells may not start processes",
}

# Files that the standard library reads by itself, if the sandbox shows them.
SYSTEM_FILES = ("/usr/share/zoneinfo", "/etc/localtime", "/etc/timezone", "/etc/mime.types",
                "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
WRITABLE_FILES = ("/dev/null",)

# Audit events that change the file system, and which of their arguments are paths.
CHANGES = {
    "os.chmod": (0,), "os.chown": (0,), "os.link": (0, 1), "os.mkdir": (0,), "os.remove": (0,),
    "os.removexattr": (0,), "os.rename": (0, 1), "os.rmdir": (0,), "os.setxattr": (0,),
    "os.symlink": (1,), "os.truncate": (0,), "os.utime": (0,), "shutil.rmtree": (0,),
}
# Events that act on a symbolic link itself, not on its target.
ON_LINKS = ("os.link", "os.remove", "os.rename", "os.rmdir", "os.symlink", "shutil.rmtree")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class RuleError(RuntimeError):
    """The cell called a function that the rules of this session switch off."""


def is_below(path: str, paths: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in paths)


def is_setup(frame: types.FrameType | None) -> bool:
    """Whether setup code is on the call stack."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(SETUP):
            return True
        frame = frame.f_back
    return False


class Rules:
    """The rules of one session."""

    def __init__(self, allow: list[str], read: list[str], write: Iterable[str] = (),
                 standard: bool = True) -> None:
        self.modules = set(STANDARD if standard else ALWAYS)
        self.modules.update(name for name in allow if not name.startswith("/"))
        self.roots = [os.path.realpath(name) for name in allow if name.startswith("/")]
        sys.path.extend(root for root in self.roots if root not in sys.path)
        self.home = os.getcwd()         # the session's temporary directory
        self.readable: list[str] = [os.path.realpath(place) for place in
                         [self.home, *self.roots, *read, *SYSTEM_FILES, sys.executable,
                          *filter(None, sys.path)]]
        self.writable = [*(os.path.realpath(place) for place in [self.home, *write]),
                         *WRITABLE_FILES]
        self.readable += self.writable

    # -- imports

    def knows(self, name: str) -> bool:
        """Whether the module, or a package that contains it, is allowed by name."""
        parts = name.split(".")
        return any(".".join(parts[:n]) in self.modules for n in range(1, len(parts) + 1))

    def has(self, root: str) -> bool:
        """Whether an import of this name would load a file below an allowed directory."""
        try:
            spec = self.roots and importlib.util.find_spec(root)
        except (ImportError, ValueError):
            return False
        if not spec:
            return False
        paths = [spec.origin] if spec.has_location else spec.submodule_search_locations or []
        return any(is_below(os.path.realpath(place), self.roots) for place in paths)

    def refused(self, name: str, fromlist: Any) -> str | None:
        """Returns the first module of an import that is not allowed, or None."""
        if self.knows(name) or self.has(name.partition(".")[0]):
            return None
        below = ["%s.%s" % (name, member) for member in fromlist or ()]
        if not any(map(self.knows, below)):
            return name
        return next((module for module in below if not self.knows(module)), None)

    def make_import(self) -> Callable[..., Any]:
        real = builtins.__import__

        def __import__(name: Any, globals: Any = None, locals: Any = None, fromlist: Any = (),
                       level: int = 0) -> Any:
            # C code that imports on its own behalf (PyImport_Import), such as datetime.strptime,
            # passes a list; the statement passes a tuple or None.
            if not isinstance(name, str) or type(fromlist) is list:
                return real(name, globals, locals, fromlist, level)
            caller = sys._getframe(1)
            if is_setup(caller):
                if caller.f_code.co_name == "<module>":
                    self.modules.add(name)      # the module is now in the namespace
                return real(name, globals, locals, fromlist, level)
            root = name.partition(".")[0]
            if level:
                raise ImportError("a cell does not belong to a package, so relative imports are "
                                  "not possible",
                                  name=root)
            refused = self.refused(name, fromlist)
            if refused:
                raise ImportError(
                    "the rules of this session do not allow the module '%s'; the user can allow "
                    "it with --allow-import %s" % (refused, root), name=root)
            return real(name, globals, locals, fromlist, level)
        return __import__

    # -- built-ins

    def make_refusal(self, name: str) -> Callable[..., Any]:
        real = getattr(builtins, name)

        def refuse(*args: Any, **named: Any) -> Any:
            caller = sys._getframe(1)
            if not is_setup(caller):
                raise RuleError("%s() is switched off by the rules of this session; %s"
                                % (name, SWITCHED_OFF[name]))
            if name in ("eval", "exec") and len(args) == 1 and not named:
                args += (caller.f_globals, caller.f_locals)
            return real(*args, **named)
        refuse.__name__ = refuse.__qualname__ = name
        refuse.__doc__ = "Switched off by the rules of this session."
        return refuse

    def make_open(self) -> Callable[..., Any]:
        real = builtins.open

        def open(file: Any, *args: Any, **named: Any) -> Any:
            """The built-in open(), within the rules of this session: see `judge_open`."""
            if isinstance(file, int) and not is_setup(sys._getframe(1)):
                raise PermissionError(errno.EACCES, "the rules of this session let cells open "
                                                    "paths, "
                                      "not descriptors", file)
            return real(file, *args, **named)
        return open

    # -- files

    def refuse_path(self, path: Any, writing: bool) -> None:
        if is_setup(sys._getframe(1)):
            return
        text = "the rules of this session let cells %s only below %s%s" % (
            ("write", self.home, "") if writing else ("read", self.home, " and what --read shows"))
        raise PermissionError(errno.EACCES, text, path)

    def judge(self, path: Any, writing: bool, follow: bool = True) -> None:
        """Raises PermissionError for a path outside; ignores values that are not paths."""
        if isinstance(path, int) or path is None:
            return
        try:
            text = os.fsdecode(path)
            if follow:
                real = os.path.realpath(text)
            else:
                head, tail = os.path.split(os.path.abspath(text))
                real = os.path.join(os.path.realpath(head), tail)
        except (TypeError, ValueError, OSError):
            return
        if not is_below(real, self.writable if writing else self.readable):
            self.refuse_path(path, writing)

    def judge_open(self, path: Any, mode: Any, flags: int) -> None:
        writing = flags & WRITING or (isinstance(mode, str) and set(mode) & set("wax+"))
        self.judge(path, bool(writing))

    def judge_database(self, path: Any) -> None:
        text = os.fsdecode(path)
        if text.startswith("file:"):
            text, _, options = text[len("file:"):].partition("?")
            if "mode=ro" in options:
                self.judge(text, False)
                return
        if text not in ("", ":memory:"):
            self.judge(text, True)

    def watch(self, event: str, args: Any) -> None:
        """The audit hook. Python calls it for all events, so it compares the name first."""
        if event == "open":
            self.judge_open(*args)
        elif event in CHANGES:
            for at in CHANGES[event]:
                self.judge(args[at], True, event not in ON_LINKS)
        elif event == "sqlite3.connect":
            self.judge_database(args[0])


def lay(grants: dict[str, Any]) -> types.ModuleType:
    """Installs the rules in this process; returns the built-ins for `__main__`."""
    rules = Rules(grants["allow"], grants["read"], grants.get("write", ()),
                  grants.get("standard", True))
    filtered: Any = types.ModuleType("builtins", builtins.__doc__)
    filtered.__dict__.update(builtins.__dict__)
    filtered.__import__ = rules.make_import()
    filtered.open = rules.make_open()
    filtered.RuleError = RuleError
    for name in SWITCHED_OFF:
        if hasattr(builtins, name):     # sessions may lack the helpers
            setattr(filtered, name, rules.make_refusal(name))
    sys.addaudithook(rules.watch)
    return filtered
