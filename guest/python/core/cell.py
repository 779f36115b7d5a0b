"""Compiles and runs cells, and reports their results."""
from __future__ import annotations

import _signal
import ast
import builtins
import os
import re
import sys
import types
from typing import TYPE_CHECKING, Any

from .display import show_main
from .errors import Submitted
from .failures import error_of
from .frames import MESSAGE, plain, RESULT, shorten, type_name
from .hooks import flush_figures
from .link import on_interrupt
from .output import flush_output
from .packages import replace_pip_lines
from .session import name_values, Showing, submit_fields, variables_if_changed
from .signals import get_from_kernel, set_in_kernel
from .state import state
from .tools import finish_tools
from droste._encoding.container import ALIGNMENT
from droste._encoding.json_text import write_json
from ..helpers.programs import log_execution

if TYPE_CHECKING:
    from .aliases import Blob, Head

# ast.PyCF_ALLOW_TOP_LEVEL_AWAIT and inspect.CO_COROUTINE, without the imports.
TOP_LEVEL_AWAIT, CO_COROUTINE = 0x2000, 0x80
ECHO = "_droste_echo"   # holds the value of a last expression that awaits, within run_cell
NOTHING = compile("", "<nothing>", "exec")
SOURCES = 1000      # cells that define nothing whose text stays in linecache
DEFINING = ("def", "class", "lambda")
DEFINES = r"\b(?:def|class|lambda)\b"


def compile_cell(code: str, name: str, echo: bool) -> tuple[types.CodeType, types.CodeType | None]:
    """Returns code for the statements and, with `echo`, for the last expression (or None).

    A last expression that awaits belongs to the statements' coroutine, so that what they start
    runs in the loop that it waits in; its value is then in the variable ECHO.
    """
    if not echo:
        return compile(code, name, "exec", TOP_LEVEL_AWAIT, True), None
    # Fast path: such a line is usually one expression, which needs no syntax tree.
    if "\n" not in code and "=" not in code and not code[:1].isspace():
        try:
            return NOTHING, compile(code, name, "eval", TOP_LEVEL_AWAIT, True)
        except SyntaxError:
            pass
    tree = compile(code, name, "exec", TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, True)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        value = tree.body.pop().value
        last = compile(ast.Expression(value), name, "eval", TOP_LEVEL_AWAIT, True)
        if last.co_flags & CO_COROUTINE and tree.body:
            target = ast.copy_location(ast.Name(ECHO, ast.Store()), value)
            tree.body.append(ast.copy_location(ast.Assign([target], value), value))
            last = None
    return compile(tree, name, "exec", TOP_LEVEL_AWAIT, True), last


def compile_with_lines(
        code: str, name: str, echo: bool) -> tuple[types.CodeType, types.CodeType | None]:
    """compile_cell(), also for cells with lines such as `%pip install numpy`."""
    try:
        return compile_cell(code, name, echo)
    except SyntaxError:
        replaced = replace_pip_lines(code)
        if replaced is None:
            raise
    return compile_cell(replaced, name, echo)


def run_code(code: types.CodeType) -> Any:
    """Runs code in __main__; top-level await runs on the session's event loop."""
    value = eval(code, state.session.namespace)
    if code.co_flags & CO_COROUTINE and isinstance(value, types.CoroutineType):
        value = run_coroutine(value)
    return value


def find_event_loop() -> Any:
    """Returns the loop that earlier code made futures for without awaiting them, or a new one."""
    import asyncio
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # Python 3.12 and newer warn where there is no loop
        try:
            loop = asyncio.get_event_loop_policy().get_event_loop()
        except RuntimeError:                # there was one, which asyncio.run() has closed
            loop = None
    if loop is None or loop.is_closed():
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop


def run_coroutine(coroutine: types.CoroutineType[Any, Any, Any]) -> Any:
    """Runs a coroutine on the session's event loop and returns its value.

    If an interrupt stops the loop, cancels the task as asyncio.run() does. Otherwise the task would
    continue in the next cell that awaits something.
    """
    import asyncio
    if state.session.event_loop is None or state.session.event_loop.is_closed():
        state.session.event_loop = find_event_loop()
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


def set_up() -> None:
    """Runs the setup code unless it has run since the last cell; ignores what it submits."""
    if not state.session.is_set_up:
        try:
            run_code(state.session.setup)
        except Submitted:
            state.session.submitted = state.session.values = None
    state.session.is_set_up = False


def run_cell(ident: int, name: str, code: str, echo: bool, tools: bool = False,
             setup: bool = False, item: bool = False) -> tuple[BaseException | None, str | None]:
    """Runs a cell; returns its exception and echo. An interrupt raises while `running` is set."""
    failure = value = None
    before = dict(state.session.namespace) if tools else None
    state.session.submitted = state.session.values = None
    state.session.was_interrupted = False
    state.session.namespace.pop(ECHO, None)     # an interrupt may have kept the last cell from it
    try:
        state.session.running = ident
        try:
            state.link.look()         # an interrupt may have come before the cell started
            body, last = compile_with_lines(code, name, echo)
            if setup:
                set_up()
            if body is not NOTHING:
                run_code(body)
            if item:
                state.session.item()
            if echo:
                found = run_code(last) if last else state.session.namespace.pop(ECHO, None)
                if found is not None:
                    state.session.builtins._ = found  # type: ignore[attr-defined]
                    # A repr() that raises fails the cell; there is no echo then.
                    text = plain(repr(found))
                    value = shorten(text, MESSAGE)
                    show_main(found, text)
            if tools:
                finish_tools(before)
            flush_figures()
        except (Submitted, Exception):
            flush_figures()     # an interrupted cell leaves its figures to the next one
            raise
        finally:
            state.session.running = None
    except Submitted:
        pass
    except BaseException as e:
        state.session.running = None  # an interrupt may arrive during the line above
        failure = e
    return failure, value


def source_lines(code: str) -> list[str]:
    """Splits lines as the compiler counts them; str.splitlines() knows more line ends."""
    return [line + "\n" for line in code.replace("\r\n", "\n").replace("\r", "\n").split("\n")]


def source_cache() -> dict[str, Any]:
    """Returns linecache's texts, or those that it gets when it is imported (hooks.py)."""
    module = sys.modules.get("linecache")
    return state.sources if module is None else module.cache


def keep_source(name: str, code: str) -> None:
    """Keeps a cell's text for tracebacks and inspect.

    Only the tracebacks of a cell itself need its text if it defines nothing; the oldest of these
    texts are dropped.
    """
    source_cache()[name] = (len(code), None, source_lines(code), name)
    if not (any(word in code for word in DEFINING) and re.search(DEFINES, code)):
        state.session.sources.append(name)
    while len(state.session.sources) > SOURCES:
        source_cache().pop(state.session.sources.pop(0), None)


def begin_script(script: dict[str, Any]) -> str | None:
    """Sets what `python FILE ARGUMENTS` sets; returns the name for tracebacks.

    Under rules, sys.path stays: a cell could write a module there that hides an allowed one.
    """
    sys.argv = list(script["argv"])
    if "file" not in script:
        return None
    if state.session.builtins is builtins:
        sys.path.insert(0, str(script["directory"]))
    state.session.namespace["__file__"] = name = str(script["file"])
    return name


def execute(ident: int, head: Head, blob: Blob) -> None:
    code = ("raise OSError(24, 'too many open files to receive the code')" if blob is None
            else bytes(blob).decode("utf-8"))
    name = head.get("name") or "<cell %d>" % ident
    if "script" in head:
        name = begin_script(head["script"]) or name
    state.session.typed = head.get("values", 0)
    state.session.only_values = head.get("only", False)
    most, memory = head.get("files", (0, 0))
    state.link.files = most, memory
    keep_source(name, code)
    if get_from_kernel(_signal.SIGINT) is not on_interrupt:
        set_in_kernel(_signal.SIGINT, on_interrupt)
    state.session.showing = Showing(head)
    own = not head.get("name")      # a cell of the user's, not setup code or tools
    failure, value = run_cell(ident, name, code, head.get("echo"), head.get("tools"),
                              own and state.session.setup is not None, "item" in head)
    if os.getpid() != state.link.owner:       # a process that the cell forked also returns here
        flush_output()
        os._exit(1 if failure else 0)
    if head.get("each") and failure is None:
        state.session.setup, state.session.is_set_up = compile_cell(code, name, False)[0], True
    if own:
        log_execution(code, {"final": state.session.submitted}, {"had_error": failure is not None})
    finish_cell(ident, failure, value)


def fit_text(text: str, limit: int) -> bytes:
    """A text in at most `limit` bytes, or in as many as its short form may have."""
    data = text.encode()
    return data if len(data) <= limit else shorten(text, max(limit // 4 - 20, MESSAGE)).encode()


def finish_cell(ident: int, failure: BaseException | None, value: str | None) -> None:
    result: Head = {"status": "ok"}
    parts: list[Any] = []
    whole: dict[str, str] = {}
    refusal = None
    if state.session.submitted is None:
        refusal = submit_answer()
    submitted = state.session.submitted
    failure = failure or refusal
    if failure is not None:
        result["status"] = "interrupted" if state.session.was_interrupted else "error"
        limit = state.session.showing.whole
        result["error"] = error_of(failure, whole if limit else None)
        failure = None
    if submitted is not None:
        result["submitted"] = 0
        if submitted[1:]:
            result["texts"] = len(submitted) - 1
        parts += submitted
        if state.session.values is not None:
            add_values(result, parts, state.session.values, (value is not None) + len(whole))
            state.session.values = None
    if value is not None:
        result["echo"] = len(parts)
        parts.append(value.encode())
    for key, message in whole.items():
        result[key] = len(parts)
        parts.append(fit_text(message, limit))
    state.session.restore()
    changed = variables_if_changed()
    if changed is not None:
        result["variables"] = changed
    flush_output()
    text = write_json(result)
    # Aligned, as the parts are: the host uses arrays in the memory in which they arrive.
    state.link.send(RESULT, ident, text + b" " * (-len(text) % ALIGNMENT), parts)


def add_values(result: Head, parts: list[Any], values: list[Any], others: int) -> None:
    """Adds the pieces of a container, and pads the outline so that the container is aligned."""
    result["values"], result["pieces"] = len(parts), len(values)
    count = len(parts) + len(values) + others
    parts[0] += b" " * (-(4 + 8 * count + sum(map(len, parts))) % ALIGNMENT)
    parts += values


def submit_answer() -> Exception | None:
    """Submits `answer["content"]` if `answer["ready"]` is true, and resets `ready`.

    Returns the reason why the content cannot be submitted, or None. The values are the user's, so
    every operation on them may raise.
    """
    answer = state.session.namespace.get("answer")
    if type(answer) is not dict:
        return None
    try:
        if not answer.get("ready"):
            return None
    except BaseException:
        return None
    answer["ready"] = False
    content = answer.get("content", "")
    names = state.session.output_fields
    try:
        submit_fields(name_values(names, (content,), {}) if names else {"answer": content})
        return None
    except Exception as e:
        return e
    except BaseException as e:
        return TypeError("answer['content'] is a value of type %s, whose conversion to str "
                         "raises %s"
                         % (plain(type_name(type(content))), plain(type_name(type(e)))))
