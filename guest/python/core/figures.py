"""Forms of values of well-known libraries: images and chart data of figures, data of frames.

Nothing here imports a library; a value of one shows that it is loaded. Chart and frame data have
the shape that E2B's code interpreter returns, under its types `e2b/chart` and `e2b/data`.
"""
from __future__ import annotations

import sys
from typing import Any, Callable

from .charts import describe_chart, isoformat

CELLS_MAX = 1000000     # values of a frame that are sent as data


def figure_png(figure: Any) -> bytes | None:
    """Draws a matplotlib figure as IPython does; returns None for one without content."""
    if not figure.axes and not figure.lines:
        return None
    import io
    out = io.BytesIO()
    figure.canvas.print_figure(out, format="png", facecolor=figure.get_facecolor(),
                               edgecolor=figure.get_edgecolor(), dpi=figure.dpi,
                               bbox_inches="tight")
    return out.getvalue()


def figures_wait() -> bool:
    """Whether pyplot has figures that are shown at the end of the cell."""
    helpers: Any = sys.modules.get("matplotlib._pylab_helpers")
    return helpers is not None and bool(helpers.Gcf.figs)


def pandas_data(frame: Any) -> dict[str, Any] | None:
    """Returns the columns of a pandas DataFrame as lists, by name."""
    if frame.size > CELLS_MAX:
        return None
    return {str(name): [isoformat(value) for value in frame.iloc[:, i].tolist()]
            for i, name in enumerate(frame.columns)}


def polars_data(frame: Any) -> dict[str, Any] | None:
    if frame.width * frame.height > CELLS_MAX:
        return None
    return {str(name): [isoformat(value) for value in values]
            for name, values in frame.to_dict(as_series=False).items()}


# By the library and the name of the class: the media types that Droste makes itself.
FORMATS: dict[tuple[str, str], tuple[tuple[str, Callable[[Any], Any]], ...]] = {
    ("matplotlib", "Figure"): (("image/png", figure_png), ("e2b/chart", describe_chart)),
    ("pandas", "DataFrame"): (("e2b/data", pandas_data),),
    ("polars", "DataFrame"): (("e2b/data", polars_data),),
}
