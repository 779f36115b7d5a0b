"""Templates: the memory of a session, saved to a file, from which other sessions continue.

guest/zygote/image.c copies and maps the memory. What the kernel keeps for a process stays behind,
so a session with open files, subprocesses or threads is refused, by name.
"""
from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from .failures import error_of
from .forking import drop_event_loop, refuse_what_would_vanish, some
from .frames import CHANNEL_FD, plain, RESULT
from .output import flush_output
from .state import state
from .tools import withdraw_host_tools
from droste._encoding.json_text import write_json

if TYPE_CHECKING:
    from .aliases import Blob, Head


class TemplateRefused(RuntimeError):
    """The session cannot become a template now; the message says what has to end first."""


class TemplateError(RuntimeError):
    """This session could not continue from its template."""


def settle() -> None:
    """Points HOME and TMPDIR at the current directory, the session's own.

    Needed where the sandbox shares the host's root; in a root of its own, /tmp is set already.
    """
    os.environ["HOME"] = os.environ["TMPDIR"] = os.getcwd()
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].tempdir = None  # type: ignore[attr-defined]


def begin_place() -> None:
    state.directory = os.getcwd()
    if state.among_files:
        settle()


def open_files(file: int) -> list[str]:
    """Names the descriptors that only the kernel has, but for the standard ones and `file`."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        if int(fd) > CHANNEL_FD and int(fd) != file:
            try:
                names.append(os.readlink("/proc/self/fd/" + fd))
            except OSError:
                pass        # the one that lists the directory
    return names


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    except ChildProcessError:
        return False


def refuse_what_would_stay(file: int) -> None:
    try:
        refuse_what_would_vanish()
    except RuntimeError as e:
        raise TemplateRefused(str(e).replace("be forked", "become a template")) from None
    drop_event_loop()
    files = open_files(file)
    if files:
        raise TemplateRefused("the session cannot become a template while files or sockets are "
                              "open: %s; close them first" % some(files))
    if has_children():
        raise TemplateRefused("the session cannot become a template while it has subprocesses; "
                              "wait for them first")
    if os.getcwd() != state.directory:
        raise TemplateRefused("the session cannot become a template in the working directory %s, "
                              "which sessions of the template may lack; change back to %s first"
                              % (plain(os.getcwd()), plain(state.directory)))


def why_not_saved(number: int) -> str:
    if number == errno.EXDEV:
        return ("the session cannot become a template while it has writable memory that is shared "
                "with other processes (mmap, multiprocessing); close it first")
    if number in (errno.ENOSPC, errno.ENOMEM):
        return "there is not enough memory for the template; raise --memory"
    return "saving the template: %s" % os.strerror(number)


def begin_restored() -> None:
    """In a session that continues from the template: the channel and the place are its own."""
    state.link.restart()
    withdraw_host_tools()
    for seed in state.seeds:
        seed()
    begin_place()


def save_session(ident: int, file: Blob, head: Head) -> None:
    """Handles SAVE. Returns in the saved session, and again in each that continues from it."""
    result: Head = {"status": "ok"}
    link = state.link
    if file is None:
        error: BaseException = OSError(errno.EMFILE, "too many open files to make a template")
        link.send(RESULT, ident, write_json({"status": "error", "error": error_of(error)}))
        return
    try:
        from ctypes import c_uint64     # some guests of other environments lack it
        refuse_what_would_stay(file)
        flush_output()
        link.flush()
        owner, link.owner = link.owner, None        # os.register_at_fork: the channel stays open
        rc = state.library.image_save(file, c_uint64(head["size"]))
        if rc == 1:
            begin_restored()
            return
        link.owner = owner
        if rc < 0:
            raise TemplateRefused(why_not_saved(-rc))
    except BaseException as e:
        result = {"status": "error", "error": error_of(e)}
    os.close(file)
    link.send(RESULT, ident, write_json(result))


def why_not_restored(number: int) -> str:
    if number == errno.ENOMEM:
        return "the template is larger than the memory of this session; raise --memory"
    if number == errno.ESTALE:
        return "the template was made by another zygote; make it again"
    return "continuing from the template: %s" % os.strerror(number)


def restore_session(file: Blob) -> None:
    """Handles RESTORE: returns only on failure, and then the session refuses to work."""
    number = errno.EMFILE if file is None else -state.library.image_restore(file)
    state.refusal = why_not_restored(number)
    if file is not None:
        os.close(file)


def refuse_operation(ident: int) -> None:
    result = {"status": "error", "error": error_of(TemplateError(state.refusal))}
    state.link.send(RESULT, ident, write_json(result))
