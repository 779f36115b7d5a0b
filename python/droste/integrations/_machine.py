"""What frameworks that expect a machine share: one with commands, files and a home directory.

In local sandboxes that is a private, writable root with a loopback network. A framework's own
settings come first.
"""
from __future__ import annotations

import os
from typing import Any, Dict, Mapping, Optional, Sequence, Union

from .. import _settings
from ..commands import CommandResult
from ..errors import ArgumentError
from ..interpreter import Interpreter

#: the exit status of a shell that does not find a program
NOT_FOUND = 127


def machine_settings(settings: Mapping[str, Any]) -> Dict[str, Any]:
    """Adds what programs expect of a machine, for local sandboxes."""
    if _settings.environment_of(settings) != "local":
        return dict(settings)
    return {"root": "private", "loopback": True, **settings}


def settings_of_text(text: Optional[str]) -> Dict[str, Any]:
    """Reads `NAME=VALUE,NAME=VALUE`, as frameworks' command lines pass it."""
    pairs: Dict[str, Any] = {}
    for word in filter(None, (text or "").split(",")):
        name, separator, value = word.partition("=")
        if not separator:
            raise ArgumentError("settings are NAME=VALUE,NAME=VALUE, not %r" % text)
        pairs[name.strip().replace("-", "_")] = value.strip()
    return pairs


async def open_machine(settings: Mapping[str, Any]) -> Interpreter:
    """Opens a session on the running event loop, without blocking it."""
    return await Interpreter(**machine_settings(settings)).astart()


async def run_program(machine: Interpreter, command: Union[str, Sequence[str]],
                      **options: Any) -> CommandResult:
    """Runs a command. Like a shell's, exit statuses are not negative: 128 and the signal's number,
    and 127 for a program that does not exist."""
    try:
        result = await machine.acommands.run(command, **options)
    except FileNotFoundError as e:
        return CommandResult(NOT_FOUND, "", "%s\n" % e)
    return result if result.exit_code >= 0 else result._replace(exit_code=128 - result.exit_code)


async def write_file(machine: Interpreter, path: str, data: Union[str, bytes]) -> None:
    """Writes a file, and makes the directories above it."""
    try:
        await machine.afiles.write(path, data)
    except FileNotFoundError:
        await machine.afiles.make_dir(os.path.dirname(path))
        await machine.afiles.write(path, data)
