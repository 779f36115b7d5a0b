"""The names of rlm, fleet-rlm and agentic-codebase-navigator, implemented with Droste.

    import droste.compat
    droste.compat.activate()
    from fleet_rlm import ModalInterpreter          # Droste's

Two layers. Below `droste.rlm` are translations of arguments and the values that these systems
return (`arguments`, `environment_kwargs`, `custom_tools`, `daytona`, `modal`, `routing`,
`rlm_types`, `rlm_errors`, `rlm_logger`, `trajectory`, `wire`). Above it are their classes
(`providers`, `adapters`, `config`, `navigator`, `clients`, `comms`, `repl`), and `modules`, the
table of the modules that `activate` lends. This file therefore imports each of them only on first
use.
"""
from __future__ import annotations

import importlib
import sys
import types
from typing import Any, Dict, List, Optional

#: names that programs import from here, and the modules that have them
NAMES: Dict[str, str] = {
    "ModalInterpreter": "providers", "DaytonaInterpreter": "providers",
    "ExecutionProfile": "providers",
    "configure_planner_from_env": "providers",
    "RLMConfig": "config", "LLMConfig": "config", "EnvironmentConfig": "config",
    "LoggerConfig": "config",
    "create_rlm": "navigator", "create_rlm_from_config": "navigator", "MockLLMAdapter": "navigator",
    "LocalEnvironmentAdapter": "adapters", "DockerEnvironmentAdapter": "adapters",
    "RLMLogger": "rlm_logger",
}

__all__ = ["activate", "deactivate", *NAMES]


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError("module 'droste.compat' has no attribute %r" % name)
    return getattr(importlib.import_module("droste.compat." + NAMES[name]), name)


def __dir__() -> List[str]:
    return sorted([*globals(), *NAMES])


def _refuse(module: str) -> Any:
    """Returns a module's __getattr__, which refuses missing names with an explanation."""
    def missing(name: str) -> Any:
        raise AttributeError("Droste has no %s.%s; docs/compatibility.md lists the names that it "
                             "has" % (module, name))

    return missing


_before: Dict[str, Optional[types.ModuleType]] = {}


def activate(*packages: str) -> List[str]:
    """Has the names of other runtimes mean Droste's; returns the names of the modules.

    With arguments, only the modules of these top-level packages ("rlm", "fleet_rlm"). A real
    package of the name is hidden until `deactivate`.
    """
    lent = {name: contents
            for name, contents in importlib.import_module("droste.compat.modules").MODULES.items()
            if not packages or name.partition(".")[0] in packages}
    for name, contents in lent.items():
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
    return list(lent)


def deactivate() -> None:
    """Removes these modules again."""
    for name, module in _before.items():
        if module is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = module
    _before.clear()
