"""Programs that were written for `fleet_rlm` or `rlm`, with their imports unchanged.

    import droste.compat
    droste.compat.activate()        # from here on, `from fleet_rlm import ModalInterpreter` is Droste's
"""
from __future__ import annotations

import sys
import types
from typing import Any, Dict, List, Optional

from .. import _names, _rlm_errors, _rlm_logger, _rlm_types, adapters, providers, rlm
from . import clients, comms, navigator, repl
from ._refused import refused

__all__ = ["activate", "deactivate"]


def _of(module: types.ModuleType, *names: str) -> Dict[str, Any]:
    return {name: getattr(module, name) for name in names}


_FLEET = {name: getattr(providers, name) for name in providers.__all__}
_ERRORS = _of(_rlm_errors, *_rlm_errors.__all__)
_LOGGER = {**_of(_rlm_logger, *_rlm_logger.__all__), "VerbosePrinter": refused(
    "VerbosePrinter", "RLM(verbose=True) shows what happens")}
_TYPES = _of(_rlm_types, "ClientBackend", "EnvironmentType", "ModelUsageSummary", "UsageSummary", "RLMChatCompletion", "REPLResult",
             "CodeBlock", "RLMIteration", "RLMMetadata", "QueryMetadata", "_serialize_value")
_TOOLS = _of(repl, "RESERVED_TOOL_NAMES", "ToolInfo", "parse_tool_entry", "parse_custom_tools", "extract_tool_value",
             "format_tools_for_prompt", "validate_custom_tools", "SupportsCustomTools", "SupportsPersistence", "BaseEnv", "IsolatedEnv",
             "NonIsolatedEnv")
_REPLS = _of(repl, "LocalREPL", "DockerREPL", "ModalREPL", "DaytonaREPL", "PrimeREPL", "E2BREPL", "IPythonREPL")

#: modules by name: alexzhang13/rlm's, agentic-codebase-navigator's, whose package has the same name, and fleet-rlm's
_MODULES: Dict[str, Dict[str, Any]] = {
    "fleet_rlm": _FLEET,
    "fleet_rlm.runtime": {},
    "fleet_rlm.runtime.config": {"configure_planner_from_env": providers.configure_planner_from_env},
    "fleet_rlm.runtime.execution": {},
    "fleet_rlm.runtime.execution.interpreter": {"ModalInterpreter": providers.ModalInterpreter},
    "fleet_rlm.runtime.execution.profiles": {"ExecutionProfile": providers.ExecutionProfile},
    "fleet_rlm.core": {},
    "fleet_rlm.core.interpreter": {"ModalInterpreter": providers.ModalInterpreter},
    "fleet_rlm.integrations": {},
    "fleet_rlm.integrations.providers": {},
    "fleet_rlm.integrations.providers.daytona": {},
    "fleet_rlm.integrations.providers.daytona.interpreter": {"DaytonaInterpreter": providers.DaytonaInterpreter},
    "fleet_rlm.integrations.daytona": {},
    "fleet_rlm.integrations.daytona.interpreter": {"DaytonaInterpreter": providers.DaytonaInterpreter},
    "rlm": {**navigator.TOP, "RLM": rlm.RLM, **_ERRORS},
    "rlm.core": {},
    "rlm.core.rlm": {"RLM": rlm.RLM},
    "rlm.core.types": _TYPES,
    "rlm.core.comms_utils": _of(comms, "LMRequest", "LMResponse", "socket_send", "socket_recv", "send_lm_request", "send_lm_request_batched"),
    "rlm.core.lm_handler": {"LMHandler": comms.LMHandler},
    "rlm.clients": _of(clients, *clients.__all__),
    "rlm.clients.base_lm": {"BaseLM": clients.BaseLM},
    **{"rlm.clients.%s" % module: {name: getattr(clients, name)} for module, name in (
        ("openai", "OpenAIClient"), ("portkey", "PortkeyClient"), ("anthropic", "AnthropicClient"), ("gemini", "GeminiClient"),
        ("azure_openai", "AzureOpenAIClient"))},
    "rlm.environments": {**_TOOLS, **_REPLS, "get_environment": repl.get_environment},
    "rlm.environments.base_env": _TOOLS,
    **{"rlm.environments.%s" % module: {name: _REPLS[name]} for module, name in (
        ("local_repl", "LocalREPL"), ("docker_repl", "DockerREPL"), ("modal_repl", "ModalREPL"), ("daytona_repl", "DaytonaREPL"),
        ("prime_repl", "PrimeREPL"), ("e2b_repl", "E2BREPL"), ("ipython_repl", "IPythonREPL"))},
    "rlm.logger": _LOGGER,
    "rlm.logger.rlm_logger": _LOGGER,
    "rlm.logger.verbose": _of(types.SimpleNamespace(**_LOGGER), "VerbosePrinter"),      # type: ignore
    "rlm.utils": {},
    "rlm.utils.parsing": {"find_code_blocks": repl.find_code_blocks},
    "rlm.utils.rlm_utils": {"filter_sensitive_keys": _names.public},
    "rlm.utils.exceptions": _ERRORS,
    **navigator.MODULES,
    "rlm.adapters.environments": {},
    "rlm.adapters.environments.local": {"LocalEnvironmentAdapter": adapters.LocalEnvironmentAdapter},
    "rlm.adapters.environments.docker": {"DockerEnvironmentAdapter": adapters.DockerEnvironmentAdapter},
}


def _refuse(module: str) -> Any:
    """A module's __getattr__: what is not there is refused by name."""
    def missing(name: str) -> Any:
        raise AttributeError("Droste has no %s.%s; docs/compatibility.md lists the names that it has" % (module, name))

    return missing


_before: Dict[str, Optional[types.ModuleType]] = {}


def activate() -> List[str]:
    """Has the names of other runtimes mean Droste's; the names of the modules. A real package of the name is
    hidden until `deactivate`."""
    for name, contents in _MODULES.items():
        if name in _before:
            continue
        _before[name] = sys.modules.get(name)
        module = types.ModuleType(name, "Droste, by the names of another runtime (droste.compat)")
        module.__path__ = []  # type: ignore
        module.__getattr__ = _refuse(name)  # type: ignore
        module.__dict__.update(contents)
        module.__all__ = [each for each in contents if not each.startswith("_")]  # type: ignore
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    return list(_MODULES)


def deactivate() -> None:
    """Takes that back."""
    for name, module in _before.items():
        if module is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = module
    _before.clear()
