"""rlm's environments (rlm.environments): a session in a sandbox of Droste's, driven by itself.

The classes have rlm's names; the sandbox is that of Droste's environment of the same name, so that
`LocalREPL` runs code behind a wall, too. Calls of models go to the handler whose address is given,
child runs to `subcall_fn`.
"""
from __future__ import annotations

import abc
import ast
import dataclasses
import types
from concurrent.futures import ThreadPoolExecutor
from typing import (Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Protocol, Tuple,
                    runtime_checkable)

from .._variables import ECHO, PRINT, RESULTS
from ..errors import UnsupportedError
from ..interpreter import Interpreter
from . import arguments, environment_kwargs
from .refused import refused
from .rlm_types import REPLResult, RLMChatCompletion
from .trajectory import answer_text
from .comms import LMRequest, send_lm_request, send_lm_request_batched

RESERVED_TOOL_NAMES: FrozenSet[str] = frozenset(arguments.RESERVED)


# -- tools

@dataclasses.dataclass
class ToolInfo:
    """A tool of a program: a function, or a value that the code sees as a variable."""
    name: str
    value: Any
    description: Optional[str] = None

    @property
    def is_callable(self) -> bool:
        return callable(self.value)


def parse_tool_entry(name: str, entry: Any) -> ToolInfo:
    """The value alone, or {"tool": value, "description": text}."""
    if not (isinstance(entry, dict) and "tool" in entry):
        return ToolInfo(name, entry)
    about = entry.get("description")
    return ToolInfo(name, entry["tool"], about if isinstance(about, str) else None)


def parse_custom_tools(custom_tools: Optional[Mapping[str, Any]]) -> List[ToolInfo]:
    """Parses all entries."""
    return [parse_tool_entry(name, entry) for name, entry in (custom_tools or {}).items()]


def extract_tool_value(entry: Any) -> Any:
    """Returns the value of an entry."""
    return parse_tool_entry("", entry).value


def format_tools_for_prompt(custom_tools: Optional[Mapping[str, Any]]) -> Optional[str]:
    """Returns a Markdown list of the tools, or None if there are none."""
    lines = ["- `%s`: %s" % (tool.name, tool.description or (
        "A custom function" if tool.is_callable
        else "A custom %s value" % type(tool.value).__name__))
        for tool in parse_custom_tools(custom_tools)]
    return "\n".join(lines) or None


def validate_custom_tools(custom_tools: Optional[Mapping[str, Any]]) -> None:
    """Raises ValueError for a reserved name."""
    taken = sorted(set(custom_tools or ()) & RESERVED_TOOL_NAMES)
    if taken:
        raise ValueError("Custom tools cannot override reserved REPL functions: %s. Reserved "
                         "names: %s" % (
            taken, sorted(RESERVED_TOOL_NAMES)))


def _source_of(name: str, value: Any) -> Optional[str]:
    """Returns code that defines the tool, as rlm's containers accept it, or None if the text is not
    code."""
    if not isinstance(value, str):
        return None
    try:
        tree = ast.parse(value).body
    except (SyntaxError, ValueError):
        return None
    if len(tree) == 1 and isinstance(tree[0], ast.Expr) and isinstance(tree[0].value, ast.Lambda):
        return "%s = %s" % (name, value)
    defined = [node.name for node in tree
               if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    return value if name in defined else None




# -- what an environment is

class BaseEnv(abc.ABC):
    """The interface of an environment; programs may implement their own."""

    def __init__(self, persistent: bool = False, depth: int = 1, max_concurrent_subcalls: int = 4,
                 **kwargs: Any):
        self.persistent, self.depth, self.max_concurrent_subcalls = (persistent, depth,
                                                                     max_concurrent_subcalls)
        self.kwargs = kwargs

    @abc.abstractmethod
    def setup(self) -> None:
        """Prepares the environment."""

    @abc.abstractmethod
    def load_context(self, context_payload: Any) -> None:
        """Binds the context."""

    @abc.abstractmethod
    def execute_code(self, code: str) -> REPLResult:
        """Runs code."""


class IsolatedEnv(BaseEnv):
    """An environment on another machine."""


class NonIsolatedEnv(BaseEnv):
    """An environment on this machine."""


@runtime_checkable
class SupportsCustomTools(Protocol):
    """An environment whose code has tools."""
    custom_tools: Dict[str, Any]


@runtime_checkable
class SupportsPersistence(Protocol):
    """An environment that keeps its session from question to question."""

    def update_handler_address(self, address: Tuple[str, int]) -> None: ...

    def add_context(self, context_payload: Any, context_index: Optional[int] = None) -> int: ...

    def get_context_count(self) -> int: ...

    def add_history(self, message_history: List[Dict[str, Any]],
                    history_index: Optional[int] = None) -> int: ...

    def get_history_count(self) -> int: ...


# -- those of rlm

class _Session(Interpreter):
    _kind = "REPL"
    _flags = ECHO | RESULTS | PRINT     # its callers read the output only
    _typed = False              # JSON values, as in rlm
    _may_be_async = False       # its results are there when the call is back


#: the values of variables: as JSON if possible, else their repr
COLLECT = """def _droste_value(value):
    import json
    try:
        json.dumps(value, allow_nan=False)
        return [True, value]
    except Exception:
        return [False, repr(value)[:2000]]
SUBMIT(values={name: _droste_value(globals()[name]) for name in %r if name in globals()})"""


class _REPL(NonIsolatedEnv):
    """A session; `env` is the name of Droste's environment."""
    _env: Optional[str] = None
    _takes_source = False
    _stays = True       # from question to question, where that is asked for

    def __init__(self, lm_handler_address: Optional[Tuple[str, int]] = None,
                 context_payload: Any = None,
                 setup_code: Optional[str] = None, persistent: bool = False, depth: int = 1,
                 subcall_fn: Optional[Callable[..., RLMChatCompletion]] = None,
                 custom_tools: Optional[Dict[str, Any]] = None,
                 custom_sub_tools: Optional[Dict[str, Any]] = None, compaction: bool = False,
                 max_concurrent_subcalls: int = 4,
                 **kwargs: Any):
        if persistent and not self._stays:
            raise UnsupportedError("%s(persistent=True): as in rlm, only local and docker "
                                   "environments can be persistent" % type(self).__name__)
        super().__init__(persistent, depth, max_concurrent_subcalls, **kwargs)
        self.lm_handler_address, self.subcall_fn, self.compaction = (lm_handler_address, subcall_fn,
                                                                     compaction)
        self.custom_tools: Dict[str, Any] = custom_tools or {}
        self.custom_sub_tools = self.custom_tools if custom_sub_tools is None else custom_sub_tools
        validate_custom_tools(self.custom_tools)
        self._setup_code = setup_code
        self._contexts: Dict[int, Any] = {}
        self._histories: Dict[int, Any] = {}
        self._compacted: List[Any] = []
        self._calls: List[RLMChatCompletion] = []
        self._names: List[str] = ["answer"]
        self._session: Optional[_Session] = None
        self.setup()
        if compaction:
            self._set("history", [])
        if context_payload is not None:
            self.load_context(context_payload)

    def setup(self) -> None:
        """Opens the session."""
        name = arguments.environment_name(self._env)
        tools: Dict[str, Any] = {"llm_query": self._llm_query,
                                 "llm_query_batched": self._llm_query_batched,
                                 "rlm_query": self._rlm_query,
                                 "rlm_query_batched": self._rlm_query_batched}
        sources, values = [self._setup_code or ""], {}
        for tool in parse_custom_tools(self.custom_tools):
            source = _source_of(tool.name, tool.value) if self._takes_source else None
            if source is not None:
                sources.insert(0, source)
            elif tool.is_callable:
                tools[tool.name] = tool.value
            else:
                values[tool.name] = tool.value
        settings: Dict[str, Any] = {"env": name, "restore-name": [*arguments.RESERVED, *tools],
                                    **environment_kwargs.take(self._env, name, self.kwargs)}
        code = "\n".join(filter(None, sources))
        self._session = _Session(tools=tools, tool_threads=True,
                                 **({"setup_code": code} if code else {}), **settings)
        self._session.start()
        for name, value in values.items():
            self._set(name, value)

    def _open(self) -> _Session:
        if self._session is None:
            raise RuntimeError("%s: cleanup() was called; create a new one" % type(self).__name__)
        return self._session

    def _set(self, name: str, value: Any) -> None:
        self._open().set(name, value)
        if name not in self._names:
            self._names.append(name)

    def load_context(self, context_payload: Any) -> None:
        """Binds `context_0`, which is `context`, too."""
        self.add_context(context_payload, 0)

    def execute_code(self, code: str) -> REPLResult:
        """Runs code; an exception is appended to `stderr`."""
        self._calls = calls = []
        result = self._open().execute(code)
        error = result.error
        stderr = result.stderr + (error.traceback or "\n%s: %s" % (error.type, error.message)
                                  if error is not None else "")
        final = answer_text(result.fields) if result.status == "submitted" else None
        if result.variables:
            self._names = [variable["name"] for variable in result.variables]
        return REPLResult(result.stdout, stderr, self.locals if result.alive else {},
                          result.seconds, calls, final)

    @property
    def locals(self) -> Dict[str, Any]:
        """The variables of the session: what JSON has as it is, everything else as its repr."""
        if self._session is None or not self._session.alive:
            return {}
        bound = {"context_%d" % i: value for i, value in self._contexts.items()}
        if 0 in self._contexts:
            bound["context"] = self._contexts[0]
        wanted = [name for name in self._names if name not in bound and not name.startswith("_")]
        found = self._session.execute(COLLECT % (wanted,)).raise_for_status().fields["values"]
        return {**bound, **{name: value for name, (_, value) in found.items()}}

    # -- what stays from question to question

    def update_handler_address(self, address: Tuple[str, int]) -> None:
        """Sends further calls of models to this address."""
        self.lm_handler_address = address

    def add_context(self, context_payload: Any, context_index: Optional[int] = None) -> int:
        """Binds `context_N`; the first is `context`, too."""
        index = len(self._contexts) if context_index is None else context_index
        self._set("context_%d" % index, context_payload)
        if index == 0:
            self._set("context", context_payload)
        self._contexts[index] = context_payload
        return index

    def get_context_count(self) -> int:
        """Returns the number of contexts."""
        return len(self._contexts)

    def add_history(self, message_history: List[Dict[str, Any]],
                    history_index: Optional[int] = None) -> int:
        """Binds `history_N`, a copy; the first is `history`, too."""
        index = len(self._histories) if history_index is None else history_index
        self._set("history_%d" % index, message_history)
        if index == 0 and not self.compaction:
            self._set("history", message_history)
        self._histories[index] = True
        return index

    def get_history_count(self) -> int:
        """Returns the number of histories."""
        return len(self._histories)

    def append_compaction_entry(self, entry: Any) -> None:
        """Adds messages, or a summary, to `history`."""
        self._compacted.append(entry if isinstance(entry, dict) else list(entry))
        self._set("history", self._compacted)

    # -- what the code asks

    def _keep(self, completion: Optional[RLMChatCompletion], error: Optional[str]) -> str:
        if completion is None or error is not None:
            return "Error: %s" % (error or "No completions returned")
        self._calls.append(completion)
        return completion.response

    def _llm_query(self, prompt: Any, model: Optional[str] = None) -> str:
        """Asks a language model; a failure is a text that begins with Error."""
        if self.lm_handler_address is None:
            return "Error: No LM handler configured"
        response = send_lm_request(self.lm_handler_address,
                                   LMRequest(prompt=prompt, model=model, depth=self.depth))
        return self._keep(response.chat_completion, response.error)

    def _llm_query_batched(self, prompts: List[Any], model: Optional[str] = None) -> List[str]:
        """The same for several at once."""
        if self.lm_handler_address is None:
            return ["Error: No LM handler configured"] * len(prompts)
        return [self._keep(response.chat_completion, response.error)
                for response in send_lm_request_batched(
            self.lm_handler_address, list(prompts), model, depth=self.depth)]

    def _subcall(self, prompt: Any,
                 model: Optional[str]) -> Tuple[Optional[RLMChatCompletion], Optional[str]]:
        """Starts a child run, in any thread; returns its answer, or the reason why it could not
        start."""
        try:
            return self.subcall_fn(prompt, model), None     # type: ignore
        except Exception as e:
            return None, "RLM query failed - %s" % e

    def _rlm_query(self, prompt: Any, model: Optional[str] = None) -> str:
        """Starts a child run if the depth allows one; else calls the model like llm_query."""
        if self.subcall_fn is None:
            return self._llm_query(prompt, model)
        return self._keep(*self._subcall(prompt, model))

    def _rlm_query_batched(self, prompts: List[Any], model: Optional[str] = None) -> List[str]:
        """The same for several prompts; at most max_concurrent_subcalls run at once."""
        if self.subcall_fn is None:
            return self._llm_query_batched(prompts, model)
        with ThreadPoolExecutor(max(1, min(self.max_concurrent_subcalls, len(prompts)))) as threads:
            ended = list(threads.map(lambda prompt: self._subcall(prompt, model), prompts))
        # in the order of the prompts, as they are recorded
        return [self._keep(*one) for one in ended]

    # -- the end

    def cleanup(self) -> None:
        """Ends the session."""
        session, self._session = self._session, None
        self._contexts.clear()
        if session is not None:
            session.shutdown()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        self.cleanup()

    @property
    def sandbox_id(self) -> Optional[str]:
        """The provider's id of the sandbox; None for a local one."""
        return self._open().sandbox_id

    @property
    def sandbox(self) -> Any:
        """An object with the `id`."""
        return types.SimpleNamespace(id=self.sandbox_id)

    @property
    def broker_url(self) -> None:
        """None: there is no broker with an address; calls use the sandbox's own stream."""
        return None


class LocalREPL(_REPL):
    """A local sandbox."""
    _env = "local"


class DockerREPL(_REPL):
    """A container. A custom tool may be a text that defines it."""
    _env, _takes_source = "docker", True


class ModalREPL(_REPL):
    """A sandbox of Modal's."""
    _env, _stays = "modal", False


class DaytonaREPL(_REPL):
    """A sandbox of Daytona's. A custom tool may be a text that defines it."""
    _env, _takes_source, _stays = "daytona", True, False


class PrimeREPL(_REPL):
    """A sandbox of Prime Intellect's."""
    _env, _stays = "prime", False


class E2BREPL(_REPL):
    """A sandbox of E2B's."""
    _env, _stays = "e2b", False


IPythonREPL = refused("IPythonREPL", "use LocalREPL, which keeps variables too")
ENVIRONMENTS = {"local": LocalREPL, "ipython": IPythonREPL, "docker": DockerREPL,
                "modal": ModalREPL, "daytona": DaytonaREPL,
                "prime": PrimeREPL, "e2b": E2BREPL}


def get_environment(environment: str, environment_kwargs: Optional[Dict[str, Any]] = None) -> Any:
    """The environment of that name."""
    if environment not in ENVIRONMENTS:
        raise ValueError("Unknown environment: %s. Supported: %s"
                         % (environment, list(ENVIRONMENTS)))
    return ENVIRONMENTS[environment](**(environment_kwargs or {}))
