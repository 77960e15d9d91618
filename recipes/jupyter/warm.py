# Runs in the kernel before it is frozen: every fork continues after the last line. Replace it by your own code.
import numpy

x = numpy.linspace(-1, 1, 10_000)
y = 3 * x**2 - 2 * x + 1
model = numpy.polyfit(x, y, 2)
