"""Tools: functions of the host that cells call by name, and functions that setup code defines.

A host tool becomes a function with the parameters of its schema, so Python itself rejects wrong
arguments. Tools are built-ins: a variable of the same name hides a tool, and `del` unhides it.
"""
from __future__ import annotations

import builtins
import keyword
from typing import TYPE_CHECKING, Any, Callable, Iterable

from .calls import failure
from .errors import NOT_GIVEN, ToolError
from .frames import plain, shorten
from .packages import enter_installed
from .servers import (make_returns, make_shape, offer_function, read_result, shorten_description,
                      shorten_signature, withdraw_function)
from .session import encode_odd, to_json, to_parts
from .state import state
from droste._encoding.codec import decode_value
from droste._encoding.json_text import read_json
from ..helpers.public import HELPERS, PUBLIC

if TYPE_CHECKING:
    from .aliases import Head, Parameter

# Built-in exceptions as they were before user code ran, except those that need several arguments.
EXCEPTIONS = {name: kind for name, kind in vars(builtins).items()
              if isinstance(kind, type) and issubclass(kind, Exception)
              and not issubclass(kind, (UnicodeError, StopIteration, StopAsyncIteration))}
ANNOTATIONS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool",
               "array": "list", "object": "dict"}
TEXT = 4000         # characters of a tool's signature or description


def tool_failure(error: Head) -> Exception:
    """Builds the exception for an error of a tool, or of the host on its behalf."""
    name, message = error.get("type"), error.get("message", "")
    if not name:
        return TimeoutError(message) if error.get("code") == "timeout" else failure(error)
    if name in EXCEPTIONS:
        return EXCEPTIONS[name](message)
    return ToolError(message if name == "ToolError" else "%s: %s" % (name, message), name)


def call_tool(name: str, keywords: dict[str, Any], more: dict[str, Any] | None = None) -> Any:
    """Calls a tool; `keywords` has the schema's parameters by name, `more` any additional ones."""
    arguments = {key: value for key, value in keywords.items() if value is not NOT_GIVEN}
    arguments.update(more or {})
    head: Head = {"name": "tool", "tool": name}
    encoded: list[Any] = [to_json(arguments)]
    values = encode_odd(arguments)
    if values is not None:
        head["pieces"] = len(values)
        encoded += values
    reply, parts = state.link.call(head, encoded)
    error = reply.get("error") or reply.get("errors", {}).get("0")
    if error:
        raise tool_failure(error)
    if len(parts) > 1:      # a copy: aligned, and writable
        return decode_value(bytearray(parts[1]))
    return read_json(parts[0])


def call_open_tool(name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Calls a tool without a schema; positional arguments become the list `args`."""
    if positional and "args" in named:
        raise TypeError("%s() got positional arguments and also args=" % name)
    return call_tool(name, dict(named, args=list(positional)) if positional else named)


def is_parameter(name: str) -> bool:
    return name.isidentifier() and not name.startswith("__") and not keyword.iskeyword(name)


def find_parameters(schema: Any) -> list[Parameter] | None:
    """Returns (name, schema, required) of each parameter, required ones first; None if unknown."""
    properties = schema.get("properties") if schema else None
    if not isinstance(properties, dict) or not all(map(is_parameter, properties)):
        return None
    required = schema.get("required") or []
    known = [(name, about if isinstance(about, dict) else {}, name in required)
             for name, about in properties.items()]
    return sorted(known, key=lambda parameter: not parameter[2])


def write_parameters(parameters: list[Parameter], defaults: list[Any]) -> list[str]:
    """Writes parameters as Python source; appends the defaults of optional ones to `defaults`."""
    words = []
    for name, about, required in parameters:
        kinds = about.get("type")
        kinds = [kind for kind in kinds if kind != "null"] if isinstance(kinds, list) else [kinds]
        kind = ANNOTATIONS.get(kinds[0]) if len(kinds) == 1 and isinstance(kinds[0], str) else None
        word = name + (": " + kind if kind else "")
        if not required:
            word += (" = __d__[%d]" if kind else "=__d__[%d]") % len(defaults)
            defaults.append(about.get("default", NOT_GIVEN))
        words.append(word)
    return words


OPEN = "def {0}(*args, **named):\n    return __open__({0!r}, args, named)\n"
CLOSED = "def {0}({1}):\n    return __call__({0!r}, __given__())\n"
MORE = ("def {0}({1}):\n    __all__ = __given__()\n    __more__ = __all__.pop('more')\n"
        "    return __call__({0!r}, __all__, __more__)\n")


def rename(name: str, taken: set[str]) -> str:
    """A parameter's name that Python can have."""
    words = "".join(c if c.isalnum() and c.isascii() else "_" for c in name).lstrip("_") or "value"
    words = "p" + words if words[0].isdigit() else words
    words += "_" * (keyword.iskeyword(words) or words == "more")
    while words in taken:
        words += "_"
    taken.add(words)
    return words


def make_server_tool(tool: Head) -> Callable[..., Any]:
    """Creates a function of an MCP server, which has a schema, and `returns` beside it."""
    schema, returns = tool["parameters"], tool["returns"]
    known, required = schema.get("properties", {}), schema.get("required") or []
    order = sorted(known, key=lambda name: name not in required)
    taken: set[str] = set()
    names = {rename(name, taken): name for name in order}
    about = {name: known[name] if isinstance(known[name], dict) else {} for name in order}
    defaults = [about[name].get("default", NOT_GIVEN) for name in order]
    words = [word + ("" if name in required else "=__d__[%d]" % at)
             for at, (word, name) in enumerate(names.items())]
    is_open = schema.get("additionalProperties") is True

    def call(given: dict[str, Any]) -> Any:
        more = given.pop("more", {}) if is_open else {}
        arguments = {names[word]: value for word, value in given.items()}
        return read_result(call_tool(tool["name"], arguments, more), returns)

    space: dict[str, Any] = {"__call__": call, "__given__": locals, "__d__": defaults}
    short = tool["name"].partition(".")[2]
    form = "def {0}({1}):\n    return __call__(__given__())\n"
    exec(compile(form.format(short, ", ".join(words + ["**more"] * is_open)), __file__, "exec"),
         space)
    function = space[short]
    function.__annotations__ = {word: make_shape(about[name], schema)
                                for word, name in names.items()}
    function.__annotations__["return"] = make_returns(returns)
    function.__doc__ = describe_parameters(
        tool.get("description") or "",
        [(word, about[name], name in required) for word, name in names.items()])
    return function


def make_tool(tool: Head) -> Callable[..., Any]:
    """Creates a function from {"name", "description", "parameters": JSON schema or null}."""
    if "returns" in tool:
        return make_server_tool(tool)
    schema: Any = tool.get("parameters")
    defaults: list[Any] = []
    parameters = find_parameters(schema)
    words, form = [], OPEN
    if parameters is not None:
        more = schema.get("additionalProperties") is True and "more" not in schema["properties"]
        words = write_parameters(parameters, defaults) + ["**more"] * more
        form = MORE if more else CLOSED
    call = call_tool
    if "installs" in tool:
        def call(*arguments: Any) -> Any:       # type: ignore[misc]
            return enter_installed(tool["installs"], call_tool(*arguments))
    names: dict[str, Any] = {"__call__": call, "__open__": call_open_tool, "__given__": locals,
             "__d__": defaults}
    exec(compile(form.format(tool["name"], ", ".join(words)), __file__, "exec"), names)
    function = names[tool["name"]]
    function.__module__ = "__main__"
    function.__doc__ = describe_parameters(tool.get("description") or "", parameters or [])
    return function


def describe_parameters(text: str, parameters: list[Parameter]) -> str:
    lines = ["  %s: %s" % (name, about["description"]) for name, about, _ in parameters
             if isinstance(about.get("description"), str)]
    return "\n".join([text, "", "Arguments:"] + lines).strip() if lines else text


def define_tools(list_of_tools: Iterable[Head]) -> None:
    for tool in list_of_tools:
        offer_tool(tool["name"], make_tool(tool))


def offer_tool(name: str, function: Callable[..., Any]) -> None:
    if "." in name:
        offer_function(name, function)
    else:
        setattr(state.session.builtins, name, function)
    state.session.tools[name] = function


def withdraw_tool(name: str) -> None:
    if state.session.tools.pop(name, None) is None:
        return
    if "." in name:
        withdraw_function(name)
        return
    public: tuple[Any, ...] = PUBLIC
    own = [thing for thing in public if thing.__name__ == name]
    if own:
        setattr(state.session.builtins, name, own[0])
    else:
        vars(state.session.builtins).pop(name, None)


def withdraw_host_tools() -> None:
    """Removes the tools of the host that the session of a template had."""
    for name, function in list(state.session.tools.items()):
        if "__given__" in getattr(function, "__globals__", ()):
            withdraw_tool(name)


# -- tools defined by Python source, which may do anything else that setup code does

def is_own_tool(name: str, value: Any) -> bool:
    return (not name.startswith("_") and callable(value) and not isinstance(value, type)
            and getattr(value, "__module__", None) == "__main__"
            and isinstance(getattr(value, "__doc__", None), str))


def is_free(name: str) -> bool:
    """Whether a tool may have this name; a tool may replace a helper, but only once."""
    helper = name in (helper.__name__ for helper in HELPERS) and name not in state.session.tools
    return helper or not hasattr(state.session.builtins, name)


def adopt_tools(before: dict[str, Any]) -> None:
    """Moves documented functions that this source has defined from the namespace to built-ins.

    As built-ins, cells cannot lose them.
    """
    for name, value in list(state.session.namespace.items()):
        if not is_own_tool(name, value) or before.get(name) is value:
            continue
        if name in before or not is_free(name):
            raise ValueError("the name '%s' is already in use; give the tool another name" % name)
        del state.session.namespace[name]
        offer_tool(name, value)


def describe_tools() -> list[Head]:
    """Describes the tools for the model's prompt."""
    import inspect
    described = []
    for name, function in state.session.tools.items():
        try:
            signature = str(inspect.signature(function))
        except (TypeError, ValueError):
            signature = "(...)"
        text = inspect.cleandoc(function.__doc__ or "")
        if "." in name:
            signature, text = shorten_signature(name, signature), shorten_description(name, text)
        described.append({"name": name, "signature": shorten(plain(signature), TEXT),
                          "description": shorten(plain(text), TEXT)})
    return described


def finish_tools(before: dict[str, Any]) -> None:
    adopt_tools(before)
    state.session.submitted = to_parts({"tools": describe_tools()})
