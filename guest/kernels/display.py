"""What a value shows beside its text: MIME bundles as notebooks have them. Loaded when the first value needs it."""

import base64
import builtins
import importlib.machinery
import importlib.util
import json
import math
import os
import sys
import traceback
import types

HERE = os.path.dirname(__file__)
MOST_BYTES = 8 << 20  # of one representation
MOST_CELLS = 1 << 18  # of a table whose values are sent along
DATA = "application/vnd.forkd.data+json"
CHART = "application/vnd.forkd.chart+json"
INLINE = "forkd_inline"

METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_latex_", "text/latex"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
)


class Displays:
    """What one kernel displays. `send` takes a bundle as JSON text."""

    def __init__(self, send):
        self.send = send
        self.charts = None

    def display(self, *objects, raw=False, **_):
        for item in objects:
            if raw and isinstance(item, dict):
                self.publish(item)
            elif not shows_itself(item):
                bundle = self.bundle(item)
                bundle.setdefault("text/plain", text_of(item))
                self.publish(bundle)

    def publish(self, bundle):
        self.send(encode(bundle))

    def main(self, value):
        """The bundle of an eval's value as JSON text; None when its text says it all"""
        if isinstance(value, type) or shows_itself(value):
            return None
        bundle = self.bundle(value)
        return encode(bundle) if bundle else None

    def bundle(self, value):
        found = {}
        kind = type(value)
        if isinstance(value, type):
            return found
        if is_figure(value):
            found.update(self.figure(value))
            close(value)
            return found
        many = getattr(kind, "_repr_mimebundle_", None)
        if callable(many):
            given = guarded(lambda: many(value, include=None, exclude=None))
            given = given[0] if isinstance(given, tuple) and given else given
            if isinstance(given, dict):
                found.update((key, given[key]) for key in given if isinstance(key, str))
        for name, mime in METHODS:
            method = getattr(kind, name, None)
            if mime not in found and callable(method):
                shown = guarded(lambda: method(value))
                shown = shown[0] if isinstance(shown, tuple) and shown else shown
                if shown is not None:
                    found[mime] = shown
        pandas = sys.modules.get("pandas")
        if pandas is not None and isinstance(value, getattr(pandas, "DataFrame", ())) and value.size <= MOST_CELLS:
            found[DATA] = guarded(lambda: {str(name): list(column) for name, column in value.to_dict(orient="list").items()})
        return found

    # Figures

    def figure(self, figure):
        if not figure.axes and not figure.lines:
            return {}
        import io

        out = io.BytesIO()
        figure.savefig(out, format="png", bbox_inches="tight")
        found = {"image/png": out.getvalue()}
        if self.charts is None:
            self.charts = load("charts")
        chart = guarded(lambda: self.charts.chart_of(figure))
        if chart:
            found[CHART] = chart
        return found

    def show_figures(self):
        """Displays what pyplot has open, and closes it"""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or not hasattr(pyplot, "get_fignums"):
            return
        try:
            for number in pyplot.get_fignums():
                figure = pyplot.figure(number)
                bundle = self.figure(figure)
                if bundle:
                    bundle["text/plain"] = text_of(figure)
                    self.publish(bundle)
        finally:
            pyplot.close("all")

    def translate(self, code):
        """Code with lines that only notebooks know, as Python; None when it has none"""
        return load("magics").translate(code)

    # Modules that are changed when they are imported

    def find(self, name, path):
        if name == "matplotlib.pyplot":
            self.choose_backend()
            return None
        if name == INLINE:
            return importlib.util.spec_from_file_location(name, os.path.join(HERE, "inline.py"))
        if name in ("IPython", "IPython.display"):
            return self.notebook_spec(name, path)
        return None

    def choose_backend(self):
        """Figures go to the inline backend unless somebody has chosen another"""
        matplotlib = sys.modules.get("matplotlib")
        if matplotlib is None or "MPLBACKEND" in os.environ:
            return
        if not isinstance(dict.get(matplotlib.rcParams, "backend"), str):
            matplotlib.rcParams["backend"] = "module://" + INLINE

    def notebook_spec(self, name, path):
        """IPython's own modules, with a display() that leads here; without IPython, a stand-in"""
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None:
            spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, "notebook.py"))
            spec.submodule_search_locations = []  # it is a package that has nothing of its own
            return spec
        if name == "IPython":
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module.display = self.display

        spec.loader.exec_module = exec_module
        return spec


def load(name):
    """Another file of this folder, which is on nobody's path"""
    spec = importlib.util.spec_from_file_location("forkd_" + name, os.path.join(HERE, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def shows_itself(value):
    show = getattr(type(value), "_ipython_display_", None)
    if isinstance(value, type) or not callable(show):
        return False
    guarded(lambda: show(value))
    return True


def guarded(make):
    """A representation that fails is left out, and says why"""
    try:
        return make()
    except Exception:
        traceback.print_exc()
        return None


def text_of(value):
    try:
        return repr(value)
    except Exception:
        return "<%s that has no text>" % type(value).__name__


def is_figure(value):
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, getattr(module, "Figure", ()))


def close(figure):
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)


def encode(bundle):
    """JSON text: {"data": {...}}, with "omitted" for what is too large"""
    parts = []
    omitted = {}
    room = MOST_BYTES
    for mime, value in bundle.items():
        if value is None:
            continue
        text = json.dumps(plain_of(mime, value), allow_nan=False)
        if len(text) > room:
            omitted[mime] = len(text)
            continue
        room -= len(text)
        parts.append("%s: %s" % (json.dumps(mime), text))
    end = ', "omitted": %s' % json.dumps(omitted) if omitted else ""
    return '{"data": {%s}%s}' % (", ".join(parts), end)


def plain_of(mime, value):
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if mime.endswith("json"):
        return plain(value)
    return value if isinstance(value, str) else plain(value) if isinstance(value, (dict, list)) else str(value)


def plain(value):
    """Only what JSON has; numbers that are none become null"""
    kind = type(value)
    if value is None or kind is bool or kind is str or kind is int:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(value[key]) for key in value}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if value != value:
        return None  # pandas.NaT
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if kind.__module__ == "numpy":
        if kind.__name__ == "datetime64":
            return str(value.astype("datetime64[s]"))
        return plain(value.tolist())
    if isinstance(value, (int, str, float)):
        return plain(int(value) if isinstance(value, int) else str(value) if isinstance(value, str) else float(value))
    return str(value)


def set_up(send):
    """Makes the displays of a kernel"""
    displays = Displays(send)
    module = types.ModuleType("forkd_displays")
    module.displays = displays
    sys.modules[module.__name__] = module  # where inline.py and notebook.py find them
    builtins.display = displays.display
    return displays
