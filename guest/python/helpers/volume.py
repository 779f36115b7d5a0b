"""Files in the session's volume, which outlives the sandbox, and in its workspace.

Errors are returned as text that begins with `[error: `, as in the systems that introduced these
functions (fleet-rlm); code that was written for them checks for that prefix.
"""
from __future__ import annotations

import builtins
import errno
import os
from typing import TYPE_CHECKING, Any

from .workspace import DAYTONA_WORKSPACE, WORKSPACE
from ..core.state import state

if TYPE_CHECKING:
    from ..core.aliases import Found

VOLUME, MEMORY = "/data", "/home/daytona/memory"    # layout_paths, src/jail/show.c


def enter_volume(place: str) -> None:
    state.session.volume = place
    os.environ["DROSTE_VOLUME"] = place
    root = os.environ["MEMORY_ROOT"] = volume_places()[-1]
    builtins.MEMORY_ROOT = root  # type: ignore[attr-defined]


def volume_places() -> list[str]:
    """Returns the paths of the volume.

    With Daytona's layout it has a second path. Isolation levels without a root of their own show it
    only under its real path.
    """
    if state.session.volume is None:
        return []
    if state.session.volume == VOLUME and os.path.isdir(MEMORY):
        return [state.session.volume, MEMORY]
    return [state.session.volume]


def below(path: Any, base: str | None, within: str | None, prefixes: list[str | None],
          what: str) -> Found:
    """Resolves a path below `base`; returns (absolute path, None) or (None, error text).

    `prefixes` stand for `base`, so code that uses /data finds the volume wherever
    it is mounted. The result must be below `base`, and `base` below `within`, with links resolved.
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if base is None:
        return None, "[error: no volume mounted at %s]" % VOLUME
    if not isinstance(text, str) or not text.strip():
        return None, "[error: %s path cannot be empty]" % what
    text = text.strip()
    if "\0" in text:
        return None, "[error: invalid %s path: %r]" % (what, text)
    for prefix in prefixes:
        if text == prefix or text.startswith(prefix + "/"):
            text = text[len(prefix):].lstrip("/") or "."
            break
    full = os.path.normpath(os.path.join(base, text))
    real, top = os.path.realpath(full), os.path.realpath(base)
    if not real.startswith(top + "/") or not (top + "/").startswith(os.path.realpath(within) + "/"):
        return None, "[error: invalid %s path: %s]" % (what, path)
    return full, None


def in_volume(path: Any) -> Found:
    volume = state.session.volume
    return below(path, volume, volume, [VOLUME, MEMORY, volume], "volume")


def in_workspace(path: Any) -> Found:
    volume, workspace, repo = state.session.volume, state.session.workspace, state.session.repo
    if repo is not None:
        named = [place + repo[len(workspace):] for place in (WORKSPACE, DAYTONA_WORKSPACE)]
        return below(path, repo, workspace, [repo, *named], "workspace")
    base = volume and os.path.join(volume, "workspace")
    prefixes = [VOLUME + "/workspace", MEMORY + "/workspace", base]
    return below(path, base, volume, prefixes, "workspace")


def encode(content: Any) -> bytes:
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    return str(content).encode("utf-8", "surrogateescape")


# Errors of file systems over object stores for rename, append and fsync of a directory, which they
# lack. Daytona's volumes are in S3, mounted with mount-s3.
NOT_THERE = (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP)


def save(full: str, content: Any) -> str:
    """Writes a file atomically and durably: writes another file and renames it.

    File systems without rename store objects, which appear complete when they are closed.
    """
    data = encode(content)
    directory = os.path.dirname(full)
    os.makedirs(directory, exist_ok=True)
    temporary = os.path.join(directory, ".%d-%s.part" % (os.getpid(), os.urandom(8).hex()))
    try:
        with open(temporary, "xb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        try:
            os.replace(temporary, full)
        except OSError as e:
            if e.errno not in NOT_THERE:
                raise
            with open(full, "wb") as f:     # before unlink: empty directories vanish from a bucket
                f.write(data)
            os.unlink(temporary)
            return full
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
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


def load(full: str) -> str:
    if not os.path.isfile(full):
        return "[error: file not found: %s]" % full
    with open(full, encoding="utf-8", errors="surrogateescape", newline="") as f:
        return f.read()


def save_to_volume(path: Any, content: Any) -> str:
    """Writes a file of the volume atomically and durably; returns its absolute path."""
    full, error = in_volume(path)
    return error or save(full, content)


def load_from_volume(path: Any) -> str:
    """Returns the text of a file of the volume."""
    full, error = in_volume(path)
    return error or load(full)


def workspace_write(path: Any, content: Any) -> str:
    """Writes a file below REPO_PATH, or below `workspace` in the volume; returns its path."""
    full, error = in_workspace(path)
    return error or save(full, content)


def workspace_append(path: Any, content: Any) -> str:
    """Appends to a file below REPO_PATH, or below `workspace` in the volume; returns its path."""
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


def workspace_read(path: Any) -> str:
    """Returns the text of a file of the workspace."""
    full, error = in_workspace(path)
    return error or load(full)


def workspace_list(pattern: str = "*") -> list[str]:
    """Returns the sorted relative paths of workspace files whose path or name matches a glob.

    Without a workspace the list is empty.
    """
    import fnmatch
    base, error = in_workspace("x")
    if error:
        return []
    base, found = os.path.dirname(base), []
    for directory, _, names in os.walk(base):
        for name in names:
            full = os.path.join(directory, name)
            relative = os.path.relpath(full, base)
            matches = fnmatch.fnmatch(relative, pattern) or fnmatch.fnmatch(name, pattern)
            if matches and os.path.isfile(full):
                found.append(relative)
    return sorted(found)
