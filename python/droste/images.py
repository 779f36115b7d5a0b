"""Unpacked container images, as `droste image` has them. docs/images.md has the details.

    image = droste.images.pull("docker-archive:python.tar")
    print(image.id, image.size, [one.names for one in droste.images.ls()])
    droste.images.remove(image.id)

They are of this machine, for local sandboxes: `Interpreter(image="docker-archive:python.tar")`. An
image is named by its id, the beginning of it, or a name by which it was used.
"""
from __future__ import annotations

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional

from . import _library
from ._handle import Handle
from ._library import lib

__all__ = ["Image", "ls", "get", "pull", "remove"]


class Image(NamedTuple):
    """An unpacked image."""
    #: the SHA-256 of its configuration
    id: str
    #: its root directory
    path: str
    #: by which it was used, in no order
    names: List[str]
    #: its configuration; None: it is damaged
    config: Optional[Dict[str, Any]]
    #: bytes on disk
    size: int
    #: files of all kinds, with directories
    files: int
    #: seconds since 1970
    made: int
    in_use: bool
    damaged: bool


def _adding(handle: Handle, found: List[Image]) -> Any:
    def add(arg: Any, address: Any) -> int:
        try:
            i = address.contents
            found.append(Image(i.id.decode(), os.fsdecode(i.path), json.loads(i.names),
                               None if i.config is None else json.loads(i.config), i.bytes, i.files,
                               i.made, bool(i.in_use), bool(i.damaged)))
            return 0
        except BaseException as e:
            handle.pending.append(e)
            return -1
    return _library.ImageFn(add)


def _visit(image: Optional[str]) -> List[Image]:
    found: List[Image] = []
    name = None if image is None else os.fsencode(image)
    with Handle({}) as handle:
        handle.check(lib.droste_image_visit(handle.d, name, _adding(handle, found), None,
                                            handle.err))
    return found


def ls() -> List[Image]:
    """Lists the unpacked images, in no order."""
    return _visit(None)


def get(image: str) -> Image:
    """Returns an unpacked image; NotFoundError."""
    return _visit(image)[0]


def pull(name: str) -> Image:
    """Unpacks an image unless that was done, and returns it; a registry's is fetched anew.

    `name` is "oci:DIR[:TAG]", "docker-archive:FILE", or a registry's name, which needs skopeo.
    """
    found: List[Image] = []
    with Handle({}) as handle:
        handle.check(lib.droste_image_pull(handle.d, os.fsencode(name), _adding(handle, found),
                                           None, handle.err))
    return found[0]


def remove(image: str) -> None:
    """Removes an unpacked image; ArgumentError while it is in use, or NotFoundError."""
    with Handle({}) as handle:
        handle.check(lib.droste_image_remove(handle.d, os.fsencode(image), handle.err))
