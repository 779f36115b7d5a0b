"""ctypes bindings of libdroste: its location, structures and functions.

Functions that may wait or call back release the GIL (CDLL, `lib`). Functions that return at once
keep it (PyDLL, `quick`), which is faster. include/droste.h specifies the semantics.
"""
from __future__ import annotations

import ctypes
import itertools
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int, c_int64, c_long,
                    c_longlong, c_size_t, c_uint, c_uint32, c_uint64, c_ulonglong, c_void_p)
from typing import Any, Iterator, List, Optional

__all__ = ["lib", "quick", "Error", "Option", "Event", "Request", "options", "text_at"]

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "libdroste.so.0"


def _candidates() -> Iterator[str]:
    """Yields possible paths of the library, most specific first."""
    if os.environ.get("DROSTE_LIBRARY"):
        yield os.environ["DROSTE_LIBRARY"]
        return
    yield os.path.join(HERE, "lib", NAME)
    root = os.path.dirname(os.path.dirname(HERE))
    if os.path.exists(os.path.join(root, "include", "droste.h")):
        yield os.path.join(root, os.environ.get("BUILD", "build"), NAME)
    yield NAME


def _find() -> Optional[str]:
    """Returns the path of the library; None if there is none, and none was named."""
    tried: List[str] = []
    for path in _candidates():
        try:
            ctypes.CDLL(path)
            return path
        except OSError as e:
            tried.append(str(e))
    if os.environ.get("DROSTE_LIBRARY"):
        raise ImportError("droste: DROSTE_LIBRARY does not name the library %s; build it with "
                          "`pip install .` in a checkout (%s)" % (NAME, tried[-1]))
    return None


missing_error: Any = ImportError     # errors, which imports this module, sets its own


class _Missing:
    """Stands for the library where there is none: its functions say what to do."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("droste_"):
            raise AttributeError(name)
        return self._refuse

    @staticmethod
    def _refuse(*arguments: Any) -> Any:
        raise missing_error(
            "this installation of droste is the client alone, without the library %s: use a "
            "server, with server=\"http://HOST:PORT\" or DROSTE_SERVER; or, for sandboxes of this "
            "machine, install the wheel for Linux, run `pip install .` in a checkout, or set "
            "DROSTE_LIBRARY to the library's path" % NAME)


path = _find()
lib: Any = ctypes.CDLL(path) if path is not None else _Missing()
quick: Any = ctypes.PyDLL(path) if path is not None else _Missing()


class Error(Structure):
    _fields_ = [("code", c_int), ("sys", c_int), ("text", ctypes.c_char * 2048)]


class Option(Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p), ("fallback", c_char_p),
                ("environment", c_char_p), ("help", c_char_p), ("secret", c_int), ("task", c_int),
                ("local", c_int)]


class Part(Structure):
    _fields_ = [("kind", c_int), ("media_type", c_char_p), ("data", c_void_p), ("len", c_size_t)]


class Candidate(Structure):
    _fields_ = [("number", c_uint), ("reply", c_void_p), ("reply_len", c_size_t),
                ("output", c_void_p), ("output_len", c_size_t), ("answer", c_char_p),
                ("failed", c_int)]


class Piece(Structure):
    _fields_ = [("data", c_void_p), ("len", c_size_t)]


class Message(Structure):
    _fields_ = [("role", c_char_p), ("text", c_void_p), ("len", c_size_t), ("parts", POINTER(Part)),
                ("part_count", c_size_t)]


class Media(Structure):
    _fields_ = [("type", c_char_p), ("form", c_char_p), ("data", c_void_p), ("len", c_size_t)]


class Event(Structure):
    _fields_ = [("kind", c_char_p), ("text", c_void_p), ("len", c_size_t), ("turn", c_uint),
                ("turns", c_uint), ("stream", c_int), ("status", c_char_p), ("seconds", c_double),
                ("pending", c_uint), ("calls", c_int64), ("input_tokens", c_int64),
                ("output_tokens", c_int64), ("run", c_uint), ("depth", c_uint),
                ("call", ctypes.c_uint64), ("model", c_char_p), ("results", c_void_p),
                ("result", c_size_t), ("cost", c_double), ("attempt", c_uint),
                ("attempts", c_uint)]


SelectFn = CFUNCTYPE(None, c_void_p, POINTER(Candidate), c_size_t, c_void_p)
ModelFn = CFUNCTYPE(None, c_void_p, POINTER(Message), c_size_t, c_void_p)
AskFn = CFUNCTYPE(None, c_void_p, c_void_p)
ToolFn = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_size_t)
CancelFn = CFUNCTYPE(None, c_void_p, c_void_p)
OutputFn = CFUNCTYPE(None, c_void_p, c_int, c_void_p, c_size_t)
DisplayFn = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)
EventFn = CFUNCTYPE(None, c_void_p, POINTER(Event))
DoneFn = CFUNCTYPE(None, c_void_p, c_void_p)
CustomOpenFn = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_void_p))
CustomSetFn = CFUNCTYPE(None, c_void_p, c_uint64, c_char_p, c_char_p, c_void_p, c_size_t)
CustomExecuteFn = CFUNCTYPE(None, c_void_p, c_uint64, c_void_p, c_size_t)
CustomInterruptFn = CFUNCTYPE(None, c_void_p, c_uint64)
CustomReplyFn = CFUNCTYPE(None, c_void_p, c_uint64, c_void_p, c_size_t)
CustomCloseFn = CFUNCTYPE(None, c_void_p)
SessionDoneFn = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, POINTER(Error))


class ApprovalHead(Structure):
    """struct droste_approval: what is not read through its JSON (_approvals.py) is `session`."""
    _fields_ = [("id", c_int64), ("run", c_char_p), ("root", c_char_p), ("tool", c_char_p),
                ("arguments", c_char_p), ("len", c_size_t), ("asked_ms", c_int64),
                ("until_ms", c_int64), ("repeated", c_int), ("account", c_char_p),
                ("decision", c_char_p), ("decided_ms", c_int64), ("decided_by", c_char_p),
                ("decision_reason", c_char_p), ("begun_ms", c_int64), ("ended", c_int),
                ("interrupted", c_int), ("session", c_void_p), ("wants_result", c_int),
                ("result", c_char_p), ("result_len", c_size_t)]


class NetworkRequest(Structure):
    _fields_ = [("method", c_char_p), ("host", c_char_p), ("port", c_uint), ("path", c_char_p),
                ("secrets", POINTER(c_char_p))]


class Request(Structure):
    _fields_ = [("question", c_char_p), ("context", c_char_p), ("data", c_char_p),
                ("len", c_size_t), ("kind", c_char_p), ("contexts", POINTER(c_char_p)),
                ("settings", POINTER(c_char_p)), ("batch", c_char_p), ("task", c_char_p),
                ("resume", c_char_p), ("event", EventFn), ("done", DoneFn), ("arg", c_void_p),
                ("all_events", c_int), ("chat", c_void_p), ("values", c_int), ("id", c_char_p),
                ("account", c_char_p), ("log", c_void_p), ("budget", c_void_p),
                ("parts", c_void_p), ("part_count", c_size_t)]


class FileEntry(Structure):
    _fields_ = [("name", c_char_p), ("mode", c_uint32), ("size", c_uint64), ("mtime_ns", c_int64),
                ("uid", c_uint32), ("gid", c_uint32), ("user", c_char_p), ("group", c_char_p),
                ("target", c_char_p), ("target_mode", c_uint32), ("attributes", c_char_p)]


class FileRequest(Structure):
    _fields_ = [("op", c_char_p), ("path", c_char_p), ("to", c_char_p), ("mode", c_char_p),
                ("handle", c_uint64), ("offset", c_int64), ("length", c_size_t), ("depth", c_uint),
                ("most", c_size_t), ("flags", c_int), ("data", c_char_p), ("len", c_size_t)]


class FileReply(Structure):
    _fields_ = [("handle", c_uint64), ("data", c_void_p), ("len", c_size_t),
                ("entries", POINTER(FileEntry)), ("count", c_size_t), ("more", c_int)]


class CommandRequest(Structure):
    _fields_ = [("op", c_char_p), ("handle", c_uint64), ("argv", POINTER(c_char_p)),
                ("env", POINTER(c_char_p)), ("cwd", c_char_p), ("flags", c_int),
                ("length", c_size_t), ("data", c_char_p), ("len", c_size_t), ("signal", c_int),
                ("timeout_ms", c_uint64), ("user", c_char_p), ("tag", c_char_p), ("pid", c_int64),
                ("columns", c_uint), ("rows", c_uint), ("port", c_uint)]


class CommandInfo(Structure):
    _fields_ = [("pid", c_int64), ("tag", c_char_p), ("user", c_char_p), ("cwd", c_char_p),
                ("argv", POINTER(c_char_p)), ("env", POINTER(c_char_p)), ("cut", c_int),
                ("terminal", c_int), ("ended", c_int), ("status", c_int), ("timed_out", c_int)]


class CommandReply(Structure):
    _fields_ = [("handle", c_uint64), ("pid", c_int64), ("out", c_void_p), ("out_len", c_size_t),
                ("err", c_void_p), ("err_len", c_size_t), ("ended", c_int), ("status", c_int),
                ("timed_out", c_int), ("commands", POINTER(CommandInfo)), ("count", c_size_t)]


FileFn = CFUNCTYPE(None, c_void_p, POINTER(FileReply), POINTER(Error))
CommandFn = CFUNCTYPE(None, c_void_p, POINTER(CommandReply), POINTER(Error))


class Checkpoint(Structure):
    _fields_ = [("id", c_uint), ("parent", c_uint), ("cell", c_uint64), ("memory", c_uint64),
                ("current", c_int)]


class Value(Structure):
    _fields_ = [("data", c_void_p), ("len", c_size_t), ("hash", c_char_p)]


class RecordMedia(Structure):
    _fields_ = [("result", c_int64), ("type", c_char_p), ("form", c_char_p), ("value", Value)]


class RecordArtifact(Structure):
    _fields_ = [("name", c_char_p), ("size", c_int64), ("sha256", c_char_p), ("value", Value)]


class RecordRequest(Structure):
    _fields_ = [("run", c_char_p), ("turn", c_int64), ("cell", c_int64), ("method", c_char_p),
                ("host", c_char_p), ("port", c_int64), ("path", c_char_p), ("address", c_char_p),
                ("refused", c_int), ("why", c_char_p), ("status", c_int64), ("sent", c_int64),
                ("received", c_int64), ("started_ms", c_int64), ("seconds", c_double)]


class RecordRun(Structure):
    _fields_ = [("id", c_char_p), ("parent", c_char_p), ("parent_cell", c_int64),
                ("previous", c_char_p), ("batch", c_char_p), ("task", c_char_p), ("depth", c_int64),
                ("model", c_char_p), ("environment", c_char_p), ("isolation", c_char_p),
                ("version", c_char_p), ("question", Value), ("context", Value), ("limits", Value),
                ("tools", Value), ("settings", Value), ("context_data", Value), ("seq", c_int64),
                ("started_ms", c_int64), ("ended_ms", c_int64), ("status", c_char_p),
                ("error", c_char_p), ("code", c_char_p), ("answer", Value), ("iterations", c_int64),
                ("calls", c_int64), ("input_tokens", c_int64), ("output_tokens", c_int64),
                ("cost", c_double), ("seconds", c_double), ("parent_fork", c_char_p),
                ("artifacts", POINTER(RecordArtifact)), ("artifact_count", c_size_t),
                ("account", c_char_p), ("requests", POINTER(RecordRequest)),
                ("request_count", c_size_t)]


class RecordTurn(Structure):
    _fields_ = [("run", c_char_p), ("turn", c_int64), ("started_ms", c_int64), ("kept", c_int64),
                ("reason", c_char_p), ("session", c_char_p)]


class RecordCall(Structure):
    _fields_ = [("id", c_int64), ("run", c_char_p), ("turn", c_int64), ("cell", c_int64),
                ("depth", c_int64), ("kind", c_char_p), ("from_loop", c_int), ("model", c_char_p),
                ("request", Value), ("key", c_char_p), ("started_ms", c_int64),
                ("ended_ms", c_int64), ("status", c_char_p), ("error", c_char_p),
                ("finish", c_char_p), ("reply", Value), ("input_tokens", c_int64),
                ("output_tokens", c_int64), ("estimated", c_int), ("cost", c_double),
                ("attempts", c_int64), ("repeated", c_int64), ("seconds", c_double),
                ("fork", c_char_p), ("candidate", c_int64)]


class RecordCell(Structure):
    _fields_ = [("id", c_int64), ("run", c_char_p), ("turn", c_int64), ("code", Value),
                ("started_ms", c_int64), ("ended_ms", c_int64), ("status", c_char_p),
                ("killed", c_char_p), ("standard_output", Value), ("standard_error", Value),
                ("submit", Value), ("error", Value), ("variables", Value), ("calls", c_int64),
                ("seconds", c_double), ("media", POINTER(RecordMedia)), ("media_count", c_size_t),
                ("candidate", c_int64)]


class RecordFilter(Structure):
    _fields_ = [("parent", c_char_p), ("children", c_int), ("status", c_char_p),
                ("model", c_char_p), ("batch", c_char_p), ("task", c_char_p), ("limit", c_int64),
                ("account", c_char_p), ("before", c_int64), ("since_ms", c_int64)]


class RecordExport(Structure):
    _fields_ = [("runs", POINTER(c_char_p)), ("count", c_size_t), ("batch", c_char_p),
                ("format", c_int)]


class RecordFreed(Structure):
    _fields_ = [("runs", c_int64), ("values", c_int64), ("value_bytes", c_int64),
                ("interrupted", c_int64), ("file_bytes", c_int64)]


class RecordKeep(Structure):
    _fields_ = [("newest", c_int64), ("older_ms", c_int64)]


class BatchOptions(Structure):
    _fields_ = [("tasks", c_char_p), ("results", c_char_p), ("concurrency", c_uint),
                ("grader", c_char_p), ("grader_timeout", c_double), ("again", c_int),
                ("max_calls", c_int64), ("max_tokens", c_int64), ("max_cost", c_double),
                ("timeout", c_double)]


class BatchState(Structure):
    _fields_ = ([(name, c_size_t) for name in (
        "tasks", "earlier", "running", "answered", "exhausted", "budget", "timeout", "cancelled",
        "error", "resumed", "interrupted", "graded", "passed", "ungraded")] + [
            ("score", c_double), ("calls", c_int64), ("input_tokens", c_int64),
            ("output_tokens", c_int64), ("cost", c_double), ("seconds", c_double),
            ("stopped", c_char_p), ("why", ctypes.c_char * 2048)])


class BatchEvent(Structure):
    _fields_ = [("kind", c_char_p), ("text", c_void_p), ("len", c_size_t),
                ("state", POINTER(BatchState))]


BatchFn = CFUNCTYPE(None, c_void_p, POINTER(BatchEvent))
NetworkFn = CFUNCTYPE(None, c_void_p, c_void_p)
ApprovalFn = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(Error))
PieceFn = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)
RecordRunFn = CFUNCTYPE(c_int, c_void_p, POINTER(RecordRun), POINTER(Error))
RecordTurnFn = CFUNCTYPE(c_int, c_void_p, POINTER(RecordTurn), POINTER(Error))
RecordCallFn = CFUNCTYPE(c_int, c_void_p, POINTER(RecordCall), POINTER(Error))
RecordCellFn = CFUNCTYPE(c_int, c_void_p, POINTER(RecordCell), POINTER(Error))


class Feature(Structure):
    _fields_ = [("name", c_char_p), ("settings", c_char_p), ("supported", c_int),
                ("text", c_char_p)]


class Finding(Structure):
    _fields_ = [("name", c_char_p), ("state", c_char_p), ("text", c_void_p), ("len", c_size_t),
                ("cure", c_char_p)]


FeatureFn = CFUNCTYPE(None, c_void_p, POINTER(Feature))
FindingFn = CFUNCTYPE(None, c_void_p, POINTER(Finding))


class RecordVisitor(Structure):
    _fields_ = [("run", RecordRunFn), ("turn", RecordTurnFn), ("call", RecordCallFn),
                ("cell", RecordCellFn), ("end", RecordRunFn), ("children", c_int), ("lazy", c_int)]


class VolumeUsage(Structure):
    _fields_ = [("size", c_uint64), ("files", c_uint64), ("size_limit", c_uint64),
                ("files_limit", c_uint64)]


class VolumeEntry(Structure):
    _fields_ = [("path", c_char_p), ("mode", c_uint32), ("size", c_uint64), ("mtime", c_int64)]


class VolumeCount(Structure):
    _fields_ = [("files", c_uint64), ("bytes", c_uint64), ("left_out", c_uint64)]


class ImageFacts(Structure):
    _fields_ = [("id", c_char_p), ("path", c_char_p), ("names", c_char_p), ("config", c_char_p),
                ("bytes", c_ulonglong), ("files", c_ulonglong), ("made", c_longlong),
                ("in_use", c_int), ("damaged", c_int)]


class PackageSetFacts(Structure):
    _fields_ = [("id", c_char_p), ("path", c_char_p), ("python", c_char_p),
                ("packages", c_char_p), ("bytes", c_ulonglong), ("files", c_ulonglong),
                ("made", c_longlong), ("used", c_longlong), ("in_use", c_int), ("damaged", c_int)]


ImageFn = CFUNCTYPE(c_int, c_void_p, POINTER(ImageFacts))
PackagesFn = CFUNCTYPE(c_int, c_void_p, POINTER(PackageSetFacts))
NameFn = CFUNCTYPE(c_int, c_void_p, c_char_p)
VolumeEntryFn = CFUNCTYPE(c_int, c_void_p, POINTER(VolumeEntry))


class CustomEnvironment(Structure):
    _fields_ = [("size", c_size_t), ("about", c_char_p), ("open", CustomOpenFn),
                ("set", CustomSetFn), ("execute", CustomExecuteFn),
                ("interrupt", CustomInterruptFn), ("reply", CustomReplyFn),
                ("close", CustomCloseFn)]


ERR = POINTER(Error)
_WAITING = {
    "droste_new": (c_int, [POINTER(c_void_p), ERR]),
    "droste_free": (None, [c_void_p]),
    "droste_configure": (c_int, [c_void_p, c_char_p, ERR]),
    "droste_dispatch": (c_int, [c_void_p, ERR]),
    "droste_turn": (c_int, [c_void_p, c_int, ERR]),
    "droste_start": (c_int, [c_void_p, POINTER(Request), POINTER(c_void_p), ERR]),
    "droste_session_start": (c_int, [c_void_p, POINTER(c_char_p), POINTER(c_void_p), ERR]),
    "droste_session_start_from": (c_int, [c_void_p, POINTER(c_char_p), POINTER(c_void_p), ERR]),
    "droste_session_wait": (c_int, [c_void_p, c_int, POINTER(c_void_p), ERR]),
    "droste_session_set_start": (c_int, [c_void_p, c_char_p, c_char_p, c_void_p, c_size_t, ERR]),
    "droste_session_set_pieces_start": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(Piece),
                                                c_size_t, ERR]),
    "droste_session_load": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, ERR]),
    "droste_session_close": (None, [c_void_p]),
    "droste_session_forget": (c_int, [c_void_p, c_uint, ERR]),
    "droste_record_open": (c_int, [c_void_p, POINTER(c_void_p), ERR]),
    "droste_record_close": (None, [c_void_p]),
    "droste_record_visit": (c_int, [c_void_p, c_char_p, POINTER(RecordVisitor), c_void_p, ERR]),
    "droste_record_list": (c_int, [c_void_p, POINTER(RecordFilter), RecordRunFn, c_void_p, ERR]),
    "droste_record_approvals": (c_int, [c_void_p, c_char_p, c_char_p, ApprovalFn, c_void_p, ERR]),
    "droste_record_approval": (c_int, [c_void_p, c_int64, ApprovalFn, c_void_p, ERR]),
    "droste_record_answer": (c_int, [c_void_p, c_int64, c_char_p, c_size_t, c_char_p, ERR]),
    "droste_record_decide": (c_int, [c_void_p, c_int64, c_int, c_char_p, c_char_p, ERR]),
    "droste_record_find": (c_int, [c_void_p, c_char_p, c_char_p, ERR]),
    "droste_record_remove": (c_int, [c_void_p, c_char_p, POINTER(RecordFreed), ERR]),
    "droste_record_read": (c_int, [c_void_p, POINTER(Value), c_size_t, PieceFn, c_void_p, ERR]),
    "droste_record_export": (c_int, [c_void_p, POINTER(RecordExport), c_char_p, ERR]),
    "droste_record_export_fd": (c_int, [c_void_p, POINTER(RecordExport), c_int, ERR]),
    "droste_record_collect": (c_int,
                              [c_void_p, POINTER(RecordKeep), POINTER(RecordFreed), ERR]),
    "droste_batch": (c_int, [c_void_p, POINTER(BatchOptions), BatchFn, c_void_p,
                             POINTER(BatchState), ERR]),
    "droste_image_visit": (c_int, [c_void_p, c_char_p, ImageFn, c_void_p, ERR]),
    "droste_image_pull": (c_int, [c_void_p, c_char_p, ImageFn, c_void_p, ERR]),
    "droste_image_remove": (c_int, [c_void_p, c_char_p, ERR]),
    "droste_packages_build": (c_int, [c_void_p, c_int, POINTER(c_char_p), ERR]),
    "droste_packages_list": (c_int, [c_void_p, PackagesFn, c_void_p, ERR]),
    "droste_packages_remove": (c_int, [c_void_p, c_char_p, ERR]),
    "droste_packages_gc": (c_int,
                           [c_void_p, c_double, POINTER(c_uint), POINTER(c_ulonglong), ERR]),
    "droste_volume_limit": (c_int, [c_void_p, c_char_p, c_char_p, ERR]),
    "droste_volume_snapshots": (c_int, [c_void_p, NameFn, c_void_p, ERR]),
    "droste_volume_snapshot_measure": (c_int, [c_void_p, c_char_p, POINTER(VolumeUsage), ERR]),
    "droste_volume_snapshot": (c_int, [c_void_p, c_char_p, POINTER(VolumeCount), ERR]),
    "droste_volume_restore": (c_int, [c_void_p, c_char_p, POINTER(VolumeCount), ERR]),
    "droste_volume_snapshot_remove": (c_int, [c_void_p, c_char_p, ERR]),
    "droste_volume_names": (c_int, [c_void_p, NameFn, c_void_p, ERR]),
    "droste_volume_create": (c_int, [c_void_p, c_char_p, ERR]),
    "droste_volume_remove": (c_int, [c_void_p, c_char_p, ERR]),
    "droste_volume_open": (c_int, [c_void_p, c_char_p, c_int, POINTER(c_void_p), ERR]),
    "droste_volume_close": (None, [c_void_p]),
    "droste_volume_measure": (c_int, [c_void_p, POINTER(VolumeUsage), ERR]),
    "droste_volume_list": (c_int,
                           [c_void_p, c_char_p, c_uint, c_size_t, VolumeEntryFn, c_void_p, ERR]),
    "droste_volume_get": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(VolumeCount), ERR]),
    "droste_volume_read": (c_int, [c_void_p, c_char_p, c_int, ERR]),
    "droste_volume_put": (c_int, [c_void_p, c_int, c_char_p, POINTER(VolumeCount), ERR]),
    "droste_volume_delete": (c_int, [c_void_p, c_char_p, ERR]),
    "droste_environment_features": (c_int, [c_void_p, c_char_p, FeatureFn, c_void_p, ERR]),
    "droste_environment_collect": (c_int, [c_void_p, POINTER(c_int), ERR]),
    "droste_diagnose": (c_int, [c_void_p, FindingFn, c_void_p]),
    "droste_cancel": (None, [c_void_p]),
    "droste_custom_output": (None, [c_void_p, c_int, c_char_p, c_size_t]),
    "droste_custom_result": (c_int,
                             [c_void_p, c_uint64, c_char_p, c_size_t, c_char_p, c_size_t, ERR]),
    "droste_custom_call": (c_int, [c_void_p, c_uint64, c_char_p, c_size_t, ERR]),
    "droste_custom_cancel": (None, [c_void_p, c_uint64]),
    "droste_custom_end": (None, [c_void_p, c_char_p]),
    "droste_chat_open": (c_int, [c_void_p, POINTER(c_void_p), ERR]),
    "droste_chat_close": (None, [c_void_p]),
}
_QUICK = {
    "droste_version": (c_char_p, []),
    "droste_error_name": (c_char_p, [c_int]),
    "droste_set": (c_int, [c_void_p, c_char_p, c_char_p, ERR]),
    "droste_get": (c_char_p, [c_void_p, c_char_p]),
    "droste_option_at": (POINTER(Option), [c_size_t]),
    "droste_environment_at": (c_char_p, [c_size_t, POINTER(c_char_p)]),
    "droste_environment_variables_at": (c_char_p, [c_size_t]),
    "droste_prompt_at": (c_char_p, [c_size_t, POINTER(c_char_p), POINTER(c_char_p)]),
    "droste_fd": (c_int, [c_void_p, ERR]),
    "droste_wake": (None, [c_void_p]),
    "droste_interrupt": (None, [c_void_p]),
    "droste_context_add": (c_int, [c_void_p, c_char_p, ERR]),
    "droste_forked": (None, [c_void_p]),
    "droste_set_model": (None, [c_void_p, ModelFn, c_void_p]),
    "droste_set_select": (None, [c_void_p, SelectFn, c_void_p]),
    "droste_on_network": (None, [c_void_p, NetworkFn, c_void_p]),
    "droste_network_answer": (None, [c_void_p, c_int, c_char_p]),
    "droste_on_approval": (None, [c_void_p, AskFn, c_void_p]),
    "droste_approval_answer": (c_int, [c_void_p, c_int, c_char_p, c_char_p, ERR]),
    "droste_approval_leave": (None, [c_void_p]),
    "droste_approval_json": (c_int, [c_void_p, PieceFn, c_void_p, ERR]),
    "droste_choice_opened": (c_char_p, [c_void_p]),
    "droste_choose": (None, [c_void_p, c_uint]),
    "droste_choose_none": (None, [c_void_p, c_char_p]),
    "droste_call_opened": (c_char_p, [c_void_p]),
    "droste_call_model": (c_char_p, [c_void_p]),
    "droste_answer": (None, [c_void_p, c_char_p, c_size_t]),
    "droste_refuse": (None, [c_void_p, c_char_p]),
    "droste_tool_add": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, ToolFn, c_void_p, ERR]),
    "droste_tool_data_values": (c_int, [c_void_p, c_char_p, c_char_p, c_size_t, c_char_p, c_size_t,
                                        ERR]),
    "droste_tool_source": (c_int, [c_void_p, c_char_p, c_char_p, c_size_t, ERR]),
    "droste_tools_clear": (None, [c_void_p]),
    "droste_custom_add": (c_int, [c_void_p, c_char_p, POINTER(CustomEnvironment), c_void_p, ERR]),
    "droste_tool_answer": (None, [c_void_p, c_char_p, c_size_t]),
    "droste_tool_answer_values": (None, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t]),
    "droste_tool_values": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "droste_tool_fail": (None, [c_void_p, c_char_p, c_char_p]),
    "droste_tool_post_answer": (c_int, [c_void_p, c_void_p, c_char_p, c_size_t, ERR]),
    "droste_tool_post_failure": (c_int, [c_void_p, c_void_p, c_char_p, c_char_p, ERR]),
    "droste_tool_on_cancel": (None, [c_void_p, CancelFn, c_void_p]),
    "droste_session_tool_add": (c_int,
                                [c_void_p, c_char_p, c_char_p, c_char_p, ToolFn, c_void_p, ERR]),
    "droste_session_tool_remove": (c_int, [c_void_p, c_char_p, ERR]),
    "droste_session_expect": (c_int, [c_void_p, c_char_p, ERR]),
    "droste_session_exec_start": (c_int, [c_void_p, c_char_p, c_size_t, c_int, c_double, ERR]),
    "droste_session_fork_start": (c_int, [c_void_p, POINTER(c_void_p), ERR]),
    "droste_session_at_start": (c_int, [c_void_p, c_uint, POINTER(c_void_p), ERR]),
    "droste_session_checkpoint_start": (c_int, [c_void_p, POINTER(c_uint), ERR]),
    "droste_session_rollback_start": (c_int, [c_void_p, c_uint, ERR]),
    "droste_session_checkpoints": (c_size_t, [c_void_p, POINTER(Checkpoint), c_size_t]),
    "droste_session_template_start": (c_int, [c_void_p, POINTER(c_void_p), ERR]),
    "droste_template_free": (None, [c_void_p]),
    "droste_template_create": (c_int, [c_void_p, c_char_p, POINTER(c_char_p), c_int, ERR]),
    "droste_template_read": (c_void_p, [c_void_p, c_char_p, POINTER(c_size_t), ERR]),
    "droste_template_names": (c_int, [c_void_p, NameFn, c_void_p, ERR]),
    "droste_template_remove": (c_int, [c_void_p, c_char_p, ERR]),
    "droste_session_on_done": (None, [c_void_p, SessionDoneFn, c_void_p]),
    "droste_session_on_output": (None, [c_void_p, OutputFn, c_void_p]),
    "droste_session_on_display": (None, [c_void_p, DisplayFn, c_void_p]),
    "droste_session_interrupt": (None, [c_void_p]),
    "droste_file_start": (c_int, [c_void_p, POINTER(FileRequest), FileFn, c_void_p, ERR]),
    "droste_command_start": (c_int, [c_void_p, POINTER(CommandRequest), CommandFn, c_void_p, ERR]),
    "droste_session_finish_start": (c_int, [c_void_p]),
    "droste_session_is_alive": (c_int, [c_void_p]),
    "droste_session_pause": (c_int, [c_void_p, c_int, ERR]),
    "droste_result_began": (c_int, [c_void_p]),
    "droste_session_isolation": (c_char_p, [c_void_p]),
    "droste_session_sandbox": (c_char_p, [c_void_p]),
    "droste_result_status": (c_char_p, [c_void_p]),
    "droste_result_json": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "droste_result_stdout": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "droste_result_stderr": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "droste_result_outline": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "droste_result_text": (c_void_p, [c_void_p, c_size_t, POINTER(c_size_t)]),
    "droste_result_values": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "droste_result_answer": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "droste_result_echo": (c_char_p, [c_void_p]),
    "droste_result_bundles": (c_size_t, [c_void_p]),
    "droste_result_media": (c_int, [c_void_p, c_size_t, c_size_t, POINTER(Media)]),
    "droste_result_main": (c_long, [c_void_p]),
    "droste_result_shown": (c_void_p, [c_void_p]),
    "droste_bundles_count": (c_size_t, [c_void_p]),
    "droste_bundles_media": (c_int, [c_void_p, c_size_t, c_size_t, POINTER(Media)]),
    "droste_bundles_metadata": (c_char_p, [c_void_p, c_size_t]),
    "droste_bundles_display_id": (c_char_p, [c_void_p, c_size_t]),
    "droste_bundles_is_update": (c_int, [c_void_p, c_size_t]),
    "droste_bundles_is_main": (c_int, [c_void_p, c_size_t]),
    "droste_result_metadata": (c_char_p, [c_void_p, c_size_t]),
    "droste_result_traceback": (c_char_p, [c_void_p]),
    "droste_result_alive": (c_int, [c_void_p]),
    "droste_result_rolled_back": (c_longlong, [c_void_p]),
    "droste_result_error": (None, [c_void_p, ERR]),
    "droste_result_seconds": (c_double, [c_void_p]),
    "droste_result_free": (None, [c_void_p]),
}
for _library, _table in ((lib, _WAITING), (quick, _QUICK)) if path is not None else ():
    for _name, (_result, _arguments) in _table.items():
        _function = getattr(_library, _name)
        _function.restype = _result
        _function.argtypes = _arguments

_keep = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, ctypes.c_ssize_t)
#: copies bytes from the library's memory
bytes_at = _keep(("PyBytes_FromStringAndSize", ctypes.pythonapi))
_decode = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, ctypes.c_ssize_t, c_char_p)(
    ("PyUnicode_DecodeUTF8", ctypes.pythonapi))
_encoded = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object,
                             c_void_p)(("PyUnicode_AsUTF8AndSize", ctypes.pythonapi))


def text_at(address: Optional[int], length: int) -> str:
    """Copies UTF-8 text from the library's memory."""
    return _decode(address, length, b"replace") if address else ""


def ascii_of(text: str) -> int:
    """Returns the address of an ASCII str's bytes, valid while the str lives."""
    return _encoded(text, None)


def _list_options() -> Iterator[Option]:
    at = 0
    while path is not None and quick.droste_option_at(at):
        yield quick.droste_option_at(at).contents
        at += 1


#: all settings by name
options = {option.name.decode(): option for option in _list_options()}
#: environment variables that affect settings
variables = tuple(o.environment.decode() for o in options.values() if o.environment) + (
    "GOOGLE_API_KEY", "DROSTE_CONFIG", "XDG_CONFIG_HOME", "HOME", "VIRTUAL_ENV", "PATH",
    "DROSTE_HOME") + tuple(
    name for at in itertools.takewhile(quick.droste_environment_variables_at, itertools.count())
    for name in quick.droste_environment_variables_at(at).decode().split()
) if path is not None else ()


def _version() -> str:
    if path is not None:
        return quick.droste_version().decode()
    import importlib.metadata
    try:
        return importlib.metadata.version("droste")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


version = _version()
