"""Rich results of cells: what display(), figures and last expressions show."""
from __future__ import annotations

import base64
import ctypes
import html
import json
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ._library import Media, quick

# Attributes, and the media types that they stand for.
TYPES = {
    "text": "text/plain", "html": "text/html", "markdown": "text/markdown", "svg": "image/svg+xml",
    "png": "image/png", "jpeg": "image/jpeg", "pdf": "application/pdf", "latex": "text/latex",
    "json": "application/json", "javascript": "application/javascript", "data": "e2b/data",
    "chart": "e2b/chart",
}

# What the HTML of a sandbox may do in a notebook: be shown, with its own styles and images.
POLICY = ("<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; "
          "style-src 'unsafe-inline'; img-src data:\">")


class RichResult:
    """One rich result: a value in one or more media types.

    `text`, `html`, `markdown`, `svg`, `latex` and `javascript` are str; `png`, `jpeg` and `pdf`
    are bytes; `json`, `data` (a table's columns as lists) and `chart` are decoded JSON. Each is
    None if the value has no such form. `bundle` has all forms by media type, `extra` those without
    an attribute. `is_main_result` is true for the value of the last expression. `display_id` is the
    name under which code may update it, or None; `is_update` is true if it replaces the result of
    that name.

    In a notebook, shows itself as the value would, except that code of the sandbox never runs
    there: HTML and SVG are shown without scripts and network, JavaScript is not shown.
    """
    __slots__ = ("bundle", "metadata", "is_main_result", "display_id", "is_update")

    def __init__(self, bundle: Dict[str, Any], metadata: Optional[Dict[str, Any]] = None,
                 is_main_result: bool = False, display_id: Optional[str] = None,
                 is_update: bool = False):
        self.bundle = bundle
        self.metadata = metadata or {}
        self.is_main_result = is_main_result
        self.display_id = display_id
        self.is_update = is_update

    def __getattr__(self, name: str) -> Any:
        if name in TYPES:
            return self.bundle.get(TYPES[name])
        raise AttributeError("a rich result has no attribute %r; its forms are %s"
                             % (name, ", ".join(self.formats())))

    def __getitem__(self, name: str) -> Any:
        """Returns the form of a media type or of an attribute's name; KeyError if it is absent."""
        return self.bundle[TYPES.get(name, name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.bundle)

    def __len__(self) -> int:
        return len(self.bundle)

    def __contains__(self, name: object) -> bool:
        return TYPES.get(str(name), name) in self.bundle

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, RichResult) and self.bundle == other.bundle
                and self.is_main_result == other.is_main_result)

    __hash__ = None  # type: ignore[assignment]

    def __dir__(self) -> List[str]:
        return sorted(set(object.__dir__(self)) | set(TYPES))

    def formats(self) -> List[str]:
        """Returns the names of the attributes that are present, then other media types."""
        names = {media: name for name, media in TYPES.items()}
        return [names.get(media, media) for media in self.bundle]

    @property
    def extra(self) -> Dict[str, Any]:
        """The forms whose media type has no attribute."""
        known = set(TYPES.values())
        return {media: data for media, data in self.bundle.items() if media not in known}

    def __repr__(self) -> str:
        main = "main, " if self.is_main_result else ""
        return "<RichResult: %s%s>" % (main, ", ".join(self.formats()))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Tuple[
            Dict[str, Any], Dict[str, Any]]:
        """Returns what a notebook shows; nothing in it is code of the sandbox."""
        shown: Dict[str, Any] = {"text/plain": self.text if self.text is not None else repr(self)}
        for media, data in self.bundle.items():
            if isinstance(data, bytes) and media.startswith("image/"):
                shown[media] = base64.b64encode(data).decode()
            elif media == "text/latex" or media.startswith("application/vnd."):
                shown[media] = data
        page = harmless_html(self)
        if page:
            shown["text/html"] = page
        return shown, {k: v for k, v in self.metadata.items() if k in shown}


def data_url(media: str, data: bytes) -> str:
    return "data:%s;base64,%s" % (media, base64.b64encode(data).decode())


def harmless_html(result: RichResult) -> Optional[str]:
    """Returns HTML that shows a result without running anything of it; None if it has no such form.

    HTML is in a frame of its own, without scripts, forms, network and access to the notebook. An
    SVG is an image, in which browsers run no scripts.
    """
    if result.png is not None or result.jpeg is not None:
        return None     # notebooks show these themselves
    if result.html is not None:
        return ("<iframe sandbox='' style='width:100%%;height:22em;border:0;resize:vertical' "
                "srcdoc=\"%s\"></iframe>" % html.escape(POLICY + result.html, quote=True))
    if result.svg is not None:
        return "<img src='%s'>" % data_url("image/svg+xml", result.svg.encode())
    return None


def image_html(result: RichResult) -> Optional[str]:
    """Returns an image or a harmless page, for a table of a cell's results."""
    for media in ("image/png", "image/jpeg"):
        data = result.bundle.get(media)
        if isinstance(data, bytes):
            return "<img style='max-width:100%%' src='%s'>" % data_url(media, data)
    return harmless_html(result)


def decode(form: bytes, data: bytes) -> Any:
    """Returns a form of a value as Python has it."""
    if form == b"bytes":
        return data
    return json.loads(data) if form == b"json" else data.decode()


def show(result: Optional[RichResult]) -> None:
    """Shows a rich result in a notebook as it comes: Interpreter(on_result=droste.show).

    Updates replace what was shown; None, after clear_output(), removes it.
    """
    from IPython.display import clear_output, display  # type: ignore
    if result is None:
        clear_output(wait=True)
        return
    words = {"display_id": result.display_id} if result.display_id else {}
    display(result, **words, update=True) if result.is_update else display(result, **words)


def read_results(handle: int) -> List[RichResult]:
    """Copies the rich results of a cell out of the library."""
    return read_bundles(quick.droste_result_shown(handle))


def read_bundles(bundles: int) -> List[RichResult]:
    return [read_bundle(bundles, i) for i in range(quick.droste_bundles_count(bundles))]


def read_bundle(bundles: int, index: int) -> RichResult:
    """Copies a rich result."""
    bundle: Dict[str, Any] = {}
    media = Media()
    while quick.droste_bundles_media(bundles, index, len(bundle), ctypes.byref(media)):
        data = ctypes.string_at(media.data, media.len) if media.len else b""
        bundle[media.type.decode()] = decode(media.form, data)
    metadata = quick.droste_bundles_metadata(bundles, index)
    name = quick.droste_bundles_display_id(bundles, index)
    return RichResult(bundle, json.loads(metadata) if metadata else None,
                      bool(quick.droste_bundles_is_main(bundles, index)),
                      name.decode() if name is not None else None,
                      bool(quick.droste_bundles_is_update(bundles, index)))
