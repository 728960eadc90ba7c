"""Figures, where matplotlib is installed. Without it these functions do nothing."""
import numpy as np

try:
    from matplotlib import pyplot
except ImportError:
    pyplot = None


def images(arrays, title='', columns=10):
    """Shows arrays of height x width, or height x width x 3, side by side, in `columns` columns."""
    if pyplot is None:
        return
    arrays = list(arrays)
    rows = -(-len(arrays) // columns)
    columns = min(columns, len(arrays))
    figure, axes = pyplot.subplots(rows, columns, figsize=(columns * 0.8, rows * 0.8 + 0.4), dpi=60, squeeze=False)
    for axis in axes.flat:
        axis.axis('off')
    for axis, array in zip(axes.flat, arrays):
        axis.imshow(array, cmap='gray' if np.ndim(array) == 2 else None)
    figure.suptitle(title, fontsize=10)
    pyplot.show()


def curves(x_label, **lines):
    """Shows lines by name, each a pair of the x and the y values."""
    if pyplot is None:
        return
    figure, axis = pyplot.subplots(figsize=(6, 3), dpi=60)
    for name, (x, y) in lines.items():
        axis.plot(x, y, label=name.replace('_', ' '))
    axis.set_xlabel(x_label)
    axis.legend()
    pyplot.show()
