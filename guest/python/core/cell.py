"""Runs one piece of code."""
import _signal
import ast
import json
import linecache
import os
import re
import signal
import traceback
import types

from .errors import Submitted
from .frames import MESSAGE, plain, RESULT, shorten, TRACEBACK, type_name
from .link import on_interrupt
from .output import flush_output
from .session import name_values, to_parts, variables_if_changed
from .state import state
from .tools import finish_tools
from ..helpers.programs import log_execution

TOP_LEVEL_AWAIT = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)


NOTHING = compile("", "<nothing>", "exec")
SOURCES = 1000      # cells whose text is kept for their own tracebacks
DEFINES = re.compile(r"\b(?:def|class|lambda)\b")


def compile_cell(code, name, echo):
    """(code of the statements, code of the last expression or None)."""
    if not echo:
        return compile(code, name, "exec", TOP_LEVEL_AWAIT, True), None
    if "\n" not in code and "=" not in code and not code[:1].isspace():     # as a rule one expression: no tree
        try:
            return NOTHING, compile(code, name, "eval", TOP_LEVEL_AWAIT, True)
        except SyntaxError:
            pass
    tree = compile(code, name, "exec", TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, True)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = compile(ast.Expression(tree.body.pop().value), name, "eval", TOP_LEVEL_AWAIT, True)
    return compile(tree, name, "exec", TOP_LEVEL_AWAIT, True), last


def run_code(code):
    """Runs compiled code in __main__; code with top-level await runs on the session's event loop."""
    value = eval(code, state.session.namespace)
    if code.co_flags & 0x80 and isinstance(value, types.CoroutineType):     # CO_COROUTINE
        value = run_coroutine(value)
    return value


def run_coroutine(coroutine):
    """Its value. Where an interrupt stops the loop while it waits, it is cancelled as asyncio.run does it: else it would go
    on in the next cell that awaits something."""
    import asyncio
    if state.session.event_loop is None or state.session.event_loop.is_closed():
        state.session.event_loop = asyncio.new_event_loop()
        asyncio.set_event_loop(state.session.event_loop)
    task = state.session.event_loop.create_task(coroutine)
    try:
        return state.session.event_loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            task.cancel()
            try:
                state.session.event_loop.run_until_complete(task)
            except asyncio.CancelledError:
                pass
        raise


def set_up():
    """Runs the setup code again, unless it has run since the last cell; what it submits is passed over."""
    if not state.session.is_set_up:
        try:
            run_code(state.session.setup)
        except Submitted:
            state.session.submitted = None
    state.session.is_set_up = False


def run_cell(ident, name, code, echo, tools=False, setup=False):
    """(exception or None, echoed value or None). Between the two marks an interrupt raises here."""
    failure = value = None
    before = dict(state.session.namespace) if tools else None
    state.session.submitted = None
    state.session.was_interrupted = False
    try:
        state.session.running = ident
        try:
            state.link.look()         # it may have been interrupted before it began
            body, last = compile_cell(code, name, echo)
            if setup:
                set_up()
            if body is not NOTHING:
                run_code(body)
            if last is not None:
                found = run_code(last)
                if found is not None:
                    state.session.builtins._ = found
                    value = shorten(plain(repr(found)), MESSAGE)    # its repr may raise, and it is no echo then
            if tools:
                finish_tools(before)
        finally:
            state.session.running = None
    except Submitted:
        pass
    except BaseException as e:
        state.session.running = None  # an interrupt may have struck in the line above
        failure = e
    return failure, value


def without_ours(tb):
    """A traceback without this file's frames, and without those of the rules."""
    while tb is not None and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    at = tb
    while at is not None:
        while at.tb_next is not None and at.tb_next.tb_frame.f_code.co_filename == __file__:
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    return tb


def error_of(e):
    """{type, message, traceback} with the cell's own lines; this file's frames are left out."""
    try:
        message = plain(str(e))
    except BaseException:
        message = "<str() of the exception failed>"
    name = plain(type_name(type(e))[:200])
    tb = without_ours(e.__traceback__)
    try:
        text = plain("".join(traceback.format_exception(type(e), e, tb)))
    except BaseException:
        text = "%s: %s\n" % (name, message)
    error = {"type": name, "message": shorten(message, MESSAGE), "traceback": shorten(text, TRACEBACK)}
    if isinstance(e, SystemExit):
        error["exit"] = exit_status(e)
    return error


def exit_status(e):
    """The status with which a process would end: https://docs.python.org/3/library/sys.html#sys.exit"""
    try:
        code = e.code
    except BaseException:       # a subclass may make anything of it
        return 1
    if code is None:
        return 0
    return code & 0xFF if type(code) in (int, bool) else 1


def source_lines(code):
    """As the compiler counts them; str.splitlines knows more line ends."""
    return [line + "\n" for line in code.replace("\r\n", "\n").replace("\r", "\n").split("\n")]


def keep_source(name, code):
    """For tracebacks and inspect. A cell that defines nothing is only in its own: of those the last ones are kept."""
    linecache.cache[name] = (len(code), None, source_lines(code), name)
    if not DEFINES.search(code):
        state.session.sources.append(name)
    while len(state.session.sources) > SOURCES:
        linecache.cache.pop(state.session.sources.pop(0), None)


def execute(ident, head, blob):
    code = ("raise OSError(24, 'too many open files to receive the code')" if blob is None
            else bytes(blob).decode("utf-8"))
    name = head.get("name") or "<cell %d>" % ident
    keep_source(name, code)
    if _signal.getsignal(_signal.SIGINT) is not on_interrupt:
        signal.signal(signal.SIGINT, on_interrupt)
    own = not head.get("name")      # the user's
    failure, value = run_cell(ident, name, code, head.get("echo"), head.get("tools"), own and state.session.setup is not None)
    if os.getpid() != state.link.owner:       # a fork in the cell came out here
        flush_output()
        os._exit(1 if failure else 0)
    if head.get("each") and failure is None:
        state.session.setup, state.session.is_set_up = compile_cell(code, name, False)[0], True
    if own:
        log_execution(code, {"final": state.session.submitted}, {"had_error": failure is not None})
    finish_cell(ident, failure, value)


def finish_cell(ident, failure, value):
    result = {"status": "ok"}
    parts = []
    submitted = state.session.submitted
    if submitted is None:
        submitted, refusal = answer_field()
        failure = failure or refusal
    if failure is not None:
        result["status"] = "interrupted" if state.session.was_interrupted else "error"
        result["error"] = error_of(failure)
        failure = None
    if submitted is not None:
        result["submitted"] = 0
        if submitted[1:]:
            result["texts"] = len(submitted) - 1
        parts += submitted
    if value is not None:
        result["echo"] = len(parts)
        parts.append(value.encode())
    state.session.restore()
    changed = variables_if_changed()
    if changed is not None:
        result["variables"] = changed
    flush_output()
    state.link.send(RESULT, ident, json.dumps(result).encode(), parts)


def answer_field():
    """(`answer["content"]` once `answer["ready"]` is true, however it became so, as a submission, or None; why it cannot be
    submitted, or None). It counts once; a later cell may set it ready again. What is in it is the user's and may raise."""
    answer = state.session.namespace.get("answer")
    if type(answer) is not dict:
        return None, None
    try:
        if not answer.get("ready"):
            return None, None
    except BaseException:
        return None, None
    answer["ready"] = False
    content = answer.get("content", "")
    names = state.session.output_fields
    try:
        return to_parts(name_values(names, (content,), {}) if names else {"answer": content}), None
    except Exception as e:
        return None, e
    except BaseException as e:
        return None, TypeError("answer['content'] is a value of type %s, which raises %s"
                               % (plain(type_name(type(content))), plain(type_name(type(e)))))
