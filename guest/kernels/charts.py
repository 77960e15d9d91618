"""The data of a matplotlib figure."""

import math
import re

from matplotlib import dates
from matplotlib.collections import PathCollection
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle, Wedge
from matplotlib.text import Text

MOST_POINTS = 1 << 18
UNIT = re.compile(r"\s\((.*?)\)|\[(.*?)\]")


def chart_of(figure):
    """None for a figure without data"""
    axes = [ax for ax in figure.get_axes() if ax.has_data()]
    if not axes:
        return None
    if len(axes) == 1:
        return chart_of_axes(axes[0])
    heading = getattr(figure, "_suptitle", None)
    title = heading.get_text() if heading is not None else None
    return {"type": "superchart", "title": title or None, "elements": [chart_of_axes(ax) for ax in axes]}


def chart_of_axes(ax):
    kind = kind_of(ax)
    chart = {"type": kind, "title": ax.get_title() or None}
    if kind in ("unknown", "pie"):
        chart["elements"] = slices(ax) if kind == "pie" else []
        return chart
    for axis in "xy":
        label = getattr(ax, "get_%slabel" % axis)() or None
        unit = UNIT.search(label) if label else None
        chart[axis + "_label"] = label
        chart[axis + "_unit"] = (unit.group(1) or unit.group(2)) if unit else None
    if kind == "bar":
        chart["elements"] = bars(ax, chart)
    elif kind == "box_and_whisker":
        chart["elements"] = boxes(ax, chart)
    else:
        scales(ax, chart)
        chart["elements"] = lines(ax) if kind == "line" else clouds(ax)
    return chart


def kind_of(ax):
    artists = [artist for artist in ax.get_children() if artist in drawn(ax) and not isinstance(artist, Text)]

    def consists_of(*kinds):
        return all(isinstance(artist, kinds) for artist in artists)

    if consists_of(Line2D):
        return "line"
    if consists_of(PathPatch, Line2D):
        return "box_and_whisker"
    artists = [artist for artist in artists if not (isinstance(artist, Line2D) and is_straight(artist))]
    if consists_of(PathCollection):
        return "scatter"
    if consists_of(Wedge):
        return "pie"
    if consists_of(Rectangle):
        return "bar"
    return "unknown"


def drawn(ax):
    """The artists drawn into it, without its own frame and axes"""
    return {*ax.lines, *ax.patches, *ax.collections, *ax.images, *ax.tables, *ax.artists}


def is_straight(line):
    x, y = line.get_xdata(), line.get_ydata()
    return len(x) == 2 and len(y) == 2 and (x[0] == x[1] or y[0] == y[1])


def points(xs, ys):
    if len(xs) > MOST_POINTS:
        return []
    return [[x, y] for x, y in zip(list(xs), list(ys))]


def lines(ax):
    found = []
    for line in ax.get_lines():
        if is_straight(line):
            continue
        label = str(line.get_label())
        if label.startswith("_child"):
            label = "Line " + label[6:]
        found.append({"label": label, "points": points(line.get_xdata(), line.get_ydata())})
    return found


def clouds(ax):
    found = []
    for cloud in ax.collections:
        places = cloud.get_offsets()
        found.append({"label": str(cloud.get_label()), "points": points(places[:, 0], places[:, 1])})
    return found


def scales(ax, chart):
    for axis in "xy":
        labels = [label.get_text() for label in getattr(ax, "get_%sticklabels" % axis)()]
        ticks = list(getattr(ax, "get_%sticks" % axis)())
        own = getattr(ax, axis + "axis")
        converter = own.get_converter() if hasattr(own, "get_converter") else own.converter
        is_date = isinstance(converter, dates._SwitchableDateConverter)
        scale = "datetime" if is_date else getattr(ax, "get_%sscale" % axis)()
        if scale == "linear" and labels and all(tick == at and labels[at] != str(at) for at, tick in enumerate(ticks[: len(labels)])):
            scale = "categorical"
        chart[axis + "_ticks"] = [dates.num2date(tick).isoformat() if is_date else float(tick) for tick in ticks]
        chart[axis + "_tick_labels"] = labels
        chart[axis + "_scale"] = scale


def turn(chart):
    for name in ("label", "unit"):
        chart["x_" + name], chart["y_" + name] = chart["y_" + name], chart["x_" + name]


def bars(ax, chart):
    found = []
    for container in ax.containers:
        group = str(container.get_label())
        if group.startswith("_container"):
            group = "Group " + group[10:]
        lies = getattr(container, "orientation", None) == "horizontal"
        if lies and not found:
            turn(chart)
        labels = [label.get_text() for label in (ax.get_yticklabels() if lies else ax.get_xticklabels())]
        ticks = list(ax.get_yticks() if lies else ax.get_xticks())
        named = {round(float(tick), 6): label for tick, label in zip(ticks, labels) if label}
        for at, bar in enumerate(container):
            middle = bar.get_y() + bar.get_height() / 2 if lies else bar.get_x() + bar.get_width() / 2
            label = named.get(round(float(middle), 6))
            if label is None:
                label = labels[at] if len(labels) == len(container) else "%g" % middle
            value = bar.get_width() if lies else bar.get_height()
            found.append({"label": label, "group": group, "value": value})
    return found


def slices(ax):
    return [
        {"label": str(wedge.get_label()), "angle": angle_of(wedge), "radius": wedge.r}
        for wedge in ax.patches
        if isinstance(wedge, Wedge)
    ]


def angle_of(wedge):
    """matplotlib computes with 24 bits: more digits than E2B's charts have are noise, such as 36.0000038 for a tenth"""
    angle = abs(float(wedge.theta2) - float(wedge.theta1))
    digits = 8 - math.floor(math.log10(angle)) if angle > 0 else 1
    return float("%.*g" % (max(1, digits), angle))


def rounded(number):
    return float("%.9g" % number)


def is_median_across(line, box):
    """In a horizontal box the median is a vertical line as high as the box"""
    xs, ys = [rounded(x) for x in line.get_xdata()], [rounded(y) for y in line.get_ydata()]
    (left, right), height = box["across"], box["along"]
    return len(xs) == 2 and xs[0] == xs[1] and left <= xs[0] <= right and (min(ys), max(ys)) == height


def boxes(ax, chart):
    found = []
    for box in ax.patches:
        corners = box.get_path().vertices
        xs, ys = [rounded(x) for x in corners[:, 0]], [rounded(y) for y in corners[:, 1]]
        found.append({"across": (min(xs), max(xs)), "along": (min(ys), max(ys)), "outliers": []})
    lies = any(is_median_across(line, box) for line in ax.lines for box in found)
    if lies:
        turn(chart)
        for box in found:
            box["across"], box["along"] = box["along"], box["across"]
    labels = [label.get_text() for label in (ax.get_yticklabels() if lies else ax.get_xticklabels())]
    for line in ax.lines:
        across, along = [rounded(x) for x in line.get_xdata()], [rounded(y) for y in line.get_ydata()]
        if lies:
            across, along = along, across
        owner = next((box for box in found if across and box["across"][0] <= min(across) and max(across) <= box["across"][1]), None)
        if owner is None:
            continue
        low, high = owner["along"]
        if line.get_linestyle() == "None" or len(along) == 1:
            owner["outliers"].extend(along)
        elif len(along) == 2 and along[0] == along[1] and low <= along[0] <= high:
            owner["median"] = along[0]
        elif len(along) == 2 and max(along) == low:
            owner["min"] = min(along)
        elif len(along) == 2 and min(along) == high:
            owner["max"] = max(along)
    return [
        {
            "label": labels[at] if at < len(labels) else "",
            "min": box.get("min", box["along"][0]),
            "first_quartile": box["along"][0],
            "median": box.get("median"),
            "third_quartile": box["along"][1],
            "max": box.get("max", box["along"][1]),
            "outliers": box["outliers"],
        }
        for at, box in enumerate(found)
    ]
