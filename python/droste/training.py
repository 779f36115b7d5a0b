"""A REPL for harnesses that train RLMs, with the coroutines that `RLMTrainEnv` expects.

Use it as `RLMTrainEnv(backend_factory=…)`. `llm_query` in the sandbox asks the harness's proxy:
`POST {proxy_url}/rollout/{rollout_id}/llm_query` with {"prompt": …}, answered by {"response": …}.
Hundreds of backends can run on one event loop.
"""
from __future__ import annotations

import dataclasses
import json
import urllib.request
from typing import Any, Dict, List, Optional

from .errors import ModelReplyError
from .interpreter import Interpreter

__all__ = ["ExecResult", "ReplBackend"]


@dataclasses.dataclass
class ExecResult:
    """The result of a cell; `execution_time` is in seconds."""
    stdout: str
    stderr: str
    final_answer: Optional[str]
    execution_time: float
    locals_keys: List[str]


class ReplBackend:
    """The REPL of one rollout. `settings` are Droste's; `proxy_timeout` is in seconds."""

    def __init__(self, *, proxy_timeout: float = 300.0, **settings: Any):
        self.proxy_timeout = proxy_timeout
        self.settings = settings
        self._interpreter: Optional[Interpreter] = None
        self._url = ""

    async def start(self, proxy_url: Optional[str] = None, rollout_id: str = "0",
                    depth: int = 1) -> None:
        """Opens the sandbox; without a proxy, `llm_query` asks the configured model."""
        settings: Dict[str, Any] = {"max_llm_calls": 1000000,
                                    "llm_call_timeout": self.proxy_timeout, **self.settings}
        if proxy_url:
            self._url = "%s/rollout/%s/llm_query" % (proxy_url.rstrip("/"), rollout_id)
            settings["model"] = self._ask
        self._interpreter = Interpreter(**settings)
        await self._interpreter.start()

    async def load_context(self, payload: Any, index: int = 0) -> int:
        """Binds `context_N`, and for N = 0 also `context`; returns N."""
        interpreter = self._open()
        await interpreter.set("context_%d" % index, payload)
        if index == 0:
            (await interpreter.execute("context = context_0")).raise_for_status()
        return index

    async def bootstrap(self, code: str) -> None:
        """Runs code such as definitions; raises CellFailed if it fails."""
        (await self._open().execute(code)).raise_for_status()

    async def execute(self, code: str) -> ExecResult:
        """Runs a cell; a traceback is appended to `stderr`."""
        result = await self._open().execute(code)
        stderr, fields, final = result.stderr, result.fields, None
        if result.error:
            stderr += result.error.traceback or str(result.error)
        if fields is not None:
            value = next(iter(fields.values())) if len(fields) == 1 else fields
            final = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return ExecResult(result.stdout, stderr, final, result.seconds,
                          [v["name"] for v in result.variables])

    async def stop(self) -> None:
        """Ends the sandbox."""
        if self._interpreter is not None:
            self._interpreter.shutdown()
            self._interpreter = None

    def _open(self) -> Interpreter:
        if self._interpreter is None:
            raise RuntimeError("the REPL was not started")
        return self._interpreter

    def _ask(self, messages: List[Dict[str, Any]]) -> str:
        """The model function: asks the proxy; called in a thread."""
        prompt = messages[0]["content"] if len(messages) == 1 else messages
        data = json.dumps({"prompt": prompt}).encode()
        request = urllib.request.Request(self._url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=self.proxy_timeout) as answer:
            body = json.loads(answer.read())
        if "response" not in body:
            raise ModelReplyError("the proxy said %s" % str(body)[:200])
        return body["response"]
