"""What a notebook asks of its sandbox: input(), completion, inspection, expressions.

Runs in the sandbox, whose libraries know its objects, for the local kernel (jupyter.py) and for
`droste serve` (src/serve/jupyter). It becomes a module there, so that nothing of it is among the
names of the session. What its functions return is untrusted outside.
"""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:       # the import would take longer than all the rest
    from typing import Any, Dict, List, Optional, Tuple
    Names = Dict[str, Any]


def prepare(ask: Any) -> Dict[str, Any]:
    """input() and getpass() ask the notebook, through a tool."""
    import builtins
    import sys
    import types

    class StdinNotImplementedError(NotImplementedError):
        """No client answers; clients know this name from IPython."""

    def text(prompt: object, password: bool) -> str:
        try:
            return str(ask(prompt=str(prompt), password=password))
        except RuntimeError as e:
            if getattr(e, "type", None) != "StdinNotImplementedError":
                raise
            message = str(e).partition(": ")[2]
        raise StdinNotImplementedError(message)

    def input(prompt: object = "", /) -> str:
        sys.stdout.flush()
        return text(prompt, False)

    def getpass(prompt: object = "Password: ", stream: Any = None) -> str:
        return text(prompt, True)
    builtins.input = input
    module: Any = types.ModuleType("getpass", "Passwords, which the notebook asks for.")
    module.getpass, module.getuser = getpass, lambda: "user"
    module.GetPassWarning = type("GetPassWarning", (UserWarning,), {})
    sys.modules["getpass"] = module
    return {"version": "%d.%d.%d" % sys.version_info[:3]}


def complete(names: Names, code: str, cursor: int) -> Dict[str, Any]:
    """The names that the word before the cursor may become, and where it begins."""
    import re
    import rlcompleter
    word = re.search(r"[\w.]*\Z", code[:cursor])[0]     # type: ignore[index]
    completer = rlcompleter.Completer(names)
    found = [completer.complete(word, i) for i in range(500)] if word else []
    matches = {match.strip().rstrip("()") for match in found if match}
    return {"matches": sorted(matches), "start": cursor - len(word)}


def name_at(code: str, cursor: int) -> str:
    """The dotted name at the cursor, or the function in whose call it is."""
    import re
    dotted = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
    for found in re.finditer(dotted, code):
        if found.start() <= cursor <= found.end():
            return code[found.start():cursor] + code[cursor:found.end()].partition(".")[0]
    before = re.search(r"(%s)\s*\([^()]*\Z" % dotted, code[:cursor])
    return before[1] if before else ""


def look(names: Names, name: str, detail: bool) -> Optional[str]:
    import builtins
    import inspect
    first, *rest = name.split(".")
    if first not in names and not hasattr(builtins, first):
        return None
    value = names[first] if first in names else getattr(builtins, first)
    for part in rest:
        value = getattr(value, part)
    lines: List[str] = []
    if callable(value):
        try:
            lines.append("Signature: %s%s" % (name, inspect.signature(value)))
        except (TypeError, ValueError):
            pass
    lines.append("Type:      " + type(value).__name__)
    if not callable(value) and not inspect.ismodule(value):
        lines.append("Value:     " + repr(value)[:1000])
    doc = inspect.getdoc(value)
    if doc:
        lines.append("Docstring: " + doc)
    if detail:
        try:
            lines.append("Source:\n" + inspect.getsource(value))
        except (OSError, TypeError):
            pass
    return "\n".join(lines)


def describe(names: Names, code: str, cursor: int, detail: bool) -> Dict[str, Any]:
    """What is known of the object at the cursor; None: nothing."""
    try:
        name = name_at(code, cursor)
        return {"text": look(names, name, detail) if name else None}
    except Exception:       # of the object's own methods
        return {"text": None}


def is_complete(names: Names, code: str) -> Dict[str, Any]:
    """Whether a cell can run as it is, and how the next line is indented if not."""
    import ast
    import codeop
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        whole = compiler(code + "\n" if code.endswith("\n") else code, "<cell>", "exec")
    except (SyntaxError, ValueError, OverflowError):
        return {"status": "invalid"}
    last = code.rstrip("\n").rpartition("\n")[2]
    # A block ends with a blank line.
    goes_on = last[:1] in (" ", "\t") and not code.endswith("\n")
    if whole is not None and not goes_on:
        return {"status": "complete"}
    indent = len(last) - len(last.lstrip()) + (4 if last.rstrip().endswith(":") else 0)
    return {"status": "incomplete", "indent": " " * indent}


def evaluate(names: Names, expressions: Dict[str, str]) -> Dict[str, Any]:
    """By name: the text of an expression's value, or the error's type and message."""
    values: Dict[str, str] = {}
    errors: Dict[str, Tuple[str, str]] = {}
    for name, code in expressions.items():
        try:
            values[name] = repr(eval(code, names))
        except Exception as error:
            errors[name] = type(error).__name__, str(error)
    return {"values": values, "errors": errors}
