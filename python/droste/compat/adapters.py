"""Droste's sandboxes as environments of agentic-codebase-navigator's: objects with `load_context`,
`execute_code` and `cleanup`.

    adapter = LocalEnvironmentAdapter(broker=broker, execute_timeout_s=10.0)
    adapter.load_context("text")
    print(adapter.execute_code("print(len(context))").stdout)
    adapter.cleanup()

The parameters and their defaults are those of its page on execution environments, which is also
what `RLMConfig` has. An environment of your own may use one of these, and be registered
(`droste.registry`).
"""
from __future__ import annotations

import os
import uuid
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ..environments import ReplResult
from ..interpreter import Interpreter
from . import environment_kwargs, wire

__all__ = ["LocalEnvironmentAdapter", "DockerEnvironmentAdapter"]


class _Adapter:
    _name = ""

    def __init__(self, broker: Any, broker_address: Optional[Tuple[str, int]],
                 correlation_id: Optional[str], kwargs: Mapping[str, Any]):
        self.correlation_id = correlation_id or uuid.uuid4().hex
        self._broker, self._address = broker, broker_address
        self._calls: List[Dict[str, Any]] = []
        name = os.environ.get("DROSTE_ENVIRONMENT") or self._name
        settings = {word.replace("-", "_"): value
                    for word, value in environment_kwargs.take(self._name, name, kwargs,
                                                               True).items()}
        model: Optional[Callable[
            ..., str]] = self._ask if broker is not None or broker_address is not None else None
        self._interpreter = Interpreter(env=name, model=model, **settings)

    def _ask(self, messages: Any, model: Optional[str] = None) -> str:
        alone = len(messages) == 1 and isinstance(messages[0]["content"], str)
        prompt = messages[0]["content"] if alone else messages
        if self._broker is not None:
            response = self._broker.complete(prompt, model)
        else:
            assert self._address is not None
            response = wire.ask(self._address, self.correlation_id, prompt, model)
        self._calls.append({"prompt": prompt, "response": response, "model": model})
        return response

    def load_context(self, context_payload: Any) -> None:
        """Binds the payload to the variable `context`."""
        self._interpreter.set("context", context_payload)

    def execute_code(self, code: str) -> ReplResult:
        """Runs code. An exception or a timeout is appended to `stderr` as `Type: message`; `locals`
        has short previews of the session's variables."""
        self._calls = []
        result = self._interpreter.execute(code)
        stderr = result.stderr
        if result.error is not None:
            stderr += "\n%s" % result.error
        shown = {v["name"]: v.get("preview", v["type"]) for v in result.variables}
        final = result.fields
        return ReplResult(stdout=result.stdout, stderr=stderr, locals=shown,
                          execution_time=result.seconds,
                          correlation_id=self.correlation_id, rlm_calls=self._calls,
                          final_answer=None if final is None
                          else str(next(iter(final.values())) if len(final) == 1 else final))

    def cleanup(self) -> None:
        """Ends the sandbox and all its processes."""
        self._interpreter.shutdown()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        self.cleanup()


class LocalEnvironmentAdapter(_Adapter):
    """A local sandbox, with the rules, limits and names of navigator's local environment."""
    _name = "local"

    def __init__(self, *, broker: Any = None, broker_address: Optional[Tuple[str, int]] = None,
                 correlation_id: Optional[str] = None,
                 execute_timeout_s: float = 30.0, execute_timeout_cap_s: float = 300.0,
                 broker_timeout_s: float = 30.0,
                 allowed_import_roots: Any = None, setup_code: Optional[str] = None):
        super().__init__(broker, broker_address, correlation_id, {
            "execute_timeout_s": execute_timeout_s, "execute_timeout_cap_s": execute_timeout_cap_s,
            "broker_timeout_s": broker_timeout_s,
            "allowed_import_roots": allowed_import_roots, "setup_code": setup_code})


class DockerEnvironmentAdapter(_Adapter):
    """A container, with the limits and names of navigator's Docker environment."""
    _name = "docker"

    def __init__(self, *, broker: Any = None, broker_address: Optional[Tuple[str, int]] = None,
                 correlation_id: Optional[str] = None,
                 image: str = "python:3.12-slim", subprocess_timeout_s: float = 120.0,
                 proxy_http_timeout_s: float = 60.0,
                 setup_code: Optional[str] = None):
        super().__init__(broker, broker_address, correlation_id, {
            "image": image, "subprocess_timeout_s": subprocess_timeout_s,
            "proxy_http_timeout_s": proxy_http_timeout_s,
            "setup_code": setup_code})
