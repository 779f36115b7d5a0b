"""rlm's own protocol (rlm.core.comms_utils, rlm.core.lm_handler): models behind a port of this
machine.

A message is a length of four bytes, the highest first, and so much JSON; a connection has one
request. Programs start an `LMHandler` with a client and give its address to an environment, whose
code then asks that client.
"""
from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import socketserver
import struct
import threading
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .rlm_types import ModelUsageSummary, RLMChatCompletion, UsageSummary

__all__ = ["LMRequest", "LMResponse", "LMHandler", "socket_send", "socket_recv", "send_lm_request",
           "send_lm_request_batched"]

Address = Tuple[str, int]
MESSAGE_MOST = 1 << 30      # bytes: what one message of another process may have us allocate
TIMEOUT = 300.0             # seconds, as rlm's


@dataclasses.dataclass
class LMRequest:
    """A request: one prompt, or several at once."""
    prompt: Any = None
    prompts: Optional[List[Any]] = None
    model: Optional[str] = None
    depth: int = 0

    @property
    def is_batched(self) -> bool:
        return bool(self.prompts)

    def to_dict(self) -> Dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LMRequest":
        return cls(data.get("prompt"), data.get("prompts"), data.get("model"),
                   data.get("depth", -1))


@dataclasses.dataclass
class LMResponse:
    """The answer: a completion, several, or an error."""
    error: Optional[str] = None
    chat_completion: Optional[RLMChatCompletion] = None
    chat_completions: Optional[List[RLMChatCompletion]] = None

    @property
    def success(self) -> bool:
        return self.error is None

    @property
    def is_batched(self) -> bool:
        return self.chat_completions is not None

    def to_dict(self) -> Dict[str, Any]:
        one, many, error = self.chat_completion, self.chat_completions, self.error
        if one is None and many is None and error is None:
            error = "No chat completion or error provided."
        return {"error": error, "chat_completion": one.to_dict()
                if one is not None and error is None else None,
                "chat_completions": [c.to_dict() for c in many]
                if many is not None and error is None else None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LMResponse":
        one, many = data.get("chat_completion"), data.get("chat_completions")
        return cls(data.get("error"), RLMChatCompletion.from_dict(one) if one else None,
                   [RLMChatCompletion.from_dict(c) for c in many] if many else None)

    @classmethod
    def success_response(cls, chat_completion: RLMChatCompletion) -> "LMResponse":
        return cls(chat_completion=chat_completion)

    @classmethod
    def batched_success_response(cls, chat_completions: List[RLMChatCompletion]) -> "LMResponse":
        return cls(chat_completions=chat_completions)

    @classmethod
    def error_response(cls, error: str) -> "LMResponse":
        return cls(error=error)


def socket_send(connection: socket.socket, data: Mapping[str, Any]) -> None:
    """Sends one message."""
    payload = json.dumps(data).encode()
    connection.sendall(struct.pack(">I", len(payload)) + payload)


def _receive(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise ConnectionError("the connection was closed in the middle of a message")
        data += piece
    return bytes(data)


def socket_recv(connection: socket.socket) -> Any:
    """Receives one message; returns {} if the connection ends before it."""
    first = connection.recv(1)
    if not first:
        return {}
    length = struct.unpack(">I", first + _receive(connection, 3))[0]
    if length > MESSAGE_MOST:
        raise ValueError("a message of %d bytes is more than the %d that are taken"
                         % (length, MESSAGE_MOST))
    return json.loads(_receive(connection, length))


def _ask(address: Address, request: LMRequest, timeout: float) -> LMResponse:
    try:
        with socket.create_connection(address, timeout) as connection:
            socket_send(connection, request.to_dict())
            return LMResponse.from_dict(socket_recv(connection))
    except Exception as e:
        return LMResponse.error_response("Request failed: %s" % e)


def send_lm_request(address: Address, request: LMRequest, timeout: float = TIMEOUT,
                    depth: Optional[int] = None) -> LMResponse:
    """Asks a handler; a failure is a response with an error."""
    return _ask(address, request if depth is None else dataclasses.replace(request, depth=depth),
                timeout)


def send_lm_request_batched(address: Address, prompts: List[Any], model: Optional[str] = None,
                            timeout: float = TIMEOUT,
                            depth: int = 0) -> List[LMResponse]:
    """Returns a response for each prompt, in the same order."""
    if not prompts:
        return []
    received = _ask(address, LMRequest(prompts=prompts, model=model, depth=depth), timeout)
    if received.chat_completions is None:
        return [LMResponse.error_response(received.error
                                          or "No completions returned")] * len(prompts)
    return [LMResponse(error=c.error, chat_completion=c) for c in received.chat_completions]


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        handler: LMHandler = self.server.lm_handler     # type: ignore
        try:
            asked = socket_recv(self.request)
            response = handler.answer(LMRequest.from_dict(asked)) if isinstance(
                asked, dict) else LMResponse.error_response(
                "Request must be a JSON object")
        except OSError:         # the other side is gone
            return
        except Exception as e:
            response = LMResponse.error_response(str(e))
        try:
            socket_send(self.request, response.to_dict())
        except OSError:
            pass


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True
    request_queue_size = 128


def _usage(client: Any, model: str) -> UsageSummary:
    """Returns the usage of the last call, which clients report directly or in a summary."""
    last = client.get_last_usage()
    return (last if isinstance(last, UsageSummary)
            else UsageSummary({model: last} if isinstance(last, ModelUsageSummary) else {}))


class LMHandler:
    """Answers requests on a port of this machine by a client: by the one of the model that is
    named, for depth 1 by `other_backend_client`, else by the first. Any local process can ask it
    while it runs."""

    def __init__(self, client: Any, host: str = "127.0.0.1", port: int = 0,
                 other_backend_client: Any = None,
                 batch_max_concurrent: int = 16):
        self.default_client, self.other_backend_client = client, other_backend_client
        self.host, self._port, self.batch_max_concurrent = host, port, batch_max_concurrent
        self.clients: Dict[str, Any] = {}
        self._server: Optional[_Server] = None
        self.register_client(client.model_name, client)

    def register_client(self, model_name: str, client: Any) -> None:
        """Sends requests for this model to this client."""
        self.clients[model_name] = client

    def get_client(self, model: Optional[str] = None, depth: int = 0) -> Any:
        """Returns the client for a model and depth."""
        if model and model in self.clients:
            return self.clients[model]
        return (self.other_backend_client if depth == 1 and self.other_backend_client is not None
                else self.default_client)

    @property
    def port(self) -> int:
        return self._server.server_address[1] if self._server is not None else self._port

    @property
    def address(self) -> Address:
        return self.host, self.port

    def start(self) -> Address:
        """Starts to listen; returns the address."""
        if self._server is None:
            self._server = _Server((self.host, self._port), _Connection)
            self._server.lm_handler = self      # type: ignore
            threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05},
                             daemon=True).start()
        return self.address

    def stop(self) -> None:
        """Stops listening."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def __enter__(self) -> "LMHandler":
        self.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    def completion(self, prompt: Any, model: Optional[str] = None) -> str:
        """Calls the client within this process."""
        return self.get_client(model).completion(prompt)

    def answer(self, request: LMRequest) -> LMResponse:
        """Returns the response to a request."""
        if not request.prompt and not request.is_batched:
            return LMResponse.error_response("Missing 'prompt' or 'prompts' in request.")
        client = self.get_client(request.model, request.depth)
        model, began = request.model or client.model_name, time.perf_counter()
        if not request.is_batched:
            reply = client.completion(request.prompt)
            return LMResponse.success_response(RLMChatCompletion(
                model, request.prompt, reply, _usage(client, model), time.perf_counter() - began))
        prompts = request.prompts or []
        answers = asyncio.run(self._ask_all(client, prompts))
        seconds = (time.perf_counter() - began) / len(prompts)
        return LMResponse.batched_success_response([
            RLMChatCompletion(model, prompt, "", UsageSummary(), 0.0, error="llm() call failed - "
                                                                            "%s" % reply)
            if isinstance(reply, BaseException)
            else RLMChatCompletion(model, prompt, reply, _usage(client, model), seconds)
            for prompt, reply in zip(prompts, answers)])

    async def _ask_all(self, client: Any, prompts: List[Any]) -> List[Any]:
        room = asyncio.Semaphore(self.batch_max_concurrent)

        async def ask(prompt: Any) -> str:
            async with room:
                return await client.acompletion(prompt)

        return await asyncio.gather(*map(ask, prompts), return_exceptions=True)

    def get_usage_summary(self) -> UsageSummary:
        """Returns the usage of all clients; clients of the same model are added up."""
        found = UsageSummary()
        clients = [self.default_client, self.other_backend_client, *self.clients.values()]
        for client in {id(c): c for c in clients if c is not None}.values():
            for name, used in client.get_usage_summary().model_usage_summaries.items():
                found.add(name, used)
        return found
