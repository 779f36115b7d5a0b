"""A directory that outlives the sandbox, where the session has one.

What is wrong with a path or with the volume comes back as text that begins with `[error: `, as in the
systems that have these functions: code that was written for them looks for that.
"""
import builtins
import errno
import os

from .workspace import DAYTONA_WORKSPACE, WORKSPACE
from ..core.state import state

VOLUME, MEMORY = "/data", "/home/daytona/memory"    # layout_paths, src/jail/show.c


def enter_volume(place):
    state.session.volume = place
    os.environ["DROSTE_VOLUME"] = place
    builtins.MEMORY_ROOT = os.environ["MEMORY_ROOT"] = volume_places()[-1]


def volume_places():
    """Where the volume is seen: at isolations without a root of their own, only under its real path; with the layout of
    Daytona's sandboxes, a second time."""
    if state.session.volume is None:
        return []
    return [state.session.volume, MEMORY] if state.session.volume == VOLUME and os.path.isdir(MEMORY) else [state.session.volume]


def below(path, base, within, places, what):
    """(the whole path, None), or (None, what is wrong with it). A place's other names are its own: code
    that says /data finds the volume, wherever it is."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if base is None:
        return None, "[error: no volume mounted at %s]" % VOLUME
    if not isinstance(text, str) or not text.strip():
        return None, "[error: %s path cannot be empty]" % what
    text = text.strip()
    if "\0" in text:
        return None, "[error: invalid %s path: %r]" % (what, text)
    for place in places:
        if text == place or text.startswith(place + "/"):
            text = text[len(place):].lstrip("/") or "."
            break
    full = os.path.normpath(os.path.join(base, text))
    real, top = os.path.realpath(full), os.path.realpath(base)
    if not real.startswith(top + "/") or not (top + "/").startswith(os.path.realpath(within) + "/"):
        return None, "[error: invalid %s path: %s]" % (what, path)
    return full, None


def in_volume(path):
    return below(path, state.session.volume, state.session.volume, [VOLUME, MEMORY, state.session.volume], "volume")


def in_workspace(path):
    if state.session.repo is not None:
        named = [place + state.session.repo[len(state.session.workspace):] for place in (WORKSPACE, DAYTONA_WORKSPACE)]
        return below(path, state.session.repo, state.session.workspace, [state.session.repo, *named], "workspace")
    base = state.session.volume and os.path.join(state.session.volume, "workspace")
    return below(path, base, state.session.volume, [VOLUME + "/workspace", MEMORY + "/workspace", base], "workspace")


def encode(content):
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    return str(content).encode("utf-8", "surrogateescape")


# What file systems over object stores (Daytona's volumes are in S3, by mount-s3) say to renames, to appends and
# to fsync of directories, which they do not have.
NOT_THERE = (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP)


def save(full, content):
    """Whole or not at all, and on disk: a file beside it takes its place. Where files cannot be renamed it is an object, which
    is whole once it is closed."""
    data = encode(content)
    directory = os.path.dirname(full)
    os.makedirs(directory, exist_ok=True)
    aside = os.path.join(directory, ".%d-%s.part" % (os.getpid(), os.urandom(8).hex()))
    try:
        with open(aside, "xb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        try:
            os.replace(aside, full)
        except OSError as e:
            if e.errno not in NOT_THERE:
                raise
            with open(full, "wb") as f:     # first: in a bucket a directory without files is gone
                f.write(data)
            os.unlink(aside)
            return full
    except BaseException:
        if os.path.lexists(aside):
            os.unlink(aside)
        raise
    held = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(held)
    except OSError as e:
        if e.errno not in NOT_THERE:
            raise
    finally:
        os.close(held)
    return full


def load(full):
    if not os.path.isfile(full):
        return "[error: file not found: %s]" % full
    with open(full, encoding="utf-8", errors="surrogateescape", newline="") as f:
        return f.read()


def save_to_volume(path, content):
    """Writes a file of the volume, whole and onto the disk; gives its full path."""
    full, error = in_volume(path)
    return error or save(full, content)


def load_from_volume(path):
    """The text of a file of the volume."""
    full, error = in_volume(path)
    return error or load(full)


def workspace_write(path, content):
    """Writes a file below REPO_PATH, or below `workspace` in the volume; gives its full path."""
    full, error = in_workspace(path)
    return error or save(full, content)


def workspace_append(path, content):
    """Adds to the end of a file below REPO_PATH, or below `workspace` in the volume; gives its full path."""
    full, error = in_workspace(path)
    if error:
        return error
    data = encode(content)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    try:
        with open(full, "ab") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
    except OSError as e:
        if e.errno not in NOT_THERE:
            raise
        with open(full, "rb") as f:
            data = f.read() + data
        return save(full, data)
    return full


def workspace_read(path):
    """The text of a file that is there."""
    full, error = in_workspace(path)
    return error or load(full)


def workspace_list(pattern="*"):
    """The files there whose paths, or names, fit the pattern; relative, in order. Where there is no workspace, there are none."""
    import fnmatch
    base, error = in_workspace("x")
    if error:
        return []
    base, found = os.path.dirname(base), []
    for directory, _, names in os.walk(base):
        for name in names:
            full = os.path.join(directory, name)
            relative = os.path.relpath(full, base)
            if os.path.isfile(full) and (fnmatch.fnmatch(relative, pattern) or fnmatch.fnmatch(name, pattern)):
                found.append(relative)
    return sorted(found)
