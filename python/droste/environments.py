"""Environments that are written in Python: who implements `EnvironmentPort` can be registered by a name,
and `RLM(environment=name)` runs its code there.

    registry.register("custom", CustomEnvironmentAdapter)
    RLM("openai/gpt-5-mini", environment="custom", environment_kwargs={"custom_option": 1}).run(question, context)

Such an environment runs code wherever it likes: Droste's wall, limits and record are not there. The loop
is a short one of this module's; its model calls go the same way as all others, under the same limits.
"""
from __future__ import annotations

import dataclasses
import re
import time
import uuid
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

try:
    from typing import Protocol, runtime_checkable
except ImportError:     # pragma: no cover
    Protocol = object  # type: ignore

from .errors import ArgumentError, Error
from .interpreter import Interpreter

__all__ = ["EnvironmentPort", "ReplResult", "registry", "Registry", "Broker"]


@dataclasses.dataclass
class ReplResult:
    """What a piece of code came to."""
    stdout: str = ""
    stderr: str = ""
    locals: Dict[str, Any] = dataclasses.field(default_factory=dict)
    execution_time: float = 0.0
    correlation_id: Optional[str] = None
    rlm_calls: List[Any] = dataclasses.field(default_factory=list)
    final_answer: Optional[str] = None


@runtime_checkable
class EnvironmentPort(Protocol):
    """What an environment does."""

    def load_context(self, context_payload: Any) -> None:
        """Makes the context known to the code."""

    def execute_code(self, code: str) -> ReplResult:
        """Runs code and returns what it came to."""

    def cleanup(self) -> None:
        """Releases what it has."""


class Registry:
    """Environments by name. A factory is called with `broker`, `broker_address`, `correlation_id`, and what is
    given as environment_kwargs."""

    def __init__(self) -> None:
        self._factories: Dict[str, Callable[..., EnvironmentPort]] = {}

    def register(self, name: str, factory: Callable[..., EnvironmentPort]) -> None:
        if name in ("local", "docker", "modal", "daytona", "prime", "e2b"):
            raise ArgumentError("the environment %r is Droste's own; take another name" % name)
        self._factories[name] = factory

    def unregister(self, name: str) -> None:
        self._factories.pop(name, None)

    def make(self, name: str, **kwargs: Any) -> EnvironmentPort:
        environment = self._factories[name](**kwargs)
        if not isinstance(environment, EnvironmentPort):
            raise ArgumentError("the environment %r has not the methods load_context, execute_code and cleanup" % name)
        return environment

    def __contains__(self, name: object) -> bool:
        return name in self._factories

    def __iter__(self) -> Iterator[str]:
        return iter(self._factories)


registry = Registry()


class Broker:
    """Asks the models, for an environment's `llm_query`."""

    def __init__(self, interpreter: Interpreter):
        self._interpreter = interpreter
        self.calls = 0

    def complete(self, prompt: Any, model: Optional[str] = None) -> str:
        """The answer to a prompt, or to a list of messages."""
        self.calls += 1
        result = self._interpreter.execute("SUBMIT(reply=llm_query(_prompt, model=_model))",
                                           {"_prompt": prompt, "_model": model})
        return result.raise_for_status()["reply"]

    def complete_batched(self, prompts: List[Any], model: Optional[str] = None) -> List[str]:
        self.calls += len(prompts)
        result = self._interpreter.execute("SUBMIT(replies=llm_query_batched(_prompts, model=_model))",
                                           {"_prompts": list(prompts), "_model": model})
        return result.raise_for_status()["replies"]


BLOCK = re.compile(r"^```(?:repl|python|py)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
FINAL = re.compile(r"^FINAL(_VAR)?\((.*)\)\s*$", re.DOTALL | re.MULTILINE)
SHOWN = 20000
PROMPT = """You answer a question by writing Python, which runs in a session whose variables stay. The context is in the
variable `context`. Write code in blocks that begin with ```repl; you are shown what they print. When you know the
answer, say FINAL(the answer) on a line of its own, outside of code, or FINAL_VAR(name) for a variable that has it."""


def _shown(result: ReplResult) -> str:
    parts = [part for part in (result.stdout, result.stderr) if part]
    names = [name for name in result.locals if not name.startswith("_")]
    text = "\n".join(parts) or "No output"
    if len(text) > SHOWN:
        text = "%s\n... %d characters left out ...\n%s" % (text[:SHOWN // 2], len(text) - SHOWN, text[-SHOWN // 2:])
    return "Output:\n%s\nVariables: %s" % (text, ", ".join(names) or "none")


def _final(reply: str, result: Optional[ReplResult]) -> Optional[str]:
    if result is not None and result.final_answer is not None:
        return str(result.final_answer)
    found = FINAL.search(BLOCK.sub("", reply))
    if not found:
        return None
    if not found.group(1):
        return found.group(2).strip()
    name = found.group(2).strip().strip("'\"")
    return str(result.locals[name]) if result is not None and name in result.locals else None


def run(name: str, kwargs: Dict[str, Any], interpreter: Interpreter, question: str, context: Any,
        turns: int) -> Tuple[str, Optional[str], int, int, float]:
    """(status, answer, turns, calls, seconds) of a run in the environment of that name."""
    begun, broker = time.monotonic(), Broker(interpreter)
    environment = registry.make(name, broker=broker, broker_address=("", 0), correlation_id=uuid.uuid4().hex, **kwargs)
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": question}]
    try:
        environment.load_context(context)
        last: Optional[ReplResult] = None
        for turn in range(1, turns + 1):
            reply = broker.complete(messages)
            messages.append({"role": "assistant", "content": reply})
            answer, shown = None, []
            for code in BLOCK.findall(reply):
                last = environment.execute_code(code)
                shown.append(_shown(last))
            answer = _final(reply, last)
            if answer is not None:
                return "answered", answer, turn, broker.calls, time.monotonic() - begun
            messages.append({"role": "user", "content": "\n\n".join(shown) or "There was no block of code, and no answer."})
        return "exhausted", None, turns, broker.calls, time.monotonic() - begun
    finally:
        environment.cleanup()
