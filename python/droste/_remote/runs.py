"""The record of a server: `droste.runs` with `server=`."""
from __future__ import annotations

import datetime
import io
import os
from typing import Any, cast, Dict, Iterator, List, Optional, Sequence

from ..errors import ArgumentError
from . import address_of
from .client import failure_of, PIECE, Refused, Server, server_at
from .rlm import _Followed

PAGE = 1000


def of(server: Optional[str], api_key: Optional[str], database: Any) -> Optional[Server]:
    """Returns the server whose record is meant; None: that of this machine."""
    address = address_of(server)
    if address is None or (server is None and database is not None):
        return None
    if database is not None:
        raise ArgumentError("a server's record is its own: leave out database")
    return server_at(address, api_key)


def _ask(server: Server, method: str, path: str, **more: Any) -> Any:
    try:
        return server.ask(method, path, **more)
    except Refused as e:
        raise failure_of(e) from None


def _seconds(text: Optional[str]) -> Optional[float]:
    if text is None:
        return None
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def run_fields(d: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the members of `Run` from a run as the server describes it."""
    usage = d["usage"]
    same = {name: d[name] for name in ("parent", "previous", "batch", "task", "depth", "model",
                                       "environment", "isolation", "version", "status", "error",
                                       "answer")}
    return {"id": d["run"], **same, "question": d["question"] or "", "code": None,
            "started": _seconds(d["started"]) or 0.0, "ended": _seconds(d["ended"]),
            "iterations": d["iterations"] or 0, "calls": usage["calls"] or 0,
            "input_tokens": usage["input_tokens"] or 0,
            "output_tokens": usage["output_tokens"] or 0, "cost": usage["cost"],
            "seconds": usage["seconds"] or 0.0}


def list_runs(server: Server, limit: int, status: Optional[str], model: Optional[str]
              ) -> Iterator[Dict[str, Any]]:
    """Yields the members of each root run of the key's, the newest first."""
    before: Any = 0         # a number, or a text of a cluster's
    left = limit or None
    while left is None or left > 0:
        query = {"limit": min(PAGE, left or PAGE), "before": before, "status": status,
                 "model": model}
        found = _ask(server, "GET", "/v1/runs", query=query)
        for each in found["runs"]:
            yield run_fields(each)
        left = None if left is None else left - len(found["runs"])
        if found["next"] is None:
            return
        before = found["next"]


def get_run(server: Server, run: str) -> Dict[str, Any]:
    return run_fields(_ask(server, "GET", "/v1/runs/" + run))


def export_runs(server: Server, runs: Sequence[str], format: str, out: Any) -> Optional[str]:
    """Writes exports to a path, which is complete at the end or unchanged; or returns their text.
    """
    if format == "html" and len(runs) != 1:
        raise ArgumentError("a page of a server's runs has one run")
    draft = None if out is None else "%s.part-%s" % (os.fsdecode(out), os.urandom(8).hex())
    try:
        with io.BytesIO() if draft is None else open(draft, "xb") as file:
            for run in runs:
                _copy_export(server, run, format, file)
            if draft is None:
                return cast(io.BytesIO, file).getvalue().decode()
        os.replace(draft, out)
        return None
    finally:
        if draft is not None and os.path.lexists(draft):
            os.unlink(draft)


def _copy_export(server: Server, run: str, format: str, file: Any) -> None:
    try:
        answer = server.begin("GET", "/v1/runs/%s/export" % run, query={"format": format})
    except Refused as e:
        raise failure_of(e) from None
    try:
        for piece in iter(lambda: answer.read(PIECE), b""):
            file.write(piece)
    finally:
        answer.close()


def list_approvals(server: Server, run: Optional[str]) -> List[Dict[str, Any]]:
    query = {} if run is None else {"run": run}
    return list(_ask(server, "GET", "/v1/approvals", query=query)["approvals"])


def get_approval(server: Server, number: int, run: Optional[str]) -> Dict[str, Any]:
    return dict(_ask(server, "GET", "/v1/approvals/%d" % number, query={"run": run}))


def decide(server: Server, number: int, approve: bool, reason: Optional[str], run: Optional[str]
           ) -> Dict[str, Any]:
    body = {"decision": "approve" if approve else "deny"}
    if reason is not None:
        body["reason"] = reason
    return dict(_ask(server, "POST", "/v1/approvals/%d" % number, body=body, query={"run": run}))


def remove_run(server: Server, run: str) -> None:
    _ask(server, "DELETE", "/v1/runs/" + run)


def cancel_run(server: Server, run: str) -> None:
    _ask(server, "POST", "/v1/runs/%s/cancel" % run)


def follow_lines(server: Server, run: str, children: bool) -> Iterator[Dict[str, Any]]:
    """Yields the lines of a run's turns, calls and cells, as they begin and as they end."""
    for line in _Followed(server, run, None, "").lines():
        if line["type"] in ("turn", "call", "cell") and (children or line["run"] == run):
            yield line


def fields_of_line(line: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the fields of a `Step` from a line."""
    found: Dict[str, Any] = {}
    for name, value in line.items():
        if name in ("schema", "type", "results", "cut", "as_text"):
            continue
        found[name] = _seconds(value) if name in ("started", "ended") else value
    return found


def steps_of(server: Server, run: str, children: bool) -> List[Dict[str, Any]]:
    """Returns the last line of each step, in the order in which they began."""
    found: Dict[Any, Dict[str, Any]] = {}
    for line in follow_lines(server, run, children):
        found[line["type"], line["run"], line.get("id", line["turn"])] = line
    return list(found.values())
