"""The engine of remote sessions: what an `Engine` is for sessions of this machine.

Without asyncio, everything happens in the thread that waits for a cell, tools included. On a loop,
each session has a thread that speaks with the server, and what concerns the program (output, ends
of operations, answers of tools) is posted to the loop. A caller that blocks the loop's thread does
that work itself.
"""
from __future__ import annotations

import asyncio
import collections
import json
import os
import threading
import weakref
from typing import Any, Callable, Deque, Dict, List, Optional

from .. import _engine, _models
from ..errors import Error, LostError
from . import requests
from .client import b64, failure_of, Refused, Server, unb64

WAIT_SECONDS = 0.05         # of a blocked loop, in which signal handlers run


class Sandbox:
    """A sandbox of the server's: requests below its path."""

    def __init__(self, server: Server):
        self.server = server
        self.id: Optional[str] = None       # until it is created
        self.isolation = ""
        self.handles = requests.Handles()
        self.lost = False

    def path(self, below: str = "") -> str:
        return "/v1/sandboxes/%s%s" % (self.id, below)

    def begin(self, method: str, below: str, body: Any = None, **more: Any) -> Any:
        return self.server.begin(method, self.path(below), _bytes_of(body), **more)

    def ask(self, method: str, below: str, body: Any = None, **more: Any) -> Any:
        return self.server.ask(method, self.path(below), body, **more)

    def upload(self, below: str, query: Dict[str, Any]) -> Any:
        return self.server.upload(self.path(below), query)

    def failure(self, refused: Refused) -> Exception:
        """Creates the exception for a refusal; notes whether the sandbox is gone."""
        gone = refused.status == 404 and refused.message.startswith("there is no sandbox")
        failure = failure_of(refused)
        if gone:
            failure = LostError("the session was lost: %s" % refused.message)
        self.lost = self.lost or gone or refused.status == 410 or isinstance(failure, LostError)
        return failure


def _bytes_of(body: Any) -> Any:
    return body if body is None or isinstance(body, (bytes, bytearray, memoryview)
                                              ) else json.dumps(body).encode()


class Call:
    """A call of the code in a sandbox, which the client answers; once."""

    def __init__(self, sandbox: Sandbox, number: int):
        self.sandbox, self.number = sandbox, number

    def send(self, body: Dict[str, Any]) -> None:
        try:
            self.sandbox.ask("POST", "/calls/%d" % self.number, body)
        except Refused as e:
            if e.status in (404, 409, 410):     # its cell has ended
                return
            if e.status in (400, 413):          # too large
                self.sandbox.ask("POST", "/calls/%d" % self.number,
                                 {"error": {"type": "ValueError", "message": e.message}})


class RemoteEngine:
    """What a session and its forks share: the server, the loop, and the models' functions."""
    is_remote = True

    def __init__(self, server: Server, loop: Optional[asyncio.AbstractEventLoop]):
        self.server, self.loop = server, loop
        self.handle: Optional[int] = 1      # None in the child of a fork
        self.lock = threading.RLock()
        self.inside = self.held_up = False
        self.interrupt: Optional[BaseException] = None
        self.users = 1
        self.numbers: List[int] = []        # of models that are functions (_models.py)
        self.id = next(_engine.ids)
        self._posts: Deque[Callable[[], None]] = collections.deque()
        self._posted = threading.Condition()
        _all.add(self)

    def alive(self) -> int:
        if self.handle is None:
            raise Error("this object belongs to the parent process of a fork; create a "
                                "new one")
        return self.handle

    def leave(self) -> None:
        """A session has ended; the last one releases the models."""
        self.users -= 1
        while self.users == 0 and self.numbers:
            _models.models.remove(self.numbers.pop())

    # -- work in the program's thread

    def post(self, work: Callable[[], None]) -> None:
        loop = self.loop
        if loop is None:
            work()
            return
        with self._posted:
            self._posts.append(work)
            self._posted.notify_all()
        try:
            loop.call_soon_threadsafe(self.drain)
        except RuntimeError:        # closed
            pass

    def drain(self) -> None:
        while self._posts:
            try:
                work = self._posts.popleft()
            except IndexError:
                return
            work()

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Does the work of the loop, whose thread the caller blocks, until it is done."""
        while not done():
            with self._posted:
                if not self._posts:
                    self._posted.wait(WAIT_SECONDS)
            self.drain()

    @staticmethod
    def work(function: Callable[[], None]) -> None:
        """Runs something in a thread, where it may block."""
        _engine.workers("requests").submit(function)

    def kick(self) -> None:
        """Of a local engine."""

    def running_loop(self) -> Optional[asyncio.AbstractEventLoop]:
        loop = self.loop
        return None if loop is None or self.held_up or not loop.is_running() else loop

    def failed(self, failure: BaseException) -> None:
        """Reports an exception that a callback raised: to the loop, or to the waiting caller."""
        if self.loop is not None:
            self.loop.call_exception_handler({"message": "in a callback of Droste's",
                                              "exception": failure})
        else:
            self.interrupt = failure

    def raise_failure(self) -> None:
        failure, self.interrupt = self.interrupt, None
        if failure is not None:
            raise failure

    # -- requests

    @staticmethod
    def ask(sandbox: Sandbox, request: Any) -> Any:
        return requests.ask(sandbox, request)

    # -- calls of the code

    def _answer(self, call: Call, body: Dict[str, Any]) -> None:
        if self.loop is None:
            call.send(body)
        else:
            self.work(lambda: _quietly(call.send, body))

    def answer(self, call: Call, data: bytes, values: Optional[bytes]) -> None:
        body: Dict[str, Any] = {"value": json.loads(data)}
        if values is not None:
            body["values"] = b64(values)
        self._answer(call, body)

    def fail(self, call: Call, name: bytes, message: bytes) -> None:
        self._answer(call, {"error": {"type": name.decode(), "message": message.decode()}})

    def answer_model(self, call: Call, text: bytes) -> None:
        self._answer(call, {"text": text.decode("utf-8", "replace")})

    def refuse_model(self, call: Call, why: bytes) -> None:
        self._answer(call, {"error": {"message": why.decode()}})

    def on_cancel(self, call: Call, function: Any) -> None:
        """The stream of the cell tells of cancelled calls."""

    def use_models(self, function: Any) -> None:
        """The stream of the cell tells of calls of models."""

    def take_model_call(self, call: Call, data: Dict[str, Any], numbers: Dict[str, int]) -> None:
        """Begins a call of a model. Never raises."""
        try:
            number = numbers.get(data["name"].replace("-", "_"), 0)
            _models.ask(self, call, number, [_message_of(m) for m in data["messages"]],
                        data["model"])
        except BaseException as e:
            if not isinstance(e, Exception):
                self.interrupt = e
            _models.refuse(self, call, e)


def _quietly(function: Callable[..., Any], *arguments: Any) -> None:
    try:
        function(*arguments)
    except Exception:       # the session is lost, as its cell will say
        pass


def _part_of(part: Dict[str, Any]) -> Dict[str, Any]:
    if part["kind"] == "text":
        return {"type": "text", "text": part["text"]}
    if part["kind"] == "image":
        url = "data:%s;base64,%s" % (part["media_type"], part["data"])
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "document", "media_type": part["media_type"],
            "data": bytes(unb64(part["data"], "a document"))}


def _message_of(m: Dict[str, Any]) -> Dict[str, Any]:
    content = [_part_of(part) for part in m["parts"]] if "parts" in m else m["text"]
    return {"role": m["role"], "content": content}


_all: "weakref.WeakSet[RemoteEngine]" = weakref.WeakSet()


def _after_fork() -> None:
    for engine in list(_all):
        engine.handle = engine.loop = None
        engine.lock = threading.RLock()
        engine._posted = threading.Condition()
        engine._posts.clear()
        engine.inside = engine.held_up = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
