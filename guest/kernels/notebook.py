"""Replaces IPython and IPython.display if they are not installed, so that code for notebooks runs."""

import base64

from forkd_displays import displays

__all__ = ["HTML", "JSON", "SVG", "Image", "Javascript", "Latex", "Markdown", "Pretty", "clear_output", "display", "get_ipython"]

display = displays.display
version_info = (8, 24, 0)  # libraries read this first to detect a notebook
__version__ = "8.24.0"


def get_ipython():
    return None


def clear_output(wait=False):
    """There is no screen to clear"""


class Shown:
    mime = "text/plain"

    def __init__(self, data=None, url=None, filename=None, **_):
        if url is not None:
            raise ValueError("cannot show %s: only data and files can be shown" % url)
        if filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
            if not self.mime.startswith("image/") or self.mime.endswith("xml"):
                data = data.decode()
        self.data = data

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: self.data}


class Pretty(Shown):
    def __repr__(self):
        return str(self.data)


class HTML(Shown):
    mime = "text/html"


class Markdown(Shown):
    mime = "text/markdown"


class Latex(Shown):
    mime = "text/latex"


class SVG(Shown):
    mime = "image/svg+xml"


class JSON(Shown):
    mime = "application/json"


class Javascript(Shown):
    mime = "application/javascript"


class Image(Shown):
    mime = "image/png"

    def __init__(self, data=None, url=None, filename=None, format=None, **_):
        if isinstance(data, str):
            data, filename = (None, data) if filename is None and len(data) < 4096 else (base64.b64decode(data), filename)
        super().__init__(data, url, filename)
        if bytes(self.data[:3]) == b"\xff\xd8\xff" or format in ("jpg", "jpeg"):
            self.mime = "image/jpeg"
