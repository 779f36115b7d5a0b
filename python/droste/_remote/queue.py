"""`droste.Queue`: runs of a cluster's queue, over `/v1/queue` of whichever node answers.

A run is put under an id that is made of the batch's name and the item, so a request may be repeated
to any node, and the same call of `map` finds the runs of an earlier one. Each run that is
outstanding has a thread here, which puts it and then waits for its end; results are taken in the
order in which they come.
"""
from __future__ import annotations

import asyncio
import collections
import hashlib
import json
import os
import threading
import time
from typing import (Any, AsyncIterator, Callable, Deque, Dict, Iterable, Iterator, List, Mapping,
                    NamedTuple, Optional, Sequence, Tuple, Union)

from .. import _settings, _typed
from ..errors import ArgumentError, EnvironmentFailed, Error, LostError, UnsupportedError
from ..rlm import Completion, Event, RLM
from . import address_of
from .client import failure_of, Refused, Server, server_at
from .interpreter import _options_of
from .rlm import completion_of, PAUSES, RemoteRLM

WAIT_SECONDS = 20           # of one request for the end of a run
ANSWER_SECONDS = 10.0       # after which a node that says nothing is left for another one
PATIENCE_SECONDS = 300.0    # how long a request is repeated while no node accepts it
OUTSTANDING = 64
MEMBERS = ("question", "context", "options", "id")     # of an item, which its run's id is made of
UNUSED = {"calls": None, "input_tokens": None, "output_tokens": None, "cost": None, "seconds": None}


class QueueResult(NamedTuple):
    """The end of a run of the queue."""
    #: as it was given to `map`
    item: Any
    #: of a run that could not begin: its status is "error", and its error has the reason
    completion: Completion
    #: of the run in the queue
    id: str


class _Nodes:
    """The nodes of a cluster; all threads ask the one that answered last."""

    def __init__(self, servers: Sequence[Server]):
        self._servers, self._at = list(servers), 0

    def ask(self, method: str, path: str, body: Any = None, *, wait: float = 0,
            goes_on: Callable[[], bool] = lambda: True, **more: Any) -> Any:
        """Asks until a node answers, which may wait. Only for what may be repeated."""
        seconds = wait + ANSWER_SECONDS
        deadline, attempt = time.monotonic() + PATIENCE_SECONDS, 0
        while True:
            at = self._at
            try:
                return self._servers[at].ask(method, path, body, timeout=seconds, **more)
            except Refused as e:
                if e.status not in (429, 502, 503):
                    raise failure_of(e) from None
                failure: Error = failure_of(e)
                pause = e.wait if e.wait is not None else 1.0
                is_away = e.status != 429       # 429 is said of the key: the others say the same
            except (EnvironmentFailed, LostError) as e:
                failure, is_away = e, True
                pause = PAUSES[min(attempt // len(self._servers), len(PAUSES) - 1)]
            if is_away and self._at == at:      # else another thread has gone on already
                self._at = (at + 1) % len(self._servers)
            attempt += 1
            if not goes_on() or time.monotonic() + pause > deadline:
                raise failure
            time.sleep(pause)


def cancel(nodes: _Nodes, id: str) -> bool:
    """Cancels a run; False if it has ended, or there is none."""
    try:
        nodes.ask("DELETE", "/v1/queue/" + id)
        return True
    except Error as e:
        if e.code not in ("not_found", "not_active"):
            raise
        return False


def _request_of(item: Any) -> Dict[str, Any]:
    """Returns what of an item goes into its request, and makes its id."""
    if isinstance(item, str):
        return {"question": item}
    if not isinstance(item, Mapping) or not isinstance(item.get("question"), str):
        raise ArgumentError("an item is a question, or a dict with a `question`, not %s"
                            % type(item).__name__)
    found = {name: item[name] for name in MEMBERS if item.get(name) is not None}
    context = found.get("context")
    if isinstance(context, os.PathLike):
        with open(context, encoding="utf-8") as file:
            found["context"] = file.read()
    elif isinstance(context, (bytes, bytearray, memoryview)):
        raise UnsupportedError("the context of a queued run is text or JSON, not bytes")
    elif context is not None and not isinstance(context, str):
        found["context"] = json.loads(_typed.project_typed(context, "context"))
    if "options" in found:
        found["options"] = _options_of(_settings.pairs(dict(found["options"])))
    return found


def _check_version(version: Any) -> None:
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 10 ** 18:
        raise ArgumentError("version is a whole number, 0 or more")


def _id_of(name: str, request: Mapping[str, Any], which: int) -> str:
    """Returns the id of the run of an item; `which` tells items apart that are the same."""
    text = json.dumps([name, request, which], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


class _Work:
    """What the threads of a mapping and its reader share. The threads do not keep the mapping."""

    def __init__(self, nodes: _Nodes, name: str, options: Dict[str, Any], items: Iterator[Any],
                 outstanding: int, priority: int, version: Optional[int], model: str):
        self._nodes, self._name, self._options = nodes, name, options
        self._items, self._most, self._priority = items, outstanding, priority
        self._version, self._model = version, model
        self._seen: Dict[str, int] = collections.defaultdict(int)
        self._threads = 0
        self._is_reading = threading.Lock()     # the items, one at a time
        self.changed = threading.Condition()
        self.put: Dict[str, None] = {}          # ids of runs that have no end yet, in order
        self.ended: Deque[QueueResult] = collections.deque()
        self.failure: Optional[BaseException] = None
        self.is_over = self.is_closed = False   # no more items; the reader has left
        self.is_cancelled = False
        self.wake: Optional[Callable[[], None]] = None      # of an asynchronous reader

    # -- for the reader

    def take(self) -> Tuple[bool, Optional[QueueResult]]:
        """With the lock. Returns whether there is something to say, and it; None is the end."""
        if self.ended:
            found = self.ended.popleft()
            self.changed.notify_all()           # a thread waits for its place
            return True, found
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return self.is_closed or not self._threads, None

    def close(self) -> List[str]:
        """Ends the threads; returns the ids of what goes on without them."""
        with self.changed:
            self.is_closed = True
            self.ended.clear()
            self._tell()
            return list(self.put)

    def _tell(self) -> None:
        self.changed.notify_all()
        if self.wake is not None:
            self.wake()

    # -- threads

    def start(self) -> None:
        """Adds a thread, if there may be more."""
        with self.changed:
            if self.is_over or self.is_closed or self._threads >= self._most:
                return
            self._threads += 1
        threading.Thread(target=self._run, name="droste-queue", daemon=True).start()

    def _run(self) -> None:
        try:
            while self._one():
                pass
        except BaseException as e:
            with self.changed:
                if not self.is_closed:
                    self.failure = self.failure or e
                self.is_over = True
        finally:
            with self.changed:
                self._threads -= 1
                self._tell()

    def _next(self) -> Optional[Tuple[Any, Dict[str, Any]]]:
        """Returns the next item and its request; None: there is none."""
        with self._is_reading:
            if self.is_over or self.is_closed:
                return None
            try:
                item = next(self._items)
            except StopIteration:
                self.is_over = True
                return None
            request = _request_of(item)
            request["options"] = {**self._options, **request.get("options", {})}
            if self._version is not None:
                request["version"] = self._version
            first = _id_of(self._name, request, 0)
            request["id"] = _id_of(self._name, request, self._seen[first])
            self._seen[first] += 1
            return item, request

    def _one(self) -> bool:
        found = self._next()
        if found is None:
            return False
        self.start()
        item, request = found
        result = self._follow(item, {**request, "priority": self._priority})
        with self.changed:
            self.put.pop(request["id"], None)
            while not self.is_closed and len(self.ended) >= self._most:
                self.changed.wait()
            if result is None or self.is_closed:
                return False
            self.ended.append(result)
            self._tell()
        return True

    def _goes_on(self) -> bool:
        return not self.is_closed

    def _follow(self, item: Any, request: Dict[str, Any]) -> Optional[QueueResult]:
        """Puts a run and waits for its end; None: the reader has left."""
        id = request["id"]
        with self.changed:
            if self.is_closed:
                return None
            self.put[id] = None     # before: it may be queued though no answer comes
        try:
            self._nodes.ask("POST", "/v1/queue", request, goes_on=self._goes_on)
        finally:
            if self.is_cancelled:       # perhaps before the run was queued
                cancel(self._nodes, id)
        while self._goes_on():
            found = self._nodes.ask("GET", "/v1/queue/" + id, wait=WAIT_SECONDS,
                                    query={"wait": WAIT_SECONDS}, goes_on=self._goes_on)
            run = found.get("run")
            if found["state"] == "dead":
                run = {"status": "error", "error": found["reason"]}
            if run is not None:         # of a dead letter there is no more to say
                run = {"run": None, "error": None, "usage": UNUSED, **run}
                if run.get("reason"):
                    run["error"] = run["reason"]    # "stale": why it was cancelled
                return QueueResult(item, completion_of(
                    run, run["run"], request.get("context"), self._model, {}, []), id)
        return None


class Runs:
    """The results of `Queue.map`, in the order in which runs end.

    For `for`, and for `async for`. Leaving the loop closes it: no more runs are put, those that
    were put go on, and the same call of `map` finds them.
    """

    def __init__(self, queue: "Queue", work: _Work):
        self._queue, self._work = queue, work
        work.start()

    def __iter__(self) -> "Runs":
        return self

    def __next__(self) -> QueueResult:
        work = self._work
        with work.changed:
            while True:
                there, found = work.take()
                if found is not None:
                    return found
                if there:
                    raise StopIteration
                work.changed.wait()

    def __aiter__(self) -> "Runs":
        return self

    async def __anext__(self) -> QueueResult:
        work, loop = self._work, asyncio.get_running_loop()
        while True:
            with work.changed:
                there, found = work.take()
                if found is not None:
                    return found
                if there:
                    raise StopAsyncIteration
                changed = asyncio.Event()
                work.wake = lambda: _wake(loop, changed)
            await changed.wait()

    def close(self) -> None:
        """Puts no more runs and waits for none; those that were put go on."""
        self._work.close()

    def cancel(self) -> None:
        """Closes it, and cancels the runs that were put and have not ended."""
        self._work.is_cancelled = True
        for id in self._work.close():
            self._queue.cancel(id)

    def __enter__(self) -> "Runs":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        work = getattr(self, "_work", None)
        if work is not None:
            work.close()


def _wake(loop: asyncio.AbstractEventLoop, changed: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(changed.set)
    except RuntimeError:        # the loop is closed
        pass


class Queue:
    """The queue of a cluster of servers (docs/cluster.md).

    `server` is the URL of a node, or several with commas between them, or a list: if one dies, the
    next one is asked. `settings` are those of each run, as RLM takes them.
    """

    def __init__(self, server: Union[None, str, Sequence[str]] = None, *,
                 api_key: Optional[str] = None, model: Optional[str] = None, **settings: Any):
        given = address_of(server) if server is None or isinstance(server, str) else server
        urls = given.split(",") if isinstance(given, str) else list(given or ())
        if not urls:
            raise ArgumentError("Queue needs the URL of a node: server=…, or DROSTE_SERVER")
        if model is not None and not isinstance(model, str):
            raise UnsupportedError("the model of a queued run is the name of a model, no function")
        self._nodes = _Nodes([server_at(url.strip(), api_key) for url in urls])
        self._model = model or ""
        self._options = _options_of(_settings.pairs({"model": model, **settings}))

    def take_options(self, options: Dict[str, Any], model: str) -> None:
        """Of RLM, which has read its settings itself."""
        self._options, self._model = options, model

    def map(self, items: Iterable[Any], *, name: str, outstanding: int = OUTSTANDING,
            priority: int = 1, version: Optional[int] = None) -> Runs:
        """Runs each item, and returns an iterator of the results, for `for` and `async for`.

        An item is a question, or a dict with `question`, and perhaps `context`, `options` and
        `id`. The same item with the same `name` is the same run, also in another process: the same
        call continues, and nothing is paid twice. Equal items of one call are several runs.

        At most `outstanding` runs have been put and have not ended; further items are read when
        there is room. `priority` is 0 (first), 1 or 2. Runs of a `version`, as that of the policy
        that a rollout uses, end as "cancelled" once `drop_before` has named a later one; the same
        item with another version is another run.
        """
        if isinstance(items, (str, bytes, Mapping)):
            raise ArgumentError("items is a list of questions, or of dicts with a `question`")
        if not 1 <= outstanding <= 10000:
            raise ArgumentError("outstanding is a number of runs, 1 to 10000")
        if priority not in (0, 1, 2):
            raise ArgumentError("priority is 0, 1 or 2")
        if version is not None:
            _check_version(version)
        return Runs(self, _Work(self._nodes, name, self._options, iter(items), outstanding,
                                priority, version, self._model))

    def drop_before(self, version: int) -> None:
        """Cancels the runs of this key whose version is below this one, also those to come.

        They end with the status "cancelled" and the error "stale": those that wait when their turn
        comes, active ones at once. Runs without a version go on. 0 drops none from now on.
        """
        _check_version(version)
        self._nodes.ask("DELETE", "/v1/queue", query={"before_version": version})

    def cancel(self, id: str) -> bool:
        """Cancels a run by the id of its result; False if it has ended, or there is none."""
        return cancel(self._nodes, id)


class ClusterRLM(RemoteRLM):
    """`RLM(cluster=…)`: each run is one of the queue, which any node does."""
    __doc__ = RLM.__doc__

    def __init__(self, *arguments: Any, cluster: Union[None, str, Sequence[str]] = None,
                 api_key: Optional[str] = None, server: Optional[str] = None, **keywords: Any):
        RLM.__init__(self, *arguments, **keywords)
        if server:
            raise ArgumentError("server=… and cluster=… are two ways: leave out one")
        self._check_there()
        self._queue = Queue(cluster, api_key=api_key)
        self._queue.take_options(_options_of(self._pairs), self.model_name)

    def _put(self, question: str, context: Any) -> Runs:
        """A call of this object is a run of its own."""
        return self._queue.map([{"question": question, "context": context}],
                               name=os.urandom(16).hex())

    def run(self, question: str, context: Any = None) -> Completion:
        runs = self._put(question, context)
        try:
            return next(runs).completion
        except BaseException:
            runs.cancel()
            raise

    async def arun(self, question: str, context: Any = None) -> Completion:
        runs = self._put(question, context)
        try:
            return (await runs.__anext__()).completion
        except BaseException:
            await asyncio.get_running_loop().run_in_executor(None, runs.cancel)
            raise

    def _refuse(self) -> Any:
        raise UnsupportedError("a run of a cluster's queue has a result and no events, and goes on "
                               "by itself: use run, arun, or server=… of a node")

    def resume(self, run: str) -> Completion:
        return self._refuse()

    def stream(self, question: str, context: Any = None) -> Iterator[Event]:
        return self._refuse()

    async def astream(self, question: str, context: Any = None) -> AsyncIterator[Event]:
        yield self._refuse()
