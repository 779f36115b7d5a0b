"""The address at which an environment's processes ask for models: `broker_address`, on this machine
alone.

The protocol is agentic-codebase-navigator's, so that programs written for it need no other: a
connection for each request, a frame for each way (4 bytes of length, the highest first, then a JSON
object in UTF-8).

    {"correlation_id": …, "model": …, "prompt": …}      or "prompts": [...] in the place of "prompt"
    {"correlation_id": …, "error": null, "results": [{"error": null, "chat_completion": {"response":
    …, …}}]}

Every program that reaches the port can connect, so the run's `correlation_id`, which is random,
must be in a request: other users of the machine do not know it. Frames are bounded before memory is
allocated, connections by their number and their time.
"""
from __future__ import annotations

import hmac
import json
import socket
import struct
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from ..errors import ArgumentError, Error

FRAME_MOST = 10_000_000     # bytes, as navigator has it
CONNECTIONS_MOST = 64       # at once; further ones wait in the kernel's queue
SECONDS_MOST = 60.0         # for a frame to come
# for the peer to read its answer, if it sent more than the request
SECONDS_TO_FINISH = 2.0
KEYS = {"correlation_id", "model", "prompt", "prompts"}


def receive(connection: socket.socket) -> Optional[Dict[str, Any]]:
    """Returns the object of one frame, or None if the peer closed the connection before it."""
    head = _exactly(connection, 4)
    if not head:
        return None
    (length,) = struct.unpack(">I", head)
    if length > FRAME_MOST:
        raise ArgumentError("Frame too large: %d bytes (max %d)" % (length, FRAME_MOST))
    body = _exactly(connection, length)
    try:
        found = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise ArgumentError("Invalid JSON payload") from None
    if not isinstance(found, dict):
        raise ArgumentError("Frame JSON must be an object")
    return found


def _exactly(connection: socket.socket, length: int) -> bytes:
    """Reads exactly so many bytes within SECONDS_MOST, or none if the connection ends before the
    first. Memory grows with the received bytes."""
    found, end = bytearray(), time.monotonic() + SECONDS_MOST
    while len(found) < length:
        connection.settimeout(max(0.001, end - time.monotonic()))
        piece = connection.recv(min(length - len(found), 65536))
        if not piece and not found:
            return b""
        if not piece:
            raise ConnectionError("Connection closed before message complete")
        found += piece
    return bytes(found)


def send(connection: socket.socket, message: Dict[str, Any]) -> None:
    data = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
    connection.settimeout(SECONDS_MOST)
    connection.sendall(struct.pack(">I", len(data)) + data)


def finish(connection: socket.socket) -> None:
    """Reads what is left before the connection is closed: a TCP connection that is closed with data
    unread is reset, and with it goes an answer that is still under way."""
    connection.shutdown(socket.SHUT_WR)
    end, left = time.monotonic() + SECONDS_TO_FINISH, FRAME_MOST
    while left > 0 and time.monotonic() < end:
        connection.settimeout(max(0.001, end - time.monotonic()))
        piece = connection.recv(65536)
        if not piece:
            return
        left -= len(piece)


def is_prompt(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and bool(value)
                                      and all(isinstance(m, dict) for m in value))


def check(request: Dict[str, Any], secret: str) -> List[Any]:
    """Returns the prompts of a valid request."""
    unknown = sorted(set(request) - KEYS)
    if unknown:
        raise ArgumentError("Unknown keys in WireRequest: %r" % unknown)
    value = request.get("correlation_id")
    if not isinstance(value, str) or not hmac.compare_digest(value.encode("utf-8", "replace"),
                                                             secret.encode()):
        raise ArgumentError("Invalid correlation_id: a request must have the correlation_id of "
                            "its run")
    if request.get("model") is not None and not isinstance(request["model"], str):
        raise ArgumentError("Invalid model")
    if ("prompt" in request) == ("prompts" in request):
        raise ArgumentError("WireRequest must include only one of 'prompt' or 'prompts'"
                            if "prompt" in request
                            else "WireRequest missing 'prompt' or 'prompts'")
    prompts = [request["prompt"]] if "prompt" in request else request["prompts"]
    if not isinstance(prompts, list) or not prompts:
        raise ArgumentError("WireRequest.prompts must not be empty")
    if not all(map(is_prompt, prompts)):
        raise ArgumentError("WireRequest.prompt must be a valid Prompt (str | list[dict])")
    return prompts


class Server:
    """Answers requests of one run through its broker, until closed."""

    def __init__(self, broker: Any, correlation_id: str):
        self._broker, self._secret = broker, correlation_id
        self._free = threading.BoundedSemaphore(CONNECTIONS_MOST)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: Tuple[str, int] = self._listening.getsockname()
        self._closed = False
        threading.Thread(target=self._accept, name="droste-broker", daemon=True).start()

    def close(self) -> None:
        """Stops answering."""
        self._closed = True
        try:
            self._listening.shutdown(socket.SHUT_RDWR)      # which wakes the thread that accepts
        except OSError:
            pass
        self._listening.close()

    def _accept(self) -> None:
        while not self._closed:
            self._free.acquire()
            try:
                connection, _ = self._listening.accept()
            except OSError:
                self._free.release()
                if self._closed:
                    return
                time.sleep(0.05)        # no descriptors are left, for now
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        reply: Dict[str, Any] = {"correlation_id": None, "error": None, "results": None}
        try:
            with connection:
                try:
                    request = receive(connection)
                    if request is None:
                        return
                    reply["results"] = self._answer(request)
                    reply["correlation_id"] = request["correlation_id"]
                except ArgumentError as e:
                    reply["error"] = str(e)
                send(connection, reply)
                finish(connection)
        except OSError:
            pass        # the other side is gone, or took too long
        finally:
            self._free.release()

    def _answer(self, request: Dict[str, Any]) -> List[Dict[str, Any]]:
        prompts, model = check(request, self._secret), request.get("model")
        if len(prompts) == 1:
            return [self._one(prompts[0], model)]
        results: List[Any] = [None] * len(prompts)

        def ask(at: int) -> None:
            results[at] = self._one(prompts[at], model)

        threads = [threading.Thread(target=ask, args=(at,), daemon=True)
                   for at in range(len(prompts))]
        for begin in range(0, len(threads), CONNECTIONS_MOST):
            some = threads[begin:begin + CONNECTIONS_MOST]
            for thread in some:
                thread.start()
            for thread in some:
                thread.join()
        return results

    def _one(self, prompt: Any, model: Optional[str]) -> Dict[str, Any]:
        begun = time.monotonic()
        try:
            response = self._broker.complete(prompt, model)
        except Error as e:
            return {"error": str(e), "chat_completion": None}
        except Exception:       # its words may be about what is no business of a client's
            return {"error": "Internal broker error", "chat_completion": None}
        return {"error": None, "chat_completion": {
            "root_model": model or "", "prompt": prompt, "response": response,
            "usage_summary": {"model_usage_summaries": {}},
            "execution_time": time.monotonic() - begun}}


def ask(address: Tuple[str, int], correlation_id: str, prompt: Any,
        model: Optional[str] = None) -> str:
    """The client side: returns the answer to one prompt."""
    request: Dict[str, Any] = {"correlation_id": correlation_id, "prompt": prompt}
    if model is not None:
        request["model"] = model
    with socket.create_connection(address, timeout=SECONDS_MOST) as connection:
        send(connection, request)
        # a model may take long; the caller has its own deadline
        connection.settimeout(None)
        found = _exactly_without_limit(connection)
    if found.get("error") or not found.get("results"):
        raise Error(found.get("error") or "the broker closed the connection without an answer")
    result = found["results"][0]
    if result["error"]:
        raise Error(result["error"])
    return result["chat_completion"]["response"]


def _exactly_without_limit(connection: socket.socket) -> Dict[str, Any]:
    """Reads an answer of any length, because it comes from the host."""
    with connection.makefile("rb") as stream:
        head = stream.read(4)
        if len(head) < 4:
            raise ConnectionError("Connection closed before message complete")
        return json.loads(stream.read(struct.unpack(">I", head)[0]))
