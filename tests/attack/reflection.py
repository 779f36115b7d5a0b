# attack: the escapes from CPython's own sandboxes: subclasses, frames, code objects, gc, ctypes,
#     loaders
# rows: 1
# expect: DENY(FileNotFoundError|ENOENT|EACCES|PermissionError|nothing|deceived)
# isolation: full light landlock
# unconfined: safe


def subclasses():
    """().__class__.__base__.__subclasses__(): a way to open a file without a name for it."""
    for kind in ().__class__.__base__.__subclasses__():
        if kind.__name__ == "FileLoader" or kind.__name__ == "_io._IOBase":
            return kind("x", HOST["secret"]).get_data(HOST["secret"])
    import importlib.machinery
    return importlib.machinery.SourceFileLoader("x", HOST["secret"]).get_data(HOST["secret"])


def warped_globals():
    """The globals of a function of the standard library, and the builtins in them."""
    import linecache
    return linecache.updatecache.__globals__["tokenize"].open(HOST["secret"]).read()


def host_frames():
    """Frames all the way up: in a sandbox of the interpreter's own the host's would be there."""
    frame, start = sys._getframe(), "s" + "k-"     # this text is in the frames too
    while frame:
        for name, value in list(frame.f_globals.items()) + list(frame.f_locals.items()):
            if isinstance(value, str) and start + HOST["key"] in value:
                raise SystemExit("found in " + name)
        frame = frame.f_back
    raise FileNotFoundError


def heap():
    """All objects that the collector knows, and all text in its own memory."""
    import gc
    wanted = HOST["key"]
    for thing in gc.get_objects():
        if thing is not HOST and isinstance(thing, dict) and thing.get("OPENAI_API_KEY"):
            return thing
    raise FileNotFoundError(wanted[:0])


def own_code():
    """A code object made by hand: its instructions could read memory; it is this process's own."""
    code = (lambda: None).__code__.replace(co_consts=(HOST["secret"],), co_names=("open",))
    exec(compile("open(%r)" % code.co_consts[0], "x", "exec"))


def library():
    ctypes.CDLL(HOST["secret"])


def stream():
    file = libc.fopen(HOST["secret"].encode(), b"r")
    if not file:
        raise OSError(ctypes.get_errno() or errno.ENOENT, "x")


def program():
    import subprocess
    return subprocess.run(["cat", HOST["secret"]], check=True, capture_output=True).stdout


def attack():
    def tried(escape):
        try:
            escape()
            return "success"
        except FileNotFoundError:
            return "FileNotFoundError"
        except OSError as e:
            # ctypes tells of a file that is not there, or not to be opened, in words only
            return errno.errorcode[e.errno] if e.errno else "ENOENT" if "No such" in str(e) \
                else "EACCES" if "Permission denied" in str(e) else str(e)
        except Exception as e:
            stderr = e.stderr if type(e).__name__ == "CalledProcessError" else b""
            return "FileNotFoundError" if b"No such file" in stderr \
                else "PermissionError" if b"Permission denied" in stderr else "%s: %s" % (
                type(e).__name__, e)
    escapes = (subclasses, warped_globals, host_frames, heap, own_code, library, stream, program)
    return {escape.__name__: tried(escape) for escape in escapes}


def twin():
    return seen(lambda: [].__class__.__base__.__subclasses__()[0])
