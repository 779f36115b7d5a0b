"""`RLM`: answers a question about a context with a model that writes code in a sandbox.

Each call is a run: `run` blocks, `arun` is a coroutine, `stream` and `astream` yield events.
`completion` has the name and shape of alexzhang13/rlm's method.
"""
from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import ctypes
import dataclasses
import json
import os
import warnings
from typing import (Any, AsyncIterator, Callable, Deque, Dict, Iterator, List, Mapping, Optional,
                    Sequence, Tuple, Union, TYPE_CHECKING)

from . import (_approvals, _closing, _engine, _library, _models, _network, _remote, _select,
               _settings,
               _tools, _typed, environments, progress as _progress)
from ._library import lib, quick
from ._values import c_text, memory_of
from .compat import arguments, rlm_errors, routing
from .compat.rlm_types import ModelUsageSummary, RLMChatCompletion, UsageSummary
from .compat.trajectory import Observer
from .errors import ArgumentError, Error, RunFailed, UnsupportedError, check, named, of
from .result import _short, table
from .rich import image_html, RichResult, read_bundle, read_bundles

if TYPE_CHECKING:
    from typing_extensions import Unpack    # of the type checker: no dependency
    from ._keywords import RLMSettings

Model = Union[None, str, Callable[..., Any]]
QUESTION_MOST = 2000        # longest prompt in characters that is also the question


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A file of the sandbox that a run has saved, as its setting `artifacts` says."""
    #: in the sandbox
    name: str
    #: bytes
    size: int
    sha256: str
    #: on this machine
    path: str

    def read_bytes(self) -> bytes:
        """Returns the contents of the saved file."""
        with open(self.path, "rb") as file:
            return file.read()


@dataclasses.dataclass(frozen=True)
class Event:
    """An event of a run.

    `kind` is "started", "context", "turn", "delta", "reply", "cell", "output", "display", "result",
    "calls", "notice", "retry" or, for the last one with the `completion`, "end". `seconds` is the
    time of a cell or call, `stream` is 1 or 2, and `pending` counts calls in flight. `results` are
    the rich results of a cell that has ended ("result"), or the one that it shows ("display"; none
    after clear_output()). `cost` is in dollars, and negative if a price is not known. A "retry" has
    the reason as its text; after `seconds` comes attempt number `attempt` of at most `attempts`.
    """
    kind: str
    text: str = ""
    turn: int = 0
    turns: int = 0
    stream: int = 0
    status: Optional[str] = None
    seconds: float = 0.0
    pending: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    completion: Optional["Completion"] = None
    results: List[RichResult] = dataclasses.field(default_factory=list)
    run: int = 0        # this and the next three are for observers: the run and call
    depth: int = 0
    call: int = 0
    model: Optional[str] = None
    cost: float = 0.0
    attempt: int = 0
    attempts: int = 0


class Completion:
    """The outcome of a run: `answer` is the answer, `response` its JSON form as text.

    The values of `answer` have the types that they had in the sandbox (docs/values.md). `json` and
    `response` have their JSON form, as the record does; so does the answer of a run that ended in
    another process.
    """

    def __init__(self, result: Dict[str, Any], prompt: Any, root_model: str, steps: List[Event],
                 metadata: Optional[Dict[str, Any]] = None,
                 names: Optional[Mapping[str, str]] = None):
        self.json = result
        self.prompt = prompt
        self.root_model = root_model
        self.steps = steps
        self._typed: Optional[bytearray] = None     # fields of the answer that JSON does not keep
        #: "answered", "exhausted", "budget", "timeout", "cancelled", "error" or "interrupted"
        self.status: str = result["status"]
        #: the name of the run in the record, or None
        self.run: Optional[str] = result["run"]
        self.iterations: int = result["iterations"]
        self.usage: Dict[str, Any] = result["usage"]
        #: the trajectory, if the RLM has a logger
        self.metadata = metadata
        self._names = names or {}
        self._kept: Dict[str, Any] = {}

    @property
    def ok(self) -> bool:
        return self.status == "answered"

    @property
    def answer(self) -> Any:
        """The answer, or None. Raises `MissingLibrary` for a value of a library that is missing."""
        if "answer" not in self._kept:
            answer = self.json["answer"]
            self._kept["answer"] = answer if self._typed is None else _typed.type_answer(
                answer, self._typed)
        return self._kept["answer"]

    @property
    def response(self) -> str:
        answer = self.json["answer"]
        if answer is None:
            return ""
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)

    @property
    def error(self) -> Optional[Error]:
        """The reason why there is no complete answer, or None."""
        found = self.json.get("error")
        return named(found["type"], found["message"]) if found else None

    @property
    def artifacts(self) -> List[Artifact]:
        """The files that were saved; `artifacts_error` says why others were not."""
        return [Artifact(**found) for found in self.json.get("artifacts", ())]

    @property
    def artifacts_error(self) -> Optional[str]:
        """The first reason why a file was not saved, or None."""
        return self.json.get("artifacts_error")

    @property
    def cost(self) -> Optional[float]:
        """The cost in US dollars; None if the price of a call is unknown."""
        return self.usage["cost"]

    @property
    def execution_time(self) -> float:
        return self.usage["seconds"]

    @property
    def usage_summary(self) -> UsageSummary:
        """Usage by model, in the shape of rlm's UsageSummary."""
        found = UsageSummary()
        for name, u in self.usage["models"].items():    # a model may have several names
            found.add(self._names.get(name, name), ModelUsageSummary(
                u["calls"], u["input_tokens"], u["output_tokens"], u["cost"]))
        return found

    def to_dict(self) -> Dict[str, Any]:
        """Returns the dict of rlm's RLMChatCompletion.to_dict()."""
        return RLMChatCompletion(self.root_model, self.prompt, self.response, self.usage_summary,
                                 self.execution_time, self.metadata,
                                 None if self.ok else str(self.error or self.status)).to_dict()

    def raise_for_status(self) -> "Completion":
        """Returns self; raises RunFailed if the run gave no answer."""
        if not self.ok:
            raise RunFailed(str(self.error or self.status), self)
        return self

    def __str__(self) -> str:
        return self.response

    def __repr__(self) -> str:
        return "<Completion: %s, %s, %s, %s>" % (
            self.status, _short(repr(self.json["answer"]), 80),
            _progress.count_of(self.iterations, "turn"),
            _progress.count_of(self.usage["calls"], "call"))

    def _repr_html_(self) -> str:
        rows: List[Tuple[str, str]] = [("answer", _short(self.response, 4000)),
                                       ("status", "%s%s" % (
            self.status, ": %s" % self.error if self.error else ""))]
        rows.append(("usage", "%s, %s, %d + %d tokens, %.2f s%s" % (
            _progress.count_of(self.iterations, "turn"),
            _progress.count_of(self.usage["calls"], "call"), self.usage["input_tokens"],
            self.usage["output_tokens"], self.usage["seconds"],
            ", $%.4f" % self.cost if self.cost else "")))
        rows += [("turn %d, %s" % (step.turn, step.kind), _short(step.text, 2000))
                 for step in self.steps]
        shown = (image_html(result) for step in self.steps for result in step.results)
        return (table(rows, "Droste, run %s" % (self.run or "without a record"))
                + "".join("<div>%s</div>" % image for image in shown if image))


def _named(function: Any) -> str:
    return arguments.shown(function)


#: kinds of events for observers only
OBSERVED = ("request", "call", "called", "child", "child_end")


class _Run:
    """A run in progress."""

    def __init__(self, rlm: "RLM", question: Optional[str], context: Any, resume: Optional[str],
                 listen: Optional[Callable[[Event], None]]):
        self.rlm, self.question, self.context = rlm, question, context
        self.listen = listen
        self.resume = resume
        self.steps: List[Event] = []
        self.completion: Optional[Completion] = None
        self.handle: Optional[int] = None       # struct droste_running until the run has ended
        self.bound: List[_tools.Bound] = []
        self.numbers: List[int] = []
        self.selector: Optional[int] = None
        self.asked: Optional[_approvals.Listener] = None
        self.network: Optional[_network.Listener] = None
        self.name = ""          # in the record, once it has begun
        self.on_end: Optional[Callable[[], None]] = None
        self.failure: Optional[BaseException] = None     # exception of a listener
        self.engine: Any = None
        self.place = rlm._place()
        #: names of models for the program, by their names in the library
        self.names = dict(rlm._wishes.names)
        self.observer = Observer(
            rlm._wishes, self.names,
            rlm._earlier if rlm._wishes.persistent else []) if rlm._wishes.are_there() else None
        self.id = next(_engine.ids)

    def key(self) -> Tuple[Any, ...]:
        """Returns the engine key; unique if the environment is written in Python."""
        key = _settings.key(self.rlm._pairs)
        return key if self.place is None else (*key, self.id)

    def begin(self, engine: "_engine.Engine") -> None:
        """Starts the run; called in the engine's thread, with its lock."""
        rlm, error, err = self.rlm, engine.error, engine.err
        _closing.finish_before(rlm._pairs)
        self.engine = engine
        pairs, context = list(rlm._pairs), contextvars.copy_context()
        for name, function in rlm._functions.items():
            self.numbers.append(_models.models.add(engine, function))
            _models.models.contexts[self.numbers[-1]] = context
            pairs.append((name, "callback:%d" % self.numbers[-1]))
            self.names[pairs[-1][1]] = _named(function)
        engine.alive()
        try:
            if rlm._select is not None:
                self.selector = _select.install(engine, rlm._select, context)
                pairs.append(("select", "callback:%d" % self.selector))
            if rlm._approvals is not None:
                self.asked = _approvals.Listener(engine, rlm._approvals, context)
                _approvals.install(engine)
            if rlm._on_network is not None:
                self.network = _network.Listener(engine, rlm._on_network, context)
                if rlm._wishes.persistent:      # its session may be one of an earlier run
                    rlm._networks.append(self.network)
            if self.place is not None:
                self.place.add_to(engine)
            for tool in rlm._tools.values():
                bound = _tools.Bound(tool, engine, rlm._tool_threads, self.id, True)
                bound.context = context
                self.bound.append(bound)
                check(quick.droste_tool_add(engine.handle, *bound.texts(), _tools.on_tool,
                                            bound.id, err), error)
            for name, (text, values) in rlm._tool_data.items():
                check(quick.droste_tool_data_values(engine.handle, name.encode(), text, len(text),
                                                    values, len(values or b""), err), error)
            for name, code in rlm._tool_source.items():
                check(quick.droste_tool_source(engine.handle, name.encode(), code, len(code), err),
                      error)
            with self.network or contextlib.nullcontext():
                self._start(engine, pairs)
        except BaseException:
            self.release()
            raise
        finally:
            # the tools belong to this run; other runs may start on the engine
            quick.droste_tools_clear(engine.handle)

    def _start(self, engine: "_engine.Engine", pairs: List[Tuple[str, str]]) -> None:
        request = _library.Request()
        if self.question is not None:
            request.question = c_text(self.question.encode("utf-8", "replace"), "a question")
        if isinstance(self.context, os.PathLike):
            request.context = c_text(self.context, "a path")
        elif self.context is not None:
            request.kind, data = _typed.encode_context(self.context)
            request.data, request.len = memory_of(data)
        if self.resume is not None:
            request.resume = c_text(self.resume, "a run's name")
        if self.resume is None:     # a resumed run keeps its interpreter
            pairs = engine.settings(pairs)
        request.settings = ctypes.cast(_settings.words(pairs), ctypes.POINTER(ctypes.c_char_p))
        request.event, request.done, request.arg = _on_event, _on_done, self.id
        request.all_events = self.observer is not None
        request.values = True
        request.chat = self.rlm._conversation(engine) if self.rlm._wishes.persistent else None
        running = ctypes.c_void_p()
        _runs[self.id] = self
        database = dict(pairs).get("database")
        if database is not None:        # part of the engine's key
            check(quick.droste_set(engine.handle, b"database", c_text(database, "a path"),
                                   engine.err), engine.error)
        check(lib.droste_start(engine.handle, ctypes.byref(request), ctypes.byref(running),
                               engine.err), engine.error)
        self.handle = running.value

    def release(self) -> None:
        _runs.pop(self.id, None)
        if self.place is not None:
            self.place.release()
        for bound in self.bound:
            bound.release()
        while self.numbers:
            _models.models.remove(self.numbers.pop())
        if self.selector is not None:
            _select.remove(self.selector)
        _approvals.listeners.pop(self.name, None)

    def cancel(self) -> None:
        if self.handle is not None:
            lib.droste_cancel(self.handle)

    def tell(self, event: Event) -> None:
        if self.observer is not None:
            self.observer.take(event)
            if event.run or event.kind in OBSERVED:
                return
            if event.kind == "result":      # the text is for the observer only
                event = dataclasses.replace(event, text="")
        if event.kind in ("reply", "cell", "result", "output", "notice"):
            self.steps.append(dataclasses.replace(event, text=_short(event.text, 20000)))
        if self.listen is not None:
            self.listen(event)

    def tell_safely(self, event: Event) -> None:
        """Calls the listeners. If one raises, cancels the run and keeps the exception."""
        try:
            self.tell(event)
        except BaseException as e:
            self.failure = self.failure or e
            self.listen = None
            if self.engine is not None:
                self.engine.post(self.cancel)   # not within a callback of the run

    def ended(self, result: int) -> None:
        self.handle = None
        length = ctypes.c_size_t()
        address = quick.droste_result_json(result, ctypes.byref(length))
        outcome = json.loads(_library.text_at(address, length.value))
        if outcome["status"] == "error" and not quick.droste_result_began(result):
            error = _library.Error()
            quick.droste_result_error(result, ctypes.byref(error))
            self.failure = self.failure or of(error)
        values = _typed.read_values(quick.droste_result_values, result, None)
        typed = None if values is None else bytearray(values)   # the result is freed
        quick.droste_result_free(result)
        wishes, metadata = self.rlm._wishes, None
        if self.observer is not None:
            answer = outcome["answer"]
            metadata = self.observer.ended(
                answer if answer is None or isinstance(answer, str) else json.dumps(answer))
        root_model = wishes.models[0] or self.rlm.model_name
        self.completion = Completion(outcome, self.context, root_model, self.steps, metadata,
                                     self.names)
        self.completion._typed = typed
        self.release()
        if self.listen is not None and self.failure is None:
            used = outcome["usage"]
            self.tell_safely(Event("end", calls=used["calls"], input_tokens=used["input_tokens"],
                                   output_tokens=used["output_tokens"],
                                   completion=self.completion))
        if self.on_end is not None:
            self.on_end()


_runs: Dict[int, _Run] = {}


def _results_of(e: Any) -> List[RichResult]:
    if not e.results:
        return []
    if e.kind == b"display" and quick.droste_bundles_count(e.results):
        return [read_bundle(e.results, e.result)]
    return read_bundles(e.results)


@_library.EventFn
def _on_event(arg: int, event: Any) -> None:
    run = _runs.get(arg)
    if run is None:
        return
    e = event.contents
    if e.kind == b"started" and run.asked is not None and not e.run:
        run.name = _library.text_at(e.text, e.len)
        _approvals.listeners[run.name] = run.asked
    run.tell_safely(Event(
        e.kind.decode(), _library.text_at(e.text, e.len), e.turn, e.turns, e.stream,
        e.status.decode() if e.status else None, e.seconds, e.pending, e.calls, e.input_tokens,
        e.output_tokens, None, _results_of(e), e.run, e.depth, e.call,
        e.model.decode("utf-8", "replace") if e.model else None, e.cost, e.attempt, e.attempts))


@_library.DoneFn
def _on_done(arg: int, result: int) -> None:
    run = _runs.get(arg)
    if run is None:
        quick.droste_result_free(result)
    else:
        run.ended(result)


class RLM:
    """A Recursive Language Model: a model, its tools and its limits.

        rlm = RLM(model="openai/gpt-5-mini")
        print(rlm.run("Which module defines the most classes?",
                      pathlib.Path("/usr/lib/python3.11")).answer)

    `model` and `sub_model` are names (docs/configuration.md) or functions of messages, sync or
    async. `tools` are functions of this program, `tool_data` are values that the code sees as
    variables, and `tool_source` is Python source by name, whose documented functions the code can
    call. Every setting is a keyword, with `_` for `-`. `progress` shows the progress: True, False,
    or None for only on terminals and in notebooks. With `candidates`, `select` says which is kept:
    "first", "vote", "model", or a function of a list of `Candidate` that returns one of them or its
    number, sync or async. `ask` names tools whose calls wait for an approval, which `approvals`
    gives, a function of an `Approval` that returns True, False, or None to leave it to others, sync
    or async; `droste.runs.approvals` lists those that wait (docs/approvals.md).
    `on_network` decides about requests to the network, as that of `Interpreter` does.

    Arguments of alexzhang13/rlm work, too: `backend` and `backend_kwargs` (the model),
    `environment` and `environment_kwargs` (the sandbox), `max_depth`, `max_iterations`,
    `max_budget`, `max_timeout`, `max_tokens`, `max_errors`, `custom_tools`, `other_backends`,
    `max_concurrent_subcalls`.

    With `server` ("http://HOST:PORT", "https://…", "unix:PATH") or DROSTE_SERVER, the runs are
    those of `droste serve`, with `api_key` or DROSTE_API_KEY; `server=""` is this machine
    (docs/client.md). With `cluster`, the URL of a node or several, they go through the queue of a
    cluster (docs/cluster.md): any node does them, and another one goes on if it dies.
    """
    def __new__(cls, *arguments: Any, **keywords: Any) -> "RLM":
        if keywords.get("cluster"):
            return object.__new__(_remote.rlm_class_of_cluster(cls))
        return object.__new__(_remote.rlm_class_of(cls, keywords.get("server")))

    def __init__(self, model: Model = None, *, sub_model: Model = None, tools: _tools.Tools = None,
                 tool_data: Optional[Mapping[str, Any]] = None,
                 tool_source: Optional[Mapping[str, str]] = None, tool_threads: bool = False,
                 progress: Optional[bool] = False,
                 on_event: Optional[Callable[[Event], None]] = None,
                 select: Union[None, str, Callable[[List[_select.Candidate]], Any]] = None,
                 approvals: Optional[_approvals.Decide] = None,
                 on_network: Optional[_network.Decide] = None,
                 server: Optional[str] = None,
                 cluster: Union[None, str, Sequence[str]] = None,
                 **keywords: "Unpack[RLMSettings]"):
        _remote.check_local(self, server or cluster)
        settings: Dict[str, Any] = dict(keywords)
        self._approvals = _approvals.check(approvals)
        self._on_network = _network.check(on_network)
        self._networks: List[_network.Listener] = []    # of a conversation (persistent=True)
        self._select = select if callable(select) else None
        if select is not None and self._select is None:
            settings["select"] = select
        if hasattr(model, "complete") and hasattr(model, "model_name"):
            settings["tools"] = tools
            model, asked, tools = routing.arguments(model, settings)
            sub_model = sub_model if sub_model is not None else asked
        seeds = arguments.take_rlm(settings)
        model = model if model is not None else seeds.model
        sub_model = sub_model if sub_model is not None else seeds.sub_model
        self.environment = seeds.environment      # name of one written in Python, or None
        self._environment_kwargs = seeds.environment_kwargs
        if self.environment is not None:
            settings["env"] = self.environment
            if seeds.wishes.persistent:
                raise UnsupportedError("RLM(persistent=True) needs a session of Droste, which the "
                                       "environment %r does not have" % self.environment)
        self._functions = {name: f for name, f in (("model", model), ("sub-model", sub_model))
                           if callable(f)}
        texts = {name: m for name, m in (("model", model), ("sub_model", sub_model))
                 if not callable(m)}
        self._pairs = _settings.pairs({**settings, **texts})
        self.model_name = model if isinstance(model, str) else getattr(model, "__name__", None) or (
            type(model).__name__ if model is not None else os.environ.get("DROSTE_MODEL", ""))
        self._tools = _tools.collect({**seeds.tools, **_tools.collect(tools)})
        self._tool_data = {name: _typed.encode_both(value, name)
                           for name, value in {**seeds.data, **(tool_data or {})}.items()}
        self._tool_source = {name: code.encode()
                             for name, code in {**seeds.source, **(tool_source or {})}.items()}
        self._tool_threads = tool_threads
        self._progress = seeds.verbose or progress
        self._wishes = seeds.wishes
        self._wishes.know(model if model is not None else self.model_name, sub_model,
                          arguments.shown)
        self._held: Any = None          # engine of a conversation (persistent=True)
        self._chat: Any = None          # handle of the conversation
        self._earlier: List[Dict[str, Any]] = []       # its messages, for an observer
        if self._wishes.logger is not None:
            self._wishes.logger.log_metadata(self._wishes.metadata)
        self._on_event = on_event

    # -- runs

    def run(self, question: str, context: Any = None) -> Completion:
        """Answers a question about `context`, a value or a path (`pathlib.Path`); blocks.

        A run without an answer also returns a completion; check `status` or call
        `raise_for_status()`. Raises for wrong arguments and if the run could not start.
        """
        return self._run_here(self._new(question, context))

    async def arun(self, question: str, context: Any = None) -> Completion:
        """Coroutine version of `run`; cancelling the task cancels the run."""
        if self._wishes.persistent:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, self.run, question, context)
        return await self._run_there(self._new(question, context))

    def resume(self, run: str) -> Completion:
        """Resumes a recorded run whose process has ended, without repeating paid calls."""
        return self._run_here(self._new(None, None, run))

    def stream(self, question: str, context: Any = None) -> Iterator[Event]:
        """Yields the events of a run; the last one has the completion.

        Leaving the loop early (`break`) cancels the run.
        """
        events: Deque[Event] = collections.deque()
        run = self._new(question, context, listen=events.append)
        engine = self._take_engine(run)
        try:
            with engine.lock:
                run.begin(engine)
            while run.completion is None or events:
                if not events:
                    self._turn(engine, run)
                while events:
                    yield events.popleft()
        finally:
            self._finish(engine, run)

    async def astream(self, question: str, context: Any = None) -> AsyncIterator[Event]:
        """Asynchronous version of `stream`."""
        if self._wishes.persistent:
            raise UnsupportedError("RLM(persistent=True) does not support astream: use arun, or "
                                   "stream in a thread")
        events: "asyncio.Queue[Event]" = asyncio.Queue()
        run = self._new(question, context, listen=events.put_nowait)
        engine = self._begin_there(run)
        try:
            kind = ""
            while kind != "end":
                event = await events.get()
                kind = event.kind
                yield event
        finally:
            self._end_there(engine, run)
            await self._cleaned_up(run)

    def completion(self, prompt: Any, root_prompt: Optional[str] = None) -> Completion:
        """rlm's interface: `prompt` becomes `context`, and `root_prompt` is the question about it.

        A run without an answer raises rlm's exceptions for limits (rlm.utils.exceptions), otherwise
        `Completion.error`.
        """
        return self._answered(self.run(*_question(prompt, root_prompt)))

    async def acompletion(self, prompt: Any, root_prompt: Optional[str] = None) -> Completion:
        """Coroutine version of `completion`."""
        return self._answered(await self.arun(*_question(prompt, root_prompt)))

    def _answered(self, done: Completion) -> Completion:
        if done.status in ("answered", "exhausted"):    # includes the last answer at a limit
            return done
        why = done.error or RunFailed(done.status, done)
        failure = rlm_errors.of(done, why, dict(self._pairs))
        failure.completion = done       # type: ignore
        raise failure from (why if failure is not why else None)

    def close(self) -> None:
        """Ends the session of persistent=True; other runs need no close()."""
        engine, self._held = self._held, None
        chat, self._chat, self._earlier = self._chat, None, []
        if engine is None:
            return
        with engine.lock:
            if chat is not None and engine.handle is not None:
                lib.droste_chat_close(chat)
        _engine.give(engine)

    def __del__(self) -> None:
        if getattr(self, "_held", None) is not None:
            warnings.warn("RLM(persistent=True) was not closed; use `with`", ResourceWarning,
                          source=self)
            self.close()

    def __enter__(self) -> "RLM":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<RLM: %s>" % (self.model_name or "no model")

    # -- implementation

    def _new(self, question: Optional[str], context: Any, resume: Optional[str] = None,
             listen: Optional[Callable[[Event], None]] = None) -> _Run:
        if question is not None and not isinstance(question, str):
            raise ArgumentError("a question must be a str, not %s" % type(question).__name__)
        listeners = [f for f in (listen, self._on_event, _progress.listener(self._progress))
                     if f is not None]

        def tell(event: Event) -> None:
            for each in listeners:
                each(event)

        return _Run(self, question, context, resume, tell if listeners else None)

    def _take_engine(self, run: _Run) -> "_engine.Engine":
        """Takes an engine; a conversation keeps its own, where its session lives."""
        if self._held is not None:
            return self._held
        engine = _engine.take(run.key())
        if self._wishes.persistent:
            self._held = engine
        return engine

    def _conversation(self, engine: "_engine.Engine") -> int:
        """Returns the handle of the conversation, opening it if necessary."""
        if self._chat is None:
            chat = ctypes.c_void_p()
            check(lib.droste_chat_open(engine.handle, ctypes.byref(chat), engine.err), engine.error)
            self._chat = chat.value
        return self._chat

    @staticmethod
    def _turn(engine: "_engine.Engine", run: _Run) -> None:
        with engine.lock:
            check(lib.droste_turn(engine.alive(), engine.slice_ms(), engine.err), engine.error)
            engine.drain()
        engine.raise_failure()
        if run.failure is not None:
            raise run.failure

    def _finish(self, engine: "_engine.Engine", run: _Run) -> None:
        """Cancels the run if necessary, waits for its end, and returns the engine."""
        if engine.handle is None:
            return
        run.cancel()
        while run.handle is not None:
            with engine.lock:
                lib.droste_turn(engine.handle, _engine.SLICE_MS, engine.err)
                engine.drain()
        run.release()
        if engine is not self._held:
            _engine.give(engine)
        if run.place is not None:
            run.place.wait()

    def _run_here(self, run: _Run) -> Completion:
        engine = self._take_engine(run)
        try:
            with engine.lock:
                run.begin(engine)
            while run.completion is None:
                self._turn(engine, run)
            return run.completion
        finally:
            self._finish(engine, run)

    def _place(self) -> Any:
        """Returns the Place of an environment that is written in Python, or None."""
        if self.environment is None:
            return None
        return environments.Place(self.environment, self._environment_kwargs)

    @staticmethod
    async def _cleaned_up(run: _Run) -> None:
        if run.place is not None:
            await asyncio.get_running_loop().run_in_executor(None, run.place.wait)

    def _begin_there(self, run: _Run) -> "_engine.Engine":
        loop = asyncio.get_running_loop()
        engine = _engine.take_for_loop(loop, run.key())
        try:
            with engine.lock:
                run.begin(engine)
        except BaseException:
            _engine.give_from_loop(engine)
            raise
        engine.kick()
        return engine

    @staticmethod
    def _end_there(engine: "_engine.Engine", run: _Run) -> None:
        """Cancels the run if necessary; returns the engine when the run has ended."""
        if run.completion is not None or run.handle is None:
            _engine.give_from_loop(engine)
            return
        # type: ignore
        run.on_end = lambda: engine.loop and engine.loop.call_soon(
            _engine.give_from_loop, engine)
        run.cancel()
        engine.kick()

    async def _run_there(self, run: _Run) -> Completion:
        ended = asyncio.get_running_loop().create_future()
        run.on_end = lambda: ended.done() or ended.set_result(None)  # type: ignore
        engine = self._begin_there(run)
        try:
            await ended
        finally:
            self._end_there(engine, run)
            await self._cleaned_up(run)
        if run.failure is not None:
            raise run.failure
        assert run.completion is not None
        return run.completion


def _question(prompt: Any, root_prompt: Optional[str]) -> Tuple[str, Any]:
    if root_prompt is not None:
        return root_prompt, prompt
    if isinstance(prompt, str) and len(prompt) <= QUESTION_MOST:
        return prompt, prompt
    return "Do what the prompt in `context` asks for, and answer it.", prompt
