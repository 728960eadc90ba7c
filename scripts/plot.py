#!/usr/bin/env python3
"""Draws a training log, or runs that were measured, with matplotlib.

plot.py LOG [OUT.png]: the curves of a log as a PNG: loss above, the test nets' other outputs (accuracy) below.
plot.py RUN ... [--out=FOLDER]: one or many runs side by side: curves.png, speed.png, shares.png, staleness.png, and
  losses.png where a process was lost. A run is a folder that
  `train --metrics` or `simulate --out` wrote, one of its files, or a folder of ESync's logs; name=RUN gives it a name."""
import argparse
import math
import sys
from pathlib import Path
from machines import main_of

from metrics import MetricsError, read_named
from parse_log import columns, read_log
from plot_runs import LINE_COLOURS, draw_runs, logarithmic, pyplot, save, use_python_with_matplotlib

MOST_MARKED = 60          # points of a curve that are marked one by one
SMOOTHED_FROM = 30        # points of the training loss from which on a running mean stands in front of it


def pieces(points):
    """The curve without gaps: a value that is not finite ends a piece, and so does a run resumed from an earlier iteration."""
    out = [[]]
    for x, y in points:
        if not math.isfinite(y) or (out[-1] and x < out[-1][-1][0]):
            out.append([])
        if math.isfinite(y):
            out[-1].append((x, y))
    return [piece for piece in out if piece]


def smooth(points):
    """A running mean over a fiftieth of the points to either side."""
    reach, out = max(1, len(points) // 50), []
    for i, (x, _) in enumerate(points):
        near = [y for _, y in points[max(0, i - reach):i + reach + 1] if math.isfinite(y)]
        if near:
            out.append((x, sum(near) / len(near)))
    return out


def worth_showing(panel):
    """The values that an axis should reach: without the steep start of a curve that then moves little."""
    values = [y for _, y in finite(panel)]
    settled = [y for _, points in panel for _, y in finite([('', points)])[max(1, len(points) // 10):]]
    if settled and max(values) - min(settled) < 0.3 * (max(values) - min(values)):
        return [y for y in values if y >= min(settled)]
    return values


def series_of(log):
    """Two lists of (name, points): losses, and whatever else the test nets put out."""
    losses, others = [('training loss', log.losses)], []
    for net, rows in sorted(log.test.items()):
        prefix = 'test ' if len(log.test) == 1 else f'test #{net} '
        for name in columns(rows)[3:]:
            points = [(row['NumIters'], row[name]) for row in rows if name in row]
            (losses if 'loss' in name else others).append((prefix + name, points))
    return [s for s in losses if s[1]], [s for s in others if s[1]]


def finite(series):
    return [(x, y) for _, points in series for x, y in points if math.isfinite(y)]


def draw_curve(axes, points, colour, label='', **style):
    for number, piece in enumerate(pieces(points)):
        axes.plot(*zip(*piece), color=colour, label=label if number == 0 else '_', **style)


def draw_panel(axes, panel, colours, losses):
    for (name, points), colour in zip(panel, colours * len(panel)):
        label = f'{name} {points[-1][1]:.4g}'
        if name == 'training loss' and len(points) > SMOOTHED_FROM:
            draw_curve(axes, points, colour, linewidth=1, alpha=0.35)
            draw_curve(axes, smooth(points), colour, label, linewidth=1.8)
        else:
            marks = {'marker': 'o', 'markersize': 3.5} if len(points) <= MOST_MARKED else {}
            draw_curve(axes, points, colour, label, linewidth=1.8, **marks)
    values = [y for _, y in finite(panel)] if losses else worth_showing(panel)
    if losses and min(values) > 0 and max(values) > 20 * min(values):
        logarithmic(axes)
    elif not losses:
        pad = 0.06 * (max(values) - min(values)) or 0.5 * abs(max(values)) or 0.5
        axes.set_ylim(min(values) - pad, max(values) + pad)
    axes.legend(loc='lower right', bbox_to_anchor=(1, 1), ncol=3, fontsize=9)


def draw(log, title):
    """A figure with a panel of losses and a panel of the other outputs, as far as the log has them."""
    panels = [panel for panel in series_of(log) if finite(panel)]
    losses = finite(series_of(log)[0])
    figure, grid = pyplot().subplots(len(panels), 1, figsize=(10, 0.8 + 3.3 * len(panels)), sharex=True, squeeze=False)
    for index, (axes, panel) in enumerate(zip(grid[:, 0], panels)):
        of_losses = bool(losses) and index == 0
        draw_panel(axes, panel, LINE_COLOURS if of_losses else LINE_COLOURS[1:] + LINE_COLOURS[:1], of_losses)
    grid[-1, 0].set_xlabel('iteration')
    figure.suptitle(title)
    figure.tight_layout()
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('inputs', nargs='+', metavar='LOG|RUN', help='what `train` wrote to stderr (- reads the standard input), or runs')
    parser.add_argument('--title', help='the name of the net by default')
    parser.add_argument('--out', default='', help='the picture of a log; the folder for those of runs, by default that of the only one, or .')
    parser.add_argument('--baseline', help='of runs: an accuracy, or a run whose last one is meant: a dotted line beside the curves of accuracy')
    parser.add_argument('--by', choices=('samples', 'iterations'), default='samples', help='of runs: what curves are drawn over, beside time')
    arguments = parser.parse_args()
    use_python_with_matplotlib()
    if arguments.baseline and not is_run(arguments.inputs[0]):
        parser.error('--baseline is for runs, and this is a log')
    if is_run(arguments.inputs[0]):
        draw_measured(arguments)
    elif len(arguments.inputs) > 2:
        parser.error(f'a log and its picture are two words, and these are {len(arguments.inputs)}; runs are folders or .jsonl files')
    else:
        draw_log(arguments)


def is_run(word):
    return any(Path(path).is_dir() or path.endswith('.jsonl') for path in (word, word.partition('=')[2]) if path)


def accuracy_of(baseline):
    """A number, or that with which a run ended."""
    try:
        accuracy = float(baseline)
    except ValueError:
        accuracy = read_named(baseline).final_accuracy()
        if accuracy is None:
            raise MetricsError(f'--baseline={baseline}: no test of this run says an accuracy') from None
    if not math.isfinite(accuracy):
        raise MetricsError(f'--baseline={baseline} is no accuracy')
    return accuracy


def draw_measured(arguments):
    try:
        runs = [read_named(word) for word in arguments.inputs]
        baseline = accuracy_of(arguments.baseline) if arguments.baseline else None
    except MetricsError as error:
        sys.exit(str(error))
    only = runs[0].path if len(runs) == 1 else Path('.')
    out = Path(arguments.out) if arguments.out else only if only.is_dir() else only.parent
    for path in draw_runs(runs, out, title=arguments.title or runs[0].name, by=arguments.by, baseline=baseline):
        print(f'{path.stem}: {path}')
    for run in runs:
        if run.useful:
            print(f'{run.label}: {run.useful_words()}')


def draw_log(arguments):
    name = arguments.inputs[0]
    log = read_log(name)
    if not finite(sum(series_of(log), [])):
        sys.exit(f'{name}: no iteration with a loss or a test output; is this a training log?')
    out = arguments.inputs[1] if len(arguments.inputs) > 1 else arguments.out
    out = out or ('curve.png' if name == '-' else str(Path(name).with_suffix('.png')))
    figure = draw(log, arguments.title or log.name or Path(name).stem)
    endings = figure.canvas.get_supported_filetypes()
    if Path(out).suffix[1:].lower() not in endings:
        sys.exit(f'{out}: the name of a picture ends with .png, or another of {", ".join(sorted(endings))}')
    save(figure, out)
    print(f'curves: {out}')


if __name__ == '__main__':
    main_of(main)
