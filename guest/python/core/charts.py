"""Chart data of matplotlib figures, in the shape that E2B's code interpreter returns.

A figure with one axes is a chart, one with several a superchart. The type of a chart follows from
the artists of its axes; what fits no type is `unknown` and has a title only.
"""
from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aliases import Head

POINTS_MAX = 100000     # points of a figure's charts; more are not charts but a picture
UNIT = r"\s\((.*?)\)|\[(.*?)\]"


def describe_chart(figure: Any) -> Head | None:
    """Returns the chart data of a figure; None if it shows no data, or too much."""
    axes = [one for one in figure.get_axes()]
    if not any(one.has_data() for one in axes) or sum(map(count_points, axes)) > POINTS_MAX:
        return None
    if len(axes) == 1:
        return chart_of(axes[0])
    return {"type": "superchart", "title": figure.get_suptitle(),
            "elements": [chart_of(one) for one in axes]}


def count_points(axes: Any) -> int:
    return (sum(len(line.get_xdata(orig=False)) for line in axes.lines) + len(axes.patches)
            + sum(len(found.get_offsets()) for found in axes.collections))


def chart_of(axes: Any) -> Head:
    kind = chart_type(axes)
    return {"type": kind, "title": axes.get_title() or None, **CHARTS[kind](axes)}


def class_names(artist: Any) -> set[str]:
    return {kind.__name__ for kind in type(artist).__mro__}


def chart_type(axes: Any) -> str:
    artists = [(artist, class_names(artist)) for group in (
        axes.lines, axes.patches, axes.collections, axes.images, axes.tables, axes.artists)
        for artist in group]
    if all("Line2D" in names for _, names in artists):
        return "line"
    if all(names & {"PathPatch", "Line2D"} for _, names in artists):
        return "box_and_whisker"
    artists = [(artist, names) for artist, names in artists
               if not ("Line2D" in names and is_grid_line(artist))]
    for kind, name in (("scatter", "PathCollection"), ("pie", "Wedge"), ("bar", "Rectangle")):
        if all(name in names for _, names in artists):
            return kind
    return "unknown"


def is_grid_line(line: Any) -> bool:
    """Whether a line is horizontal or vertical and has two points."""
    xs, ys = line.get_xdata(), line.get_ydata()
    return len(xs) == 2 and len(ys) == 2 and bool(xs[0] == xs[1] or ys[0] == ys[1])


# -- axes with labels, ticks and scales

def unit_of(label: str | None) -> str | None:
    found = re.search(UNIT, label) if label else None
    return (found.group(1) or found.group(2)) if found else None


def labels_of(axes: Any, swapped: bool = False) -> Head:
    x, y = axes.get_xlabel() or None, axes.get_ylabel() or None
    if swapped:
        x, y = y, x
    return {"x_label": x, "y_label": y, "x_unit": unit_of(x), "y_unit": unit_of(y)}


def is_dates(axis: Any) -> bool:
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    return type(converter).__name__ in ("_SwitchableDateConverter", "DateConverter",
                                        "ConciseDateConverter", "DatetimeConverter")


def isoformat(value: Any) -> Any:
    """Returns dates as ISO 8601 text, numpy's scalars as Python's, all other values unchanged."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if type(value).__module__ == "numpy":
        if type(value).__name__ == "datetime64":
            return str(value.astype("datetime64[s]"))
        return value.item() if hasattr(value, "item") else value.tolist()
    return value


def tick_locations(axis: Any) -> Any:
    """Returns where the ticks of an axis are.

    Drawing a visible axis gives them to its formatter. To have matplotlib find them again takes
    0.4 ms for the first axis, because drawing leaves the transforms of the figure to be recomputed.
    """
    visible = axis.get_visible() and axis.axes.axison and axis.axes.get_visible()
    drawn = axis.get_major_formatter().locs if visible else ()
    return drawn if len(drawn) else axis.get_ticklocs()


def tick_texts(axis: Any, locations: Any) -> list[str]:
    """Returns the texts of an axis's labels.

    Drawing has placed its ticks already, if they are at these locations; to have matplotlib do that
    again (get_ticklabels) takes 0.8 ms.
    """
    ticks = axis.majorTicks[:len(locations)]
    drawn = len(ticks) == len(locations) and all(
        tick.get_loc() == at for tick, at in zip(ticks, locations))
    labels = axis.get_ticklabels() if not drawn else [
        label for name in ("label1", "label2")
        for label in (getattr(tick, name) for tick in ticks) if label.get_visible()]
    return [label.get_text() for label in labels]


def axis_of(axis: Any, prefix: str, scale: str) -> Head:
    ticks = tick_locations(axis)
    labels = tick_texts(axis, ticks)
    if is_dates(axis):
        from matplotlib.dates import num2date
        ticks, scale = [num2date(tick).isoformat() for tick in ticks], "datetime"
    else:
        ticks = [isoformat(tick) for tick in ticks]
        # Categories are the positions 0, 1, ... with labels of their own.
        if scale == "linear" and all(tick == i and str(i) != label
                                     for i, (tick, label) in enumerate(zip(ticks, labels))):
            scale = "categorical"
    return {prefix + "_ticks": ticks, prefix + "_tick_labels": labels, prefix + "_scale": scale}


def plane_of(axes: Any) -> Head:
    return {**labels_of(axes), **axis_of(axes.xaxis, "x", axes.get_xscale()),
            **axis_of(axes.yaxis, "y", axes.get_yscale())}


def points_of(xs: Any, ys: Any) -> list[list[Any]]:
    return [[isoformat(x), isoformat(y)] for x, y in zip(xs, ys)]


def line_label(label: Any) -> str:
    label = str(label)
    return "Line %d" % int(label[6:]) if re.match(r"_child\d+\Z", label) else label


def line_chart(axes: Any) -> Head:
    return {**plane_of(axes), "elements": [
        {"label": line_label(line.get_label()),
         "points": points_of(line.get_xdata(), line.get_ydata())}
        for line in axes.get_lines() if not is_grid_line(line)]}


def scatter_chart(axes: Any) -> Head:
    return {**plane_of(axes), "elements": [
        {"label": str(found.get_label()), "points": points_of(*found.get_offsets().T)}
        for found in axes.collections]}


# -- bars, wedges and boxes

def group_label(label: Any) -> str:
    label = str(label)
    return "Group %d" % int(label[10:]) if re.match(r"_container\d+\Z", label) else label


def bar_chart(axes: Any) -> Head:
    elements, swapped = [], False
    for container in axes.containers:
        heights = [bar.get_height() for bar in container]
        horizontal = all(height == heights[0] for height in heights)
        axis, values = axes.xaxis, heights
        if horizontal:
            axis, values = axes.yaxis, [bar.get_width() for bar in container]
            swapped = not swapped
        labels = tick_texts(axis, tick_locations(axis))
        elements += [{"label": label, "group": group_label(container.get_label()),
                      "value": float(value)} for label, value in zip(labels, values)]
    return {**labels_of(axes, swapped), "elements": elements}


def pie_chart(axes: Any) -> Head:
    return {"elements": [{"label": str(wedge.get_label()),
                          "angle": abs(rounded(float(wedge.theta2) - float(wedge.theta1))),
                          "radius": float(wedge.r)} for wedge in axes.patches]}


def rounded(number: Any) -> float:
    """Removes what arithmetic with positions on paper adds in the last digits."""
    return float("%.9g" % float(number))


def box_of(label: str, patch: Any) -> Head:
    xs, ys = ([rounded(v) for v in column] for column in patch.get_path().vertices.T)
    return {"label": label, "at": (min(xs), max(xs)), "span": (min(ys), max(ys)), "outliers": []}


def turned(box: Head) -> Head:
    return dict(box, at=box["span"], span=box["at"])


def take_line(boxes: list[Head], xs: list[float], ys: list[float]) -> None:
    """Finds what a line is in the box that it belongs to: outliers, median or whisker."""
    for box in boxes:
        if xs and box["at"][0] <= min(xs) and max(xs) <= box["at"][1]:
            break
    else:
        return
    first, third = box["span"]
    if len(xs) == 1 or len(ys) != 2:
        box["outliers"] += ys
    elif ys[0] == ys[1] and first <= ys[0] <= third:
        box["median"] = ys[0]
    elif max(ys) == first:
        box["min"] = min(ys)
    elif min(ys) == third:
        box["max"] = max(ys)


def box_chart(axes: Any) -> Head:
    axis = axes.xaxis
    labels = tick_texts(axis, tick_locations(axis))
    boxes = [box_of(label, patch) for label, patch in zip(labels, axes.patches)]
    heights = [rounded(box["span"][1] - box["span"][0]) for box in boxes]
    horizontal = all(height == heights[0] for height in heights)
    if horizontal:
        labels = tick_texts(axes.yaxis, tick_locations(axes.yaxis))
        boxes = [turned(dict(box, label=label)) for box, label in zip(boxes, labels)]
    for line in axes.lines:
        xs, ys = ([rounded(v) for v in data] for data in (line.get_xdata(), line.get_ydata()))
        take_line(boxes, *((ys, xs) if horizontal else (xs, ys)))
    return {**labels_of(axes, horizontal), "elements": [
        {"label": box["label"], "min": box.get("min", box["span"][0]),
         "first_quartile": box["span"][0], "median": box.get("median"),
         "third_quartile": box["span"][1], "max": box.get("max", box["span"][1]),
         "outliers": box["outliers"]} for box in boxes]}


CHARTS = {"line": line_chart, "scatter": scatter_chart, "bar": bar_chart, "pie": pie_chart,
          "box_and_whisker": box_chart, "unknown": lambda axes: {"elements": []}}
