"""A matplotlib backend that displays figures as results."""

from forkd_displays import displays
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

FigureCanvas = FigureCanvasAgg
FigureManager = FigureManagerBase


def show(*_, **__):
    displays.show_figures()
