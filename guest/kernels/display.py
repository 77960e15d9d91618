"""Representations of a value besides its text: MIME bundles as in notebooks. Loaded when the first value needs it."""

import base64
import builtins
import functools
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
MOST_VALUES = 500_000  # of lists and objects
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
    """The displays of one kernel. `send` takes a bundle as JSON text."""

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
        """The bundle of an eval's value as JSON text; None if its text is complete"""
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
        """Displays pyplot's open figures, and closes them"""
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
        """Code with notebook commands, as Python; None if it has none"""
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
        if name == "PIL.Image":
            return changed_spec(name, path, self.show_saved_images)
        return None

    def choose_backend(self):
        """Figures go to the inline backend unless the code has chosen another"""
        matplotlib = sys.modules.get("matplotlib")
        if matplotlib is None or "MPLBACKEND" in os.environ:
            return
        if not isinstance(dict.get(matplotlib.rcParams, "backend"), str):
            matplotlib.rcParams["backend"] = "module://" + INLINE

    def notebook_spec(self, name, path):
        """IPython's own modules, with this display(); without IPython, a replacement"""
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None:
            spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, "notebook.py"))
            spec.submodule_search_locations = []  # it is a package that has nothing of its own
            return spec
        if name == "IPython":
            return None
        return changed_spec(name, path, lambda module: setattr(module, "display", self.display))

    def show_saved_images(self, module):
        """An image that code saves under a name, or shows, is displayed, because there is no screen"""
        image = module.Image
        save = image.save

        @functools.wraps(save)
        def save_and_display(value, fp, *args, **options):
            save(value, fp, *args, **options)
            # matplotlib saves its figures with this, and they are displayed at the end of the code
            caller = sys._getframe(1).f_globals.get("__name__") or ""
            if isinstance(fp, (str, os.PathLike)) and caller.partition(".")[0] != "matplotlib":
                self.display(value)

        image.save = save_and_display
        image.show = lambda value, *_, **__: self.display(value)


def changed_spec(name, path, change):
    """Finds a module, and calls `change` with it after it was loaded"""
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:
        return spec
    execute = spec.loader.exec_module

    def exec_module(module):
        execute(module)
        change(module)

    spec.loader.exec_module = exec_module
    return spec


def load(name):
    """Loads another file of this folder, which is not on sys.path"""
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
    """A representation that fails is omitted, and its error is printed"""
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
    """JSON text: {"data": {...}}, with "omitted" for representations that are too large"""
    parts = []
    omitted = {}
    room = MOST_BYTES
    values = MOST_VALUES
    for mime, value in bundle.items():
        if value is None:
            continue
        value = plain_of(mime, value)
        text = json.dumps(value, allow_nan=False)
        # The host takes time and memory for each value of a list or an object, and gives up a kernel that sends too many.
        count = 0 if isinstance(value, str) else sum(text.count(mark) for mark in ",[{")
        if len(text) > room or count > values:
            omitted[mime] = len(text)
            continue
        room -= len(text)
        values -= count
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
    """Only types of JSON; NaN and infinities become null"""
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
    """The displays of a kernel"""
    displays = Displays(send)
    module = types.ModuleType("forkd_displays")
    module.displays = displays
    sys.modules[module.__name__] = module  # where inline.py and notebook.py find them
    builtins.display = displays.display
    return displays
