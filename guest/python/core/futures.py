"""Calls that nobody waits for where they are made: futures, and asyncio."""
import _thread

from .calls import about_models, about_runs, check_list, one, outcome_of
from .link import nudge, open_reply, Waiter
from .state import state


class Errand(Waiter):
    """A call whose answer goes into a future."""
    __slots__ = ("ident", "question", "finish", "future")

    def __init__(self, question, finish, future):
        self.frame = None
        self.wake = courier.waiter.wake
        self.ident = next(state.link.ids)
        self.question, self.finish, self.future = question, finish, future

    @property
    def arrived(self):
        return courier.arrived

    def resolve(self):
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.finish(self.question.understand(*open_reply(self.frame))))
        except BaseException as e:
            self.future.set_exception(e)

    def ended(self, future):
        """The future's callback: it may have been cancelled while the call was under way."""
        if future.cancelled() and state.link.cancel(self.ident):
            courier.arrived.append(self)
            nudge(courier.waiter)


class Courier:
    """The thread that takes answers to their futures, and runs the callbacks of these. It is there
    while calls are under way."""

    def __init__(self):
        self.waiter = Waiter()
        self.arrived = []
        self.lock = _thread.allocate_lock()
        self.open = 0
        self.running = False

    def send(self, question, finish):
        from concurrent.futures import Future
        errand = Errand(question, finish, Future())
        with self.lock:
            if not self.running:
                _thread.start_new_thread(self.run, ())
            self.running = True
            self.open += 1
        try:
            state.link.begin(errand.ident, errand, question.head, question.parts)
        except BaseException:
            state.link.cancel(errand.ident)
            with self.lock:
                self.open -= 1
            nudge(self.waiter)
            raise
        errand.future.add_done_callback(errand.ended)
        return errand.future

    def run(self):
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


def llm_submit(prompt, model=None):
    """Asks a language model and does not wait: a concurrent.futures.Future of the answer."""
    return courier.send(about_models([prompt], model), one)


def rlm_submit(prompt, context=None, model=None):
    """Starts a child run and does not wait: a concurrent.futures.Future of its value."""
    return courier.send(about_runs([prompt], context, model), one)


async def wait_for(question, finish):
    import asyncio
    return await asyncio.wrap_future(courier.send(question, finish))


async def llm_query_async(prompt, model=None):
    """llm_query for `await`: other tasks go on meanwhile. Cancelling the task cancels the call."""
    return await wait_for(about_models([prompt], model), one)


async def llm_query_batched_async(prompts, model=None, errors="mark"):
    """llm_query_batched for `await`."""
    prompts, outcome = check_list(prompts), outcome_of(errors)
    return await wait_for(about_models(prompts, model), outcome) if prompts else []


async def rlm_query_async(prompt, context=None, model=None):
    """rlm_query for `await`."""
    return await wait_for(about_runs([prompt], context, model), one)


async def rlm_query_batched_async(prompts, context=None, model=None, errors="mark"):
    """rlm_query_batched for `await`."""
    prompts, outcome = check_list(prompts), outcome_of(errors)
    return await wait_for(about_runs(prompts, context, model), outcome) if prompts else []
