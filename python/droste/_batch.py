"""`droste.batch`: many tasks, each a run, as `droste batch` has it. docs/batch.md has the details.

    done = droste.batch([{"question": "1 + 1?", "expected": "2"}], "results.jsonl",
                        model="openai/gpt-5-mini", grader="exact", concurrency=32)
    print(done.passed, "of", done.graded, [result.answer for result in done.results])

The results are lines of a file, so that the same call continues a batch that was stopped or killed.
"""
from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import json
import os
import tempfile
from typing import (Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional,
                    Sequence, TYPE_CHECKING, Union)

from . import _library, _remote
from ._handle import Handle
from ._library import lib, quick
from .errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from typing_extensions import Unpack    # of the type checker: no dependency
    from ._keywords import BatchSettings

__all__ = ["Batch", "Grade", "TaskResult", "abatch", "batch"]

Path = Union[str, "os.PathLike[str]"]
Tasks = Union[Path, Iterable[Mapping[str, Any]]]


class Grade(NamedTuple):
    """What a grader said about an answer."""
    grader: str
    #: None if the grader failed
    passed: Optional[bool]
    score: Optional[float]
    #: why the grader failed, or None
    error: Optional[str]


class TaskResult(NamedTuple):
    """The result of a task."""
    #: of the task
    id: Union[str, int]
    #: the run's id, or None without a record
    run: Optional[str]
    #: "answered", "exhausted", "budget", "timeout", "cancelled" or "error"
    status: str
    answer: Any
    #: why there is no answer, or only a partial one: `type` and `message`; or None
    error: Optional[Dict[str, str]]
    grade: Optional[Grade]
    #: calls, tokens and cost
    usage: Dict[str, Any]
    seconds: float


class Batch(NamedTuple):
    """The end of a batch, or its state so far."""
    #: number of tasks in the file
    tasks: int
    #: tasks whose results are from earlier calls
    earlier: int
    running: int
    answered: int
    exhausted: int
    budget: int
    timeout: int
    cancelled: int
    error: int
    #: interrupted runs that were continued
    resumed: int
    #: runs that are suspended; the same call continues them
    interrupted: int
    graded: int
    passed: int
    #: answers whose grader failed
    ungraded: int
    #: the mean of the grades, or None
    score: Optional[float]
    calls: int
    input_tokens: int
    output_tokens: int
    #: US dollars; None if unknown
    cost: Optional[float]
    seconds: float
    #: why no further task begins: "interrupt", "budget", "timeout", "error", or None
    stopped: Optional[str]
    #: the same in words, or None
    why: Optional[str]
    #: the newest result of each task, in the order of completion; empty while the batch runs
    results: List[TaskResult]

    @property
    def left(self) -> int:
        """Tasks without a result."""
        return self.tasks - sum(self[3:9])


def _state_of(state: Any, results: List[TaskResult]) -> Batch:
    fields: Dict[str, Any] = {name: getattr(state, name) for name, *_ in state._fields_}
    stopped = state.stopped.decode() if state.stopped else None
    fields.update(score=state.score / state.graded if state.graded else None,
                  cost=state.cost if state.cost >= 0 else None, stopped=stopped,
                  why=state.why.decode("utf-8", "replace") if stopped else None, results=results)
    return Batch(**fields)


def result_of(line: str) -> TaskResult:
    """Converts a line of the results."""
    found = json.loads(line)
    grade = found["grade"]
    return TaskResult(found["id"], found["run"], found["status"], found["answer"], found["error"],
                      grade and Grade(grade["grader"], grade["passed"], grade.get("score"),
                                      grade.get("error")),
                      found["usage"], found["seconds"])


def read_results(path: str) -> List[TaskResult]:
    """Returns the newest result of each task."""
    found: Dict[Any, TaskResult] = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip():
                result = result_of(line)
                found.pop(str(result.id), None)     # the newest line of a task counts
                found[str(result.id)] = result
    return list(found.values())


@contextlib.contextmanager
def file_of(tasks: Tasks) -> Iterator[str]:
    """Yields the path of the tasks; of a list, that of a temporary file."""
    if isinstance(tasks, (str, os.PathLike)):
        yield os.fspath(tasks)
        return
    if isinstance(tasks, (bytes, Mapping)):
        raise ArgumentError("tasks is the path of a file, or a list of dicts with a `question`")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        for task in tasks:
            file.write(json.dumps(_absolute(task)) + "\n")
        file.flush()
        yield file.name


def _absolute(task: Mapping[str, Any]) -> Dict[str, Any]:
    """Paths of contexts are relative to the current directory, not to the temporary file."""
    if not isinstance(task, Mapping):
        raise ArgumentError("a task is a dict with a `question`, not %r" % type(task).__name__)
    made = dict(task)
    if isinstance(made.get("context"), (str, os.PathLike)):
        made["context"] = os.path.abspath(made["context"])
    if isinstance(made.get("contexts"), Mapping):
        made["contexts"] = {name: os.path.abspath(path) if isinstance(path, (str, os.PathLike))
                            else path for name, path in made["contexts"].items()}
    return made


def _contexts_of(context: Any) -> List[str]:
    if context is None:
        return []
    if isinstance(context, Mapping):
        return ["%s=%s" % (name, os.fspath(path)) for name, path in context.items()]
    if isinstance(context, (str, os.PathLike)):
        return [os.fspath(context)]
    return [os.fspath(path) for path in context]


class _Work:
    """One call of droste_batch."""

    def __init__(self, tasks: Tasks, results: Path, options: Dict[str, Any],
                 on_result: Optional[Callable[[TaskResult], Any]],
                 on_state: Optional[Callable[[Batch], Any]],
                 on_notice: Optional[Callable[[str], Any]], context: Any,
                 settings: Dict[str, Any]):
        self._tasks, self._results = tasks, os.fspath(results)
        self._options, self._settings = options, settings
        self._tell = {"result": on_result and (lambda event: on_result(result_of(_text_of(event)))),
                      "notice": on_notice and (lambda event: on_notice(_text_of(event)))}
        self._on_state = on_state
        self._contexts = _contexts_of(context)
        self._handle: Optional[Handle] = None
        self._stopped = False

    def _take(self, arg: Any, pointer: Any) -> None:
        assert self._handle is not None
        try:
            event = pointer.contents
            if self._stopped:
                quick.droste_interrupt(self._handle.d)
            tell = self._tell.get(event.kind.decode())
            if tell:
                tell(event)
            if self._on_state:
                self._on_state(_state_of(event.state.contents, []))
        except BaseException as e:      # also Ctrl-C: suspend the runs, then raise it
            self._handle.pending.append(e)
            quick.droste_interrupt(self._handle.d)

    def stop(self) -> None:
        """Suspends the runs, from any thread."""
        self._stopped = True

    def run(self) -> Batch:
        state = _library.BatchState()
        with file_of(self._tasks) as path, Handle(self._settings) as handle:
            self._handle = handle
            for context in self._contexts:
                handle.check(quick.droste_context_add(handle.d, os.fsencode(context), handle.err))
            options = _library.BatchOptions(tasks=os.fsencode(path),
                                            results=os.fsencode(self._results), **self._options)
            try:
                handle.check(lib.droste_batch(handle.d, ctypes.byref(options),
                                              _library.BatchFn(self._take), None,
                                              ctypes.byref(state), handle.err))
                return _state_of(state, read_results(self._results))
            finally:
                self._handle = None


def _check_models(settings: Dict[str, Any]) -> None:
    for name in ("model", "sub_model"):
        if callable(settings.get(name)):
            raise UnsupportedError(
                "%s of a batch is the name of a model; give functions to RLM" % name)


def _options_of(concurrency: int, grader: Optional[str], grader_timeout: Optional[float],
                again: bool, batch_max_calls: Optional[int], batch_max_tokens: Optional[int],
                batch_max_cost: Optional[float], batch_timeout: Optional[float]) -> Dict[str, Any]:
    limits = {"grader_timeout": grader_timeout, "max_calls": batch_max_calls,
              "max_tokens": batch_max_tokens, "max_cost": batch_max_cost, "timeout": batch_timeout}
    for name, value in limits.items():
        if value is not None and not value > 0:
            raise ArgumentError("%s must be more than 0, or None for no limit"
                                % (name if name == "grader_timeout" else "batch_" + name))
    if not 1 <= concurrency <= 100000:
        raise ArgumentError("concurrency is a number of tasks, 1 to 100000")
    return dict({name: value for name, value in limits.items() if value is not None},
                concurrency=concurrency, grader=grader.encode() if grader else None,
                again=bool(again))


def _prepare(tasks: Tasks, results: Path, *, concurrency: int = 8, grader: Optional[str] = None,
             grader_timeout: Optional[float] = None, again: bool = False,
             context: Union[None, Path, Sequence[Path], Mapping[str, Path]] = None,
             batch_max_calls: Optional[int] = None, batch_max_tokens: Optional[int] = None,
             batch_max_cost: Optional[float] = None, batch_timeout: Optional[float] = None,
             on_result: Optional[Callable[[TaskResult], Any]] = None,
             on_state: Optional[Callable[[Batch], Any]] = None,
             on_notice: Optional[Callable[[str], Any]] = None, server: Optional[str] = None,
             api_key: Optional[str] = None, **settings: Any) -> Any:
    options = _options_of(concurrency, grader, grader_timeout, again, batch_max_calls,
                          batch_max_tokens, batch_max_cost, batch_timeout)
    _check_models(settings)
    address = _remote.address_of(server)
    if address is not None:
        return _remote.batch_of_servers()(address, api_key, tasks, results, options, on_result,
                                          on_state, context, settings)
    if api_key is not None:
        settings["api_key"] = api_key
    return _Work(tasks, results, options, on_result, on_state, on_notice, context, settings)


def _text_of(event: Any) -> str:
    return _library.text_at(event.text, event.len)


def batch(tasks: Tasks, results: Path, **options: "Unpack[BatchSettings]") -> Batch:
    """Runs each task, appends its result to the file `results`, and returns the end of the batch.

    `tasks` is the path of a file of tasks, or a list of dicts with their members (docs/batch.md).
    The same call does the remaining work: it skips tasks with a result, continues interrupted
    runs, and repeats no answered call. Keywords are those of `droste batch`, and the settings:

    - `concurrency`: tasks at once
    - `grader` ("exact", "contains", "numeric", "numeric:1%", "program:PATH"), `grader_timeout`
    - `again`: run tasks again whose result has no answer
    - `context`: a path, several, or a dict of named ones, for every task after its own
    - `batch_max_calls`, `batch_max_tokens`, `batch_max_cost`, `batch_timeout`: limits of all tasks
      together; when one is reached, runs are suspended and `stopped` says why
    - `on_result`, `on_state`, `on_notice`: functions that get each TaskResult, the state so far,
      and notices, in the thread of the batch. Their exceptions, and Ctrl-C, suspend the runs and
      are raised.
    - `server`, or DROSTE_SERVER: the address of `droste serve`, which does the work, and goes on
      if this program is killed; `api_key` or DROSTE_API_KEY is the key for it, and `server=""` is
      this machine. Paths of contexts are those of this machine. There are no notices, no `context`
      of all tasks and no `grader_timeout`, which raise UnsupportedError.

    Raises what `droste batch` refuses: ArgumentError for invalid tasks before anything is paid,
    or a results file that another batch is writing.
    """
    return _prepare(tasks, results, **options).run()   # type: ignore[misc]


async def abatch(tasks: Tasks, results: Path, **options: "Unpack[BatchSettings]") -> Batch:
    """Does the same in a thread, without blocking the event loop.

    The functions are called in the loop's thread. Cancelling the coroutine suspends the runs, and
    ends when that is done.
    """
    loop = asyncio.get_running_loop()
    for name in ("on_result", "on_state", "on_notice"):
        if options.get(name):           # type: ignore[misc]
            options[name] = functools.partial(      # type: ignore[literal-required]
                loop.call_soon_threadsafe, options[name])   # type: ignore[literal-required]
    work = _prepare(tasks, results, **options)      # type: ignore[misc]
    future = loop.run_in_executor(None, work.run)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        work.stop()
        await asyncio.wait([future])
        future.exception()
        raise
