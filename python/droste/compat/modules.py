"""The modules that `droste.compat.activate` provides, each with its names."""
from __future__ import annotations

import types
from typing import Any, Dict

from .. import rlm
from . import (adapters, arguments, clients, comms, navigator, parsing, prompts, providers, repl,
               rlm_errors, rlm_logger, rlm_types)
from .refused import refused


def _of(module: types.ModuleType, *names: str) -> Dict[str, Any]:
    return {name: getattr(module, name) for name in names}


_FLEET = {name: getattr(providers, name) for name in providers.__all__}
_ERRORS = _of(rlm_errors, *rlm_errors.__all__)
_LOGGER = {**_of(rlm_logger, *rlm_logger.__all__), "VerbosePrinter": refused(
    "VerbosePrinter", "RLM(verbose=True) shows what happens")}
_TYPES = _of(rlm_types, "ClientBackend", "EnvironmentType", "ModelUsageSummary", "UsageSummary",
             "RLMChatCompletion", "REPLResult",
             "CodeBlock", "RLMIteration", "RLMMetadata", "QueryMetadata", "_serialize_value")
_TOOLS = _of(repl, "RESERVED_TOOL_NAMES", "ToolInfo", "parse_tool_entry", "parse_custom_tools",
             "extract_tool_value",
             "format_tools_for_prompt", "validate_custom_tools", "SupportsCustomTools",
             "SupportsPersistence", "BaseEnv", "IsolatedEnv",
             "NonIsolatedEnv")
_REPLS = _of(repl, "LocalREPL", "DockerREPL", "ModalREPL", "DaytonaREPL", "PrimeREPL", "E2BREPL",
             "IPythonREPL")

#: modules by name: alexzhang13/rlm's, agentic-codebase-navigator's, whose package has the same
#: name, and fleet-rlm's
MODULES: Dict[str, Dict[str, Any]] = {
    "fleet_rlm": _FLEET,
    "fleet_rlm.runtime": {},
    "fleet_rlm.runtime.config": {"configure_planner_from_env":
                                 providers.configure_planner_from_env},
    "fleet_rlm.runtime.execution": {},
    "fleet_rlm.runtime.execution.interpreter": {"ModalInterpreter": providers.ModalInterpreter},
    "fleet_rlm.runtime.execution.profiles": {"ExecutionProfile": providers.ExecutionProfile},
    "fleet_rlm.core": {},
    "fleet_rlm.core.interpreter": {"ModalInterpreter": providers.ModalInterpreter},
    "fleet_rlm.integrations": {},
    "fleet_rlm.integrations.providers": {},
    "fleet_rlm.integrations.providers.daytona": {},
    "fleet_rlm.integrations.providers.daytona.interpreter":
    {"DaytonaInterpreter": providers.DaytonaInterpreter},
    "fleet_rlm.integrations.daytona": {},
    "fleet_rlm.integrations.daytona.interpreter":
    {"DaytonaInterpreter": providers.DaytonaInterpreter},
    "rlm": {**navigator.TOP, "RLM": rlm.RLM, **_ERRORS},
    "rlm.core": {},
    "rlm.core.rlm": {"RLM": rlm.RLM},
    "rlm.core.types": _TYPES,
    "rlm.core.comms_utils": _of(comms, "LMRequest", "LMResponse", "socket_send", "socket_recv",
                                "send_lm_request", "send_lm_request_batched"),
    "rlm.core.lm_handler": {"LMHandler": comms.LMHandler},
    "rlm.clients": _of(clients, *clients.__all__),
    "rlm.clients.base_lm": {"BaseLM": clients.BaseLM},
    **{"rlm.clients.%s" % module: {name: getattr(clients, name)} for module, name in (
        ("openai", "OpenAIClient"), ("portkey", "PortkeyClient"), ("anthropic", "AnthropicClient"),
        ("gemini", "GeminiClient"),
        ("azure_openai", "AzureOpenAIClient"))},
    "rlm.environments": {**_TOOLS, **_REPLS, "get_environment": repl.get_environment},
    "rlm.environments.base_env": _TOOLS,
    **{"rlm.environments.%s" % module: {name: _REPLS[name]} for module, name in (
        ("local_repl", "LocalREPL"), ("docker_repl", "DockerREPL"), ("modal_repl", "ModalREPL"),
        ("daytona_repl", "DaytonaREPL"),
        ("prime_repl", "PrimeREPL"), ("e2b_repl", "E2BREPL"), ("ipython_repl", "IPythonREPL"))},
    "rlm.logger": _LOGGER,
    "rlm.logger.rlm_logger": _LOGGER,
    "rlm.logger.verbose": _of(types.SimpleNamespace(**_LOGGER),  # type: ignore
                              "VerbosePrinter"),
    "rlm.utils": {},
    "rlm.utils.parsing": _of(parsing, "find_code_blocks", "format_execution_result",
                             "format_iteration", "convert_context_for_repl"),
    "rlm.utils.prompts": _of(prompts, "RLM_SYSTEM_PROMPT", "ORCHESTRATOR_ADDENDUM", "USER_PROMPT",
                             "build_rlm_system_prompt",
                             "build_user_prompt"),
    "rlm.utils.rlm_utils": {"filter_sensitive_keys": arguments.public},
    "rlm.utils.exceptions": _ERRORS,
    **navigator.MODULES,
    "rlm.adapters.environments": {},
    "rlm.adapters.environments.local": {"LocalEnvironmentAdapter":
                                        adapters.LocalEnvironmentAdapter},
    "rlm.adapters.environments.docker": {"DockerEnvironmentAdapter":
                                         adapters.DockerEnvironmentAdapter},
}
