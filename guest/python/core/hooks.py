"""Makes libraries show their results through display(), from the moment they are imported.

A finder at the front of `sys.meta_path` sees the names of modules that are imported and adjusts
those in ADJUST after they have run: matplotlib gets a backend that shows figures, and IPython and
plotly this module's display(). Cells that import none of them pay one look-up per import.
"""
from __future__ import annotations

import os
import sys
from typing import Any, Callable

from .display import can_send, clear_output, complain, display, update_display
from .state import state

BACKEND = "droste_figures"      # the name under which matplotlib imports the backend
MODULE_SPEC: Any = type(sys.__spec__)


def show_figures(*args: Any, **words: Any) -> None:
    """Shows all open figures, in the order of their numbers, and closes them."""
    import matplotlib.pyplot
    from matplotlib._pylab_helpers import Gcf
    try:
        for manager in Gcf.get_all_fig_managers():
            display(manager.canvas.figure)
    finally:
        if Gcf.get_all_fig_managers():
            matplotlib.pyplot.close("all")


def flush_figures() -> None:
    """Shows the figures that are still open at the end of a cell."""
    if BACKEND not in sys.modules or not can_send():
        return
    import matplotlib
    from matplotlib._pylab_helpers import Gcf
    selected = dict.get(matplotlib.rcParams, "backend") == "module://" + BACKEND
    if selected and matplotlib.is_interactive() and Gcf.figs:
        try:
            show_figures()
        except Exception:
            complain("showing a figure failed")


def fill_linecache(module: Any) -> None:
    """Gives it the texts of earlier cells, for tracebacks and inspect."""
    module.cache.update(state.sources)
    state.sources = {}


def make_backend(module: Any) -> None:
    """Fills the backend's module: Agg's canvas, and our show()."""
    import matplotlib
    from matplotlib.backends import backend_agg
    for name in ("FigureCanvas", "FigureManager", "new_figure_manager",
                 "new_figure_manager_given_figure"):
        if hasattr(backend_agg, name):
            setattr(module, name, getattr(backend_agg, name))
    module.show = show_figures
    matplotlib.interactive(True)        # as in notebooks; plt.ioff() ends showing at a cell's end


def adjust_matplotlib(module: Any) -> None:
    """Selects our backend unless the environment or a matplotlibrc selects another."""
    unset = getattr(sys.modules.get("matplotlib.rcsetup"), "_auto_backend_sentinel", None)
    if "MPLBACKEND" not in os.environ and dict.get(module.rcParams, "backend") is unset:
        module.rcParams["backend"] = "module://" + BACKEND


def publish(data: Any, metadata: Any = None, *, transient: Any = None, **words: Any) -> None:
    display(data, raw=True, metadata=metadata, transient=transient,
            update=bool(words.get("update")))


def adjust_ipython(module: Any) -> None:
    module.display = display
    module.update_display = update_display
    module.clear_output = clear_output
    module.publish_display_data = publish


def adjust_plotly(module: Any) -> None:
    """Shows figures as their data, which needs neither IPython nor a browser."""
    if "PLOTLY_RENDERER" in os.environ:
        return
    original = module.show

    def show(figure: Any, renderer: Any = None, *args: Any, **words: Any) -> Any:
        if renderer is not None or not hasattr(figure, "_repr_mimebundle_"):
            return original(figure, renderer, *args, **words)
        return display(figure._repr_mimebundle_(), raw=True)

    module.renderers.default = "plotly_mimetype"
    module.show = show


ADJUST: dict[str, Callable[[Any], None]] = {
    "linecache": fill_linecache,
    "matplotlib": adjust_matplotlib,
    "IPython.core.display_functions": adjust_ipython,
    "plotly.io._renderers": adjust_plotly,
}


class BackendLoader:
    """Loads our backend's module."""

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        make_backend(module)


class DisplayFinder:
    """Finds our backend, and adjusts the modules in ADJUST after they have run."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name == BACKEND:
            return MODULE_SPEC(name, BackendLoader())
        if name not in ADJUST:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                return adjusting(spec)
        return None


def adjusting(spec: Any) -> Any:
    """Returns the spec with a loader that adjusts its module afterwards."""
    run = getattr(spec.loader, "exec_module", None)

    def exec_module(module: Any) -> None:
        run(module)
        try:
            ADJUST[spec.name](module)
        except Exception:
            complain("%s shows no results here" % spec.name)

    if run is not None:
        try:
            spec.loader.exec_module = exec_module
        except AttributeError:
            pass        # a loader without attributes of its own: the module stays as it is
    return spec


def hook_libraries() -> None:
    """Adjusts preloaded modules, and those that will be imported."""
    sys.meta_path.insert(0, DisplayFinder())
    for name, adjust in ADJUST.items():
        if name in sys.modules:
            adjust(sys.modules[name])
