"""Functions of the host's that cells call by name, and those of the user's own source.

A host's tool is a real function with the parameters of its schema, so that Python itself refuses
wrong arguments. Tools are built-ins: a variable of the same name hides one, and `del` brings it back.
"""
import builtins
import json
import keyword

from .calls import failure
from .errors import NOT_GIVEN, ToolError
from .frames import plain, shorten
from .session import to_json, to_parts
from .state import state
from ..helpers.public import HELPERS, PUBLIC

# As they were before anybody's code ran. What needs more than a message to be made is no tool's.
EXCEPTIONS = {name: kind for name, kind in vars(builtins).items()
              if isinstance(kind, type) and issubclass(kind, Exception)
              and not issubclass(kind, (UnicodeError, StopIteration, StopAsyncIteration))}
ANNOTATIONS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool",
               "array": "list", "object": "dict"}
TEXT = 4000         # characters of what is told of a tool


def tool_failure(error):
    """The exception that a tool, or the host in its place, means."""
    name, message = error.get("type"), error.get("message", "")
    if not name:
        return TimeoutError(message) if error.get("code") == "timeout" else failure(error)
    if name in EXCEPTIONS:
        return EXCEPTIONS[name](message)
    return ToolError(message if name == "ToolError" else "%s: %s" % (name, message), name)


def call_tool(name, given, more=None):
    """Asks the host; `given` are the parameters by name, `more` those that the schema leaves open."""
    arguments = {key: value for key, value in given.items() if value is not NOT_GIVEN}
    arguments.update(more or {})
    reply, parts = state.link.call({"name": "tool", "tool": name}, [to_json(arguments)])
    error = reply.get("error") or reply.get("errors", {}).get("0")
    if error:
        raise tool_failure(error)
    return json.loads(str(parts[0], "utf-8"))


def call_open_tool(name, positional, named):
    """A tool without a schema takes what it is given; what has no name goes under `args`."""
    if positional and "args" in named:
        raise TypeError("%s() got positional arguments and also args=" % name)
    return call_tool(name, dict(named, args=list(positional)) if positional else named)


def is_parameter(name):
    return name.isidentifier() and not name.startswith("__") and not keyword.iskeyword(name)


def find_parameters(schema):
    """[(name, its schema, whether it is required)], those first that are; None if they are not known."""
    properties = schema.get("properties") if schema else None
    if not isinstance(properties, dict) or not all(map(is_parameter, properties)):
        return None
    required = schema.get("required") or []
    known = [(name, about if isinstance(about, dict) else {}, name in required)
             for name, about in properties.items()]
    return sorted(known, key=lambda parameter: not parameter[2])


def write_parameters(parameters, defaults):
    """As Python has them; what may be left out has its default in the list."""
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


def make_tool(told):
    """A function from {"name", "description", "parameters": a JSON schema or null}."""
    schema, defaults = told.get("parameters"), []
    parameters = find_parameters(schema)
    words, form = [], OPEN
    if parameters is not None:
        more = schema.get("additionalProperties") is True and "more" not in schema["properties"]
        words = write_parameters(parameters, defaults) + ["**more"] * more
        form = MORE if more else CLOSED
    names = {"__call__": call_tool, "__open__": call_open_tool, "__given__": locals, "__d__": defaults}
    exec(compile(form.format(told["name"], ", ".join(words)), __file__, "exec"), names)
    function = names[told["name"]]
    function.__module__ = "__main__"
    function.__doc__ = describe_parameters(told.get("description") or "", parameters or [])
    return function


def describe_parameters(text, parameters):
    lines = ["  %s: %s" % (name, about["description"]) for name, about, _ in parameters
             if isinstance(about.get("description"), str)]
    return "\n".join([text, "", "Arguments:"] + lines).strip() if lines else text


def define_tools(list_of_tools):
    for told in list_of_tools:
        offer_tool(told["name"], make_tool(told))


def offer_tool(name, function):
    setattr(state.session.builtins, name, function)
    state.session.tools[name] = function


def withdraw_tool(name):
    if state.session.tools.pop(name, None) is None:
        return
    own = [thing for thing in PUBLIC if thing.__name__ == name]
    if own:
        setattr(state.session.builtins, name, own[0])
    else:
        vars(state.session.builtins).pop(name, None)


# -- tools that are source: whatever else it does, it is set-up code

def is_own_tool(name, value):
    return (not name.startswith("_") and callable(value) and not isinstance(value, type)
            and getattr(value, "__module__", None) == "__main__"
            and isinstance(getattr(value, "__doc__", None), str))


def is_free(name):
    """A helper gives its name away, once."""
    helper = name in (helper.__name__ for helper in HELPERS) and name not in state.session.tools
    return helper or not hasattr(state.session.builtins, name)


def adopt_tools(before):
    """The documented functions that this source has defined leave the namespace and become built-ins,
    where no cell loses them."""
    for name, value in list(state.session.namespace.items()):
        if not is_own_tool(name, value) or before.get(name) is value:
            continue
        if name in before or not is_free(name):
            raise ValueError("the name '%s' is taken; give the tool another" % name)
        del state.session.namespace[name]
        offer_tool(name, value)


def describe_tools():
    """What a model is told of them."""
    import inspect
    told = []
    for name, function in state.session.tools.items():
        try:
            signature = str(inspect.signature(function))
        except (TypeError, ValueError):
            signature = "(...)"
        told.append({"name": name, "signature": shorten(plain(signature), TEXT),
                     "description": shorten(plain(inspect.cleandoc(function.__doc__ or "")), TEXT)})
    return told


def finish_tools(before):
    adopt_tools(before)
    state.session.submitted = to_parts({"tools": describe_tools()})
