"""Programs that were written for `fleet_rlm` or `rlm`, with their imports unchanged.

    import droste.compat
    droste.compat.activate()        # from here on, `from fleet_rlm import ModalInterpreter` is Droste's
"""
from __future__ import annotations

import sys
import types
from typing import Any, Dict, List, Optional

from .. import adapters, config, environments, providers, rlm

__all__ = ["activate", "deactivate"]

_FLEET = {name: getattr(providers, name) for name in providers.__all__}
_MODULES: Dict[str, Dict[str, Any]] = {
    "fleet_rlm": _FLEET,
    "fleet_rlm.runtime": {},
    "fleet_rlm.runtime.config": {"configure_planner_from_env": providers.configure_planner_from_env},
    "fleet_rlm.integrations": {},
    "fleet_rlm.integrations.providers": {},
    "fleet_rlm.integrations.providers.daytona": {},
    "fleet_rlm.integrations.providers.daytona.interpreter": {"DaytonaInterpreter": providers.DaytonaInterpreter},
    "fleet_rlm.integrations.daytona": {},
    "fleet_rlm.integrations.daytona.interpreter": {"DaytonaInterpreter": providers.DaytonaInterpreter},
    "rlm": {"RLM": rlm.RLM, "create_rlm_from_config": config.create_rlm_from_config},
    "rlm.application": {},
    "rlm.application.config": {name: getattr(config, name) for name in ("RLMConfig", "LLMConfig", "EnvironmentConfig")},
    "rlm.domain": {},
    "rlm.domain.ports": {"EnvironmentPort": environments.EnvironmentPort},
    "rlm.domain.models": {"ReplResult": environments.ReplResult},
    "rlm.adapters": {},
    "rlm.adapters.environments": {},
    "rlm.adapters.environments.local": {"LocalEnvironmentAdapter": adapters.LocalEnvironmentAdapter},
    "rlm.adapters.environments.docker": {"DockerEnvironmentAdapter": adapters.DockerEnvironmentAdapter},
    "rlm.api": {},
    "rlm.api.registries": {"registry": environments.registry},
}
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
        module.__dict__.update(contents)
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
