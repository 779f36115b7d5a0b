"""What rlm's programs get of a run: the turns of its loop and of those below it, for a logger,
and callbacks.

An observer is made for each run, and gets all its events (droste_request.all_events). The turns
of a child run are the `metadata` of the call that began it, as a tree of any depth.
"""
from __future__ import annotations

import dataclasses
import json
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from .rlm_logger import RLMLogger
from .rlm_types import (CodeBlock, ModelUsageSummary, REPLResult, RLMChatCompletion, RLMIteration,
                        RLMMetadata, UsageSummary)

PREVIEW = 80        # characters of a child's prompt that a callback gets


@dataclasses.dataclass
class Wishes:
    """The arguments of RLM for loggers and callbacks."""
    logger: Any = None
    persistent: bool = False
    on_subcall_start: Optional[Callable[..., Any]] = None
    on_subcall_complete: Optional[Callable[..., Any]] = None
    on_iteration_start: Optional[Callable[..., Any]] = None
    on_iteration_complete: Optional[Callable[..., Any]] = None
    metadata: Optional[RLMMetadata] = None
    #: the models' names as the program has them, by those of Droste; of the root, and of what it
    #: asks
    names: Dict[str, str] = dataclasses.field(default_factory=dict)
    models: Tuple[str, str] = ("", "")

    def know(self, root: Any, sub: Any, shown: Callable[[Any], str]) -> None:
        """The models, in the end."""
        self.models = shown(root), shown(root if sub is None else sub)
        self.names = {model: shown(model) for model in (root, sub) if isinstance(model, str)}
        if self.metadata is not None and root is not None:
            self.metadata.root_model = self.models[0]

    def are_there(self) -> bool:
        return any((self.logger, self.on_subcall_start, self.on_subcall_complete,
                    self.on_iteration_start,
                    self.on_iteration_complete))


def _quietly(function: Optional[Callable[..., Any]], *arguments: Any) -> None:
    """Calls a callback; as in rlm, an exception in it does not end the run."""
    if function is not None:
        try:
            function(*arguments)
        except Exception:
            pass


class _Level:
    """The loop of the root or of a child run."""

    def __init__(self, wishes: Wishes, depth: int, logger: Any):
        self.wishes, self.depth, self.logger = wishes, depth, logger
        self.messages: List[Dict[str, Any]] = []
        self.asked: List[Dict[str, Any]] = []
        self.count = 0
        self.began = time.monotonic()
        self.iteration: Optional[RLMIteration] = None
        self.calls: Dict[int, RLMChatCompletion] = {}
        self.starts: Dict[int, float] = {}

    def request(self, messages: List[Dict[str, Any]]) -> None:
        whole = bool(messages) and messages[0]["role"] == "system"
        self.messages = messages if whole else self.messages + messages
        self.asked = list(self.messages)

    def begin(self) -> None:
        self.end()
        self.count += 1
        self.began = time.monotonic()
        _quietly(self.wishes.on_iteration_start, self.depth, self.count)

    def reply(self, text: str) -> None:
        self.iteration = RLMIteration(self.asked, text, [])

    def block(self, code: str) -> None:
        if self.iteration is not None:
            self.iteration.code_blocks.append(CodeBlock(code, REPLResult("", "", {})))

    def result(self, outcome: Dict[str, Any], seconds: float) -> None:
        if self.iteration is None or not self.iteration.code_blocks:
            return
        result = self.iteration.code_blocks[-1].result
        result.execution_time = seconds
        result.stdout, error = outcome["stdout"] or "", outcome["error"] or {}
        result.stderr = (outcome["stderr"] or "") + (error.get("traceback") or ("\n%(type)s: "
                                                                             "%(message)s" % error
                                                                                if error else ""))
        result.locals = {v["name"]: v.get("preview", "<%s>" % v.get("type"))
                         for v in outcome["variables"] or ()}
        if outcome["submit"] is not None:
            result.final_answer = answer_text(outcome["submit"])

    def add(self, number: int, model: str, prompt: str) -> None:
        self.calls[number] = RLMChatCompletion(model, prompt, "", UsageSummary(), 0.0)
        self.starts[number] = time.monotonic()
        if self.iteration is not None and self.iteration.code_blocks:
            self.iteration.code_blocks[-1].result.rlm_calls.append(self.calls[number])

    def end(self, answer: Optional[str] = None) -> None:
        """Ends the current turn."""
        iteration, self.iteration = self.iteration, None
        if iteration is None:
            return
        iteration.iteration_time = time.monotonic() - self.began
        iteration.final_answer = answer
        if self.logger is not None:
            self.logger.log(iteration)
        _quietly(self.wishes.on_iteration_complete, self.depth, self.count,
                 iteration.iteration_time)

    def trajectory(self) -> Optional[Dict[str, Any]]:
        get = getattr(self.logger, "get_trajectory", None)
        return get() if get is not None else None


def answer_text(submitted: Any) -> str:
    """Returns a submission as text: the value of a single field, else all fields as JSON."""
    value = submitted
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in ("answer", "output"):
        value = next(iter(value.values()))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class Observer:
    """Receives the events of one run and its descendants."""

    def __init__(self, wishes: Wishes, names: Dict[str, str], messages: List[Dict[str, Any]]):
        """`messages` are the messages of a conversation so far; this run's are added to it."""
        self.wishes, self._names, self._earlier = wishes, names, messages
        if wishes.logger is not None and hasattr(wishes.logger, "clear_iterations"):
            wishes.logger.clear_iterations()
        self._levels = {0: _Level(wishes, 0, wishes.logger)}
        self._levels[0].messages = list(messages)

    def _model(self, event: Any) -> str:
        name = event.model or self.wishes.models[1]
        return self._names.get(name, name)

    def take(self, event: Any) -> None:
        level = self._levels.get(event.run)
        handle = getattr(self, "_" + event.kind, None)
        if level is not None and handle is not None:
            handle(level, event)

    def _request(self, level: _Level, event: Any) -> None:
        level.request(json.loads(event.text))

    def _turn(self, level: _Level, event: Any) -> None:
        level.begin()

    def _reply(self, level: _Level, event: Any) -> None:
        level.reply(event.text)

    def _cell(self, level: _Level, event: Any) -> None:
        level.block(event.text)

    def _result(self, level: _Level, event: Any) -> None:
        level.result(json.loads(event.text), event.seconds)

    def _call(self, level: _Level, event: Any) -> None:
        level.add(-event.call, self._model(event), event.text)

    def _called(self, level: _Level, event: Any) -> None:
        self._finish(level, -event.call, event, event.text)

    def _child(self, level: _Level, event: Any) -> None:
        model = self._model(event)
        level.add(event.call, model, event.text)
        logger = None
        if self.wishes.logger is not None:
            logger = RLMLogger()
            if self.wishes.metadata is not None:
                logger.log_metadata(dataclasses.replace(self.wishes.metadata, root_model=model))
        self._levels[event.call] = _Level(self.wishes, level.depth + 1, logger)
        _quietly(self.wishes.on_subcall_start, level.depth + 1, model, event.text[:PREVIEW])

    def _child_end(self, level: _Level, event: Any) -> None:
        answered = event.status in ("answered", "exhausted")
        text = answer_text(json.loads(event.text)) if answered else event.text
        child = self._levels.pop(event.call, None)
        if child is not None:
            child.end(text if answered else None)
            level.calls[event.call].metadata = child.trajectory()
        call = self._finish(level, event.call, event, text, answered)
        _quietly(self.wishes.on_subcall_complete, level.depth + 1, self._model(event),
                 call.execution_time,
                 None if answered else event.text)

    def _finish(self, level: _Level, number: int, event: Any, text: str,
                ended_well: Optional[bool] = None) -> RLMChatCompletion:
        call = level.calls.pop(number)
        well = event.status == "ok" if ended_well is None else ended_well
        call.response, call.error = (text, None) if well else ("Error: " + text, text)
        call.execution_time = event.seconds or time.monotonic() - level.starts.pop(number)
        call.usage_summary = UsageSummary({call.root_model: ModelUsageSummary(
            event.calls, event.input_tokens, event.output_tokens)})
        return call

    def ended(self, answer: Optional[str]) -> Optional[Dict[str, Any]]:
        """Ends the run; returns its trajectory if there is a logger."""
        root = self._levels[0]
        last = ([{"role": "assistant", "content": root.iteration.response}]
                if root.iteration is not None else [])
        self._earlier[:] = root.messages + last
        root.end(answer)
        return root.trajectory()
