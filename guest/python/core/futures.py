"""Asynchronous calls: concurrent.futures and asyncio."""
from __future__ import annotations

import _thread
from typing import Any, Callable

from .calls import about_models, about_runs, check_list, one, outcome_of, Question
from .link import nudge, open_reply, Waiter
from .state import state


class Errand(Waiter):
    """A call in flight whose reply completes a future."""
    __slots__ = ("ident", "question", "finish", "future")

    def __init__(self, question: Question, finish: Callable[[list[Any]], Any], future: Any) -> None:
        self.frame = None
        self.wake = courier.waiter.wake
        self.ident = next(state.link.ids)
        self.question, self.finish, self.future = question, finish, future

    @property
    def arrived(self) -> list[Errand]:     # type: ignore[override]
        return courier.arrived

    def resolve(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.finish(self.question.understand(*open_reply(self.frame))))
        except BaseException as e:
            self.future.set_exception(e)

    def ended(self, future: Any) -> None:
        """Done callback of the future: cancels the call on the host if the future was cancelled."""
        if future.cancelled() and state.link.cancel(self.ident):
            courier.arrived.append(self)
            nudge(courier.waiter)


class Courier:
    """The thread that completes futures and runs their callbacks; it exits when no call is open."""

    def __init__(self) -> None:
        self.waiter = Waiter()
        self.arrived: list[Errand] = []
        self.lock = _thread.allocate_lock()
        self.open = 0
        self.running = False

    def send(self, question: Question, finish: Callable[[list[Any]], Any]) -> Any:
        from concurrent.futures import Future
        errand = Errand(question, finish, Future())
        state.link.enter()      # no handler of a signal raises before all of it is done
        try:
            self.begin(errand)
        finally:
            state.link.leave()
        return errand.future

    def begin(self, errand: Errand) -> None:
        with self.lock:
            if not self.running:
                _thread.start_new_thread(self.run, ())
            self.running = True
            self.open += 1
        try:
            question = errand.question
            state.link.begin(errand.ident, errand, question.head, question.parts)
        except BaseException:
            state.link.cancel(errand.ident)
            with self.lock:
                self.open -= 1
            nudge(self.waiter)
            raise
        errand.future.add_done_callback(errand.ended)

    def run(self) -> None:
        while True:
            state.link.wait(self.waiter, lambda: self.arrived or not self.open)
            self.waiter.wake.acquire(False)
            done = 0
            while self.arrived:
                self.arrived.pop(0).resolve()
                done += 1
            with self.lock:
                self.open -= done
                if not self.open:
                    self.running = False
                    break
        state.link.pass_on()      # the reader's role may have been offered to this thread


courier = Courier()


def llm_submit(prompt: Any, model: str | None = None) -> Any:
    """Asks a language model without waiting; returns a concurrent.futures.Future."""
    return courier.send(about_models([prompt], model), one)


def rlm_submit(prompt: Any, context: Any = None, model: str | None = None) -> Any:
    """Starts a child run without waiting; returns a concurrent.futures.Future."""
    return courier.send(about_runs([prompt], context, model), one)


async def wait_for(question: Question, finish: Callable[[list[Any]], Any]) -> Any:
    import asyncio
    return await asyncio.wrap_future(courier.send(question, finish))


async def llm_query_async(prompt: Any, model: str | None = None) -> str:
    """Awaitable llm_query(); other tasks run meanwhile. Cancelling the task cancels the call."""
    return await wait_for(about_models([prompt], model), one)


async def llm_query_batched_async(prompts: Any, model: str | None = None,
                                  errors: str = "mark") -> list[Any]:
    """Awaitable llm_query_batched()."""
    prompts, outcome = check_list(prompts), outcome_of(errors)
    return await wait_for(about_models(prompts, model), outcome) if prompts else []


async def rlm_query_async(prompt: Any, context: Any = None, model: str | None = None) -> Any:
    """Awaitable rlm_query()."""
    return await wait_for(about_runs([prompt], context, model), one)


async def rlm_query_batched_async(prompts: Any, context: Any = None, model: str | None = None,
                                  errors: str = "mark") -> list[Any]:
    """Awaitable rlm_query_batched()."""
    prompts, outcome = check_list(prompts), outcome_of(errors)
    return await wait_for(about_runs(prompts, context, model), outcome) if prompts else []
