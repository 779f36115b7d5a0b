"""What this machine and these settings have, as `droste env`, `doctor` and `prompts` show it.

    for environment in droste.host.environments():
        print(environment.name, environment.about)
    print([f.name for f in droste.host.features("docker") if not f.supported])
    print(all(finding.state == "ok" for finding in droste.host.diagnose()))

Keywords are settings, as of an Interpreter.
"""
from __future__ import annotations

import ctypes
import itertools
from typing import Any, List, NamedTuple, Optional

from . import _library
from ._handle import Handle
from ._library import lib, quick

__all__ = ["Environment", "Feature", "Finding", "Prompt", "environments", "features",
           "collect_orphans", "diagnose", "prompts"]


class Environment(NamedTuple):
    name: str
    #: a line about its sandboxes
    about: str


class Feature(NamedTuple):
    """What an environment supports, or does not."""
    name: str
    #: that request it
    settings: List[str]
    supported: bool
    #: how, or why not; None: no remark
    text: Optional[str]


class Finding(NamedTuple):
    """A finding about this machine, the settings, or the files that Droste keeps."""
    name: str
    #: "ok"; "missing": it does not work; "note": a remark
    state: str
    text: str
    #: what to do, or None
    cure: Optional[str]


class Prompt(NamedTuple):
    """A prompt that models get. The setting `system_prompt` replaces the one named "system"."""
    name: str
    about: str
    text: str


def _text(data: Optional[bytes]) -> str:
    return (data or b"").decode("utf-8", "replace")


def _some(data: Optional[bytes]) -> Optional[str]:
    return None if data is None else _text(data)


def environments() -> List[Environment]:
    """Lists the environments."""
    about = ctypes.c_char_p()
    names = itertools.takewhile(lambda name: name is not None, (
        quick.droste_environment_at(at, ctypes.byref(about)) for at in itertools.count()))
    return [Environment(_text(name), _text(about.value)) for name in names]


def features(environment: Optional[str] = None, **settings: Any) -> List[Feature]:
    """Lists what an environment supports and what not; by default that of the settings.

    A bridge ("bridge:PATH") is started for that.
    """
    found: List[Feature] = []

    def add(arg: Any, feature: Any) -> None:
        f = feature.contents
        found.append(Feature(_text(f.name), _text(f.settings).split(), bool(f.supported),
                             _some(f.text)))
    with Handle(settings) as handle:
        handle.check(lib.droste_environment_features(
            handle.d, None if environment is None else environment.encode(),
            _library.FeatureFn(add), None, handle.err))
    return found


def collect_orphans(**settings: Any) -> int:
    """Removes the sandboxes that killed processes of this machine have left; returns their number.

    `env` is the environment (by default "docker"). UnsupportedError for one whose sandboxes always
    end with their program.
    """
    removed = ctypes.c_int(-1)
    with Handle(settings) as handle:
        handle.check(lib.droste_environment_collect(handle.d, ctypes.byref(removed), handle.err))
    return removed.value


def diagnose(**settings: Any) -> List[Finding]:
    """Tries sandboxes at all isolation levels, and checks the settings and Droste's files.

    Calls no model and uses no network.
    """
    found: List[Finding] = []

    def add(arg: Any, finding: Any) -> None:
        f = finding.contents
        found.append(Finding(_text(f.name), _text(f.state), _library.text_at(f.text, f.len),
                             _some(f.cure)))
    # A recording model would create its file, and a sandbox its volume.
    with Handle({**settings, "record": "", "volume_name": ""}) as handle:
        lib.droste_diagnose(handle.d, _library.FindingFn(add), None)
    return found


def prompts() -> List[Prompt]:
    """Lists the prompts that models get."""
    name, about = ctypes.c_char_p(), ctypes.c_char_p()
    texts = itertools.takewhile(lambda text: text is not None, (
        quick.droste_prompt_at(at, ctypes.byref(name), ctypes.byref(about))
        for at in itertools.count()))
    return [Prompt(_text(name.value), _text(about.value), _text(text)) for text in texts]
