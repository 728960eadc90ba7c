"""Draws the pictures of runs' metrics (docs/reference/metrics.md) for plot.py, one run or many side by side, with matplotlib."""
import importlib.util
import itertools
import os
import sys
from pathlib import Path

from metrics import PARTS, mean_of

# Colours that stay apart for those who see few of them (Okabe and Ito; the last ones Tol's), fixed by the scheme's first word.
COLOURS = {'bsp': '#0072B2', 'ssp': '#009E73', 'async': '#D55E00', 'elastic': '#CC79A7', 'local_steps': '#E69F00', 'esync': '#56B4E9',
           'grouped': '#B0A000', 'sync_backup': '#000000', 'drift_barrier': '#7F7F7F', 'weed_out': '#882255', 'dc_asgd': '#332288', 'local': '#333333'}
LINE_COLOURS = ['#1F61AF', '#D65A18', '#2C914C', '#9640A0', '#BE283C', '#148C96', '#826E1E', '#5A5A5A']   # of a log's curves
OTHERS = ('#117733', '#AA4499', '#999933', '#661100', '#6699CC', '#44AA99')
LINES = ('-', '--', ':', '-.')
# A scheme has a mark and a hatch of its own beside its colour, so that twelve can be told apart; others take what is left.
MARKS = {'bsp': 'o', 'ssp': 's', 'async': '^', 'elastic': 'D', 'local_steps': 'v', 'esync': 'P', 'grouped': 'X', 'sync_backup': '*', 'drift_barrier': '<',
         'weed_out': '>', 'dc_asgd': 'h'}
HATCHES = {'bsp': '', 'ssp': '///', 'async': '...', 'elastic': 'xx', 'local_steps': '|||', 'esync': '---', 'grouped': '++', 'sync_backup': '\\\\\\',
           'drift_barrier': 'oo', 'weed_out': '//', 'dc_asgd': 'OO'}
OTHER_MARKS, OTHER_HATCHES = ('d', 'p', 'H', '8'), ('\\\\', '||', '--', '..')
# Paler than the schemes', and told apart by lightness alone.
PART_COLOURS = {'compute': '#3F4E5C', 'data_wait': '#FFE680', 'row_wait': '#F2A08F', 'update': '#9CC3DE', 'other': '#DDDDDD'}
PART_NAMES = {'compute': 'compute', 'data_wait': 'wait for data', 'row_wait': 'wait for rows or to start', 'update': 'update or hand over',
              'other': 'tests, snapshots'}
MEANWHILE = 'sending meanwhile'
MOST_BARS = 16            # of workers in a panel
MOST_CLASSES = 12         # of staleness
MOST_COUNTED = 63         # stands for itself and all above in the metrics


def use_python_with_matplotlib(system='/usr/bin/python3'):
    """Debian's matplotlib belongs to Debian's Python: goes on there if this is another, without it."""
    if importlib.util.find_spec('matplotlib') or os.path.realpath(sys.executable) == os.path.realpath(system) or not os.path.exists(system):
        return
    if os.environ.get('SHOAL_PLOT_PYTHON') != system:
        os.execve(system, [system, *sys.argv], {**os.environ, 'SHOAL_PLOT_PYTHON': system})


def pyplot():
    try:
        import matplotlib
    except ImportError:
        sys.exit('plot.py draws with matplotlib, which is missing here: install it with scripts/install_packages.sh, or apt-get install '
                 f'python3-matplotlib (Debian\'s belongs to /usr/bin/python3; this is {sys.executable}).')
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    plt.rcParams.update({'font.size': 10, 'axes.spines.top': False, 'axes.spines.right': False, 'axes.grid': True, 'grid.color': '#E4E4E4',
                         'axes.axisbelow': True, 'legend.frameon': False, 'figure.dpi': 100, 'hatch.linewidth': 0.6,
                         'svg.hashsalt': 'shoal'})
    return plt


class Style:
    """What tells a run from the others, the same in every picture: the scheme's colour, mark and hatch, and for a second of it another line."""

    def __init__(self, runs):
        self.of, families = {}, {}
        spare = zip(OTHERS * 4, itertools.cycle(OTHER_MARKS), itertools.cycle(OTHER_HATCHES))
        for run in runs:
            family = 'bsp' if run.scheme == 'ssp 0' else (run.scheme or run.label).split(' ')[0].lower()   # the same, and drawn so
            if family not in families:
                known = (COLOURS[family], MARKS.get(family, 'o'), HATCHES.get(family, '')) if family in COLOURS else next(spare)
                families[family] = [*known, 0]
            *looks, count = families[family]
            families[family][3] += 1
            self.of[id(run)] = (*looks, count % 4)

    def line(self, run):
        colour, _, _, variant = self.of[id(run)]
        return {'color': colour, 'linestyle': LINES[variant], 'linewidth': 1.6}

    def marked(self, run, points):
        """About ten marks a line, at other places than its neighbours'."""
        mark, each = self.of[id(run)][1], max(1, points // 10)
        return {**self.line(run), 'marker': mark, 'markersize': 5, 'markevery': (list(self.of).index(id(run)) % each, each)}

    def bar(self, run):
        colour, _, hatch, variant = self.of[id(run)]
        return {'color': colour, 'hatch': hatch + '/' * variant, 'edgecolor': 'white', 'linewidth': 0}


def time_unit(runs):
    longest = max(run.seconds() for run in runs)
    words = 'virtual ' if all(run.simulated for run in runs) else ''
    return (60.0, f'{words}minutes') if longest > 600 else (1.0, f'{words}seconds')


def scaled(values, unit):
    """A divisor and its prefix for axes of large numbers."""
    largest = max([abs(v) for v in values] or [0])
    return next(((size, letter + unit) for size, letter in ((1e9, 'G'), (1e6, 'M'), (1e3, 'k')) if largest >= size), (1.0, unit))


# ---- curves ----

def draw_curve(axes, runs, style, points_of, x_of, words):
    drawn, most = False, max(len(points_of(run)) for run in runs)
    for run in runs:
        points = points_of(run)
        if not points:
            continue
        drawn = True
        axes.plot([x_of(run, line) for line, _ in points], [value for _, value in points], label=run.label, **style.marked(run, most))
    axes.set_xlabel(words[0])
    axes.set_ylabel(words[1])
    if not drawn:
        axes.text(0.5, 0.5, f'no {words[1]} in these metrics', transform=axes.transAxes, ha='center', color='#777777')
    return drawn


def logarithmic(axes):
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
    axes.set_yscale('log')
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f'{value:g}'))
    axes.yaxis.set_minor_formatter(NullFormatter())


def loss_axis(axes, runs, points_of):
    """Logarithmic where a loss falls far."""
    values = [value for run in runs for _, value in points_of(run)]
    if values and min(values) > 0 and max(values) > 20 * min(values):
        logarithmic(axes)


def losses_of(runs):
    """Displays if all runs have them, else tests."""
    if all(run.losses() for run in runs) or not any(run.test_losses() for run in runs):
        return (lambda run: run.losses()), 'training loss'
    return (lambda run: run.test_losses()), 'test loss'


def abscissae(runs, by):
    per, unit = time_unit(runs)
    total = max([run.samples[-1] if run.samples else 0 for run in runs] + [0])
    if by == 'iterations' or not total:
        second = ((lambda run, line: line['clock']), 'iterations of the chief')
    else:
        size, words = scaled([total], '')
        prefix = {'': '', 'k': 'thousand ', 'M': 'million ', 'G': 'billion '}[words]
        second = ((lambda run, line: run.samples_by(line['time']) / size), f'{prefix}samples of all workers')
    return ((lambda run, line: line['time'] / per), unit), second


def accuracy_floor(axes, runs):
    """Leaves out a steep start that would press the rest into the uppermost edge."""
    finals = [value for run in runs for _, value in run.accuracies()]
    settled = [value for run in runs for _, value in run.accuracies()[len(run.accuracies()) // 3:]]
    if settled and min(settled) - min(finals) > 0.5 * (max(finals) - min(finals)):
        low, high = min(settled), max(finals)
        axes.set_ylim(low - 0.15 * (high - low or 0.1), high + 0.06 * (high - low or 0.1))


def finish(figure, axes, title=''):
    """A line for the title, one or two for a legend of all that is drawn, the panels beneath."""
    handles = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    labels, (width, height) = sorted(handles, key=lambda label: label == MEANWHILE), figure.get_size_inches()
    columns = max(1, int(width / (0.75 + 0.085 * max([len(label) for label in labels] + [6]))))
    rows = -(-len(labels) // columns)
    columns = -(-len(labels) // max(1, rows))
    used = 0.1
    if title:
        figure.text(0.5, 1 - used / height, title, ha='center', va='top', fontsize=12)
        used += 0.27
    if labels:
        figure.legend([handles[label] for label in labels], labels, loc='upper center', ncol=min(columns, len(labels)), handlelength=3,
                      bbox_to_anchor=(0.5, 1 - (used - 0.08) / height))
        used += 0.24 * rows
    figure.tight_layout(rect=(0, 0, 1, 1 - used / height))


def draw_baseline(axes, accuracy):
    """A dotted line at what a run without others reaches; the axis shows it."""
    low, high = axes.get_ylim()
    pad = 0.04 * (high - low)
    axes.set_ylim(min(low, accuracy - pad), max(high, accuracy + pad))
    axes.axhline(accuracy, color='black', linestyle=':', linewidth=1.2, label=f'baseline {accuracy:.4g}')


def curves(plt, runs, style, by='samples', title='', baseline=None):
    figure, grid = plt.subplots(2, 2, figsize=(11, 7.6), sharex='col')
    points, name = losses_of(runs)
    accuracy = next((run.accuracy_name() for run in runs if run.accuracy_name()), 'accuracy')
    for column, (x_of, words) in enumerate(abscissae(runs, by)):
        draw_curve(grid[0][column], runs, style, points, x_of, ('', name if column == 0 else ''))
        draw_curve(grid[1][column], runs, style, lambda run: run.accuracies(), x_of, (words, f'test {accuracy}' if column == 0 else ''))
        loss_axis(grid[0][column], runs, points)
        accuracy_floor(grid[1][column], runs)
        if baseline is not None:
            draw_baseline(grid[1][column], baseline)
    mark_faults(grid[:, 0], runs, style)
    finish(figure, grid.flat, title)
    return figure


# ---- bars ----

def bars(axes, runs, style, values, words, form):
    values = [value or 0 for value in values]
    size, unit = scaled(values, words[1]) if words[1] else (1, '')
    places = range(len(runs))
    for place, run, value in zip(places, runs, values):
        axes.barh(place, value / size, **style.bar(run))
        axes.text(value / size, place, ' ' + form.format(value / size), va='center', fontsize=9)
    axes.set_yticks(list(places), [run.label for run in runs])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * max([v / size for v in values] + [1e-9]))
    axes.set_xlabel(f'{words[0]}{" (" + unit + ")" if unit else ""}')
    axes.grid(axis='y', visible=False)


def speed(plt, runs, style, title=''):
    figure, grid = plt.subplots(1, 3, figsize=(12, 1.7 + 0.36 * len(runs)), sharey=True)
    bars(grid[0], runs, style, [run.throughput() for run in runs], ('samples a second, all workers', ''), '{:.4g}')
    bars(grid[1], runs, style, [run.traffic() for run in runs], ('sent by all workers a second', 'B/s'), '{:.3g}')
    sent = [run.total('bytes_sent') / run.total('samples') if run.total('samples') else 0 for run in runs]
    bars(grid[2], runs, style, sent, ('sent for each sample', 'B'), '{:.3g}')
    finish(figure, [], title)
    return figure


def stacked(axes, places, shares, height=0.75):
    left = [0.0] * len(places)
    for part in PARTS:
        values = [100 * each[part] for each in shares]
        if max(values) < 0.5:
            continue
        axes.barh(places, values, left=left, height=height, color=PART_COLOURS[part], label=PART_NAMES[part])
        for place, start, value in zip(places, left, values):
            if value >= 9:
                axes.text(start + value / 2, place, f'{value:.0f}', ha='center', va='center', fontsize=8,
                          color='white' if part == 'compute' else 'black')
        left = [a + b for a, b in zip(left, values)]
    axes.set_xlim(0, 100)
    axes.grid(axis='y', visible=False)


def some_workers(run):
    """All, or as many as a panel has room for, evenly chosen from the one that computes least to the one that computes most."""
    workers = list(run.clocks)
    if len(workers) <= MOST_BARS:
        return workers
    workers.sort(key=lambda worker: run.shares(worker)['compute'])
    step = (len(workers) - 1) / (MOST_BARS - 1)
    return [workers[round(i * step)] for i in range(MOST_BARS)]


def shares(plt, runs, style, title=''):
    runs = [run for run in runs if run.clocks]
    if not runs:
        return None
    columns = min(3, len(runs)) or 1
    rows = -(-len(runs) // columns)
    most = max([len(some_workers(run)) for run in runs] + [1])
    figure, grid = plt.subplots(rows, columns, figsize=(max(7, 4.2 * columns + 1), 1.0 + rows * (0.9 + 0.27 * most)), squeeze=False, sharex=True)
    for axes in grid.flat[len(runs):]:
        axes.set_visible(False)
    for axes, run in zip(grid.flat, runs):
        workers = some_workers(run)
        stacked(axes, range(len(workers)), [run.shares(worker) for worker in workers])
        for place, worker in enumerate(workers):           # beneath, what went on at the same time
            seconds = sum(run.total(part, worker) for part in PARTS) or 1
            sent = 100 * run.total('send', worker) / seconds
            if sent > 0.5:
                axes.plot([0, min(100, sent)], [place + 0.43] * 2, color='#0072B2', linewidth=2, label=MEANWHILE, clip_on=False)
        axes.set_yticks(range(len(workers)), [f'worker {worker}' for worker in workers], fontsize=9)
        axes.invert_yaxis()
        axes.set_title(run.label + (f' ({len(workers)} of {len(run.clocks)} workers)' if len(workers) < len(run.clocks) else ''), fontsize=10)
    for axes in grid[-1]:
        axes.set_xlabel('% of the time')
    finish(figure, grid.flat, title)
    return figure


# ---- staleness ----

def classes_of(runs):
    """Ranges of staleness to draw: 0, 1, 2 ..., wider ones where it goes far."""
    most = max([value for run in runs for of in ('reads', 'pushes') for value in run.staleness(of)] + [0])
    if most < MOST_CLASSES:
        return [(value, value) for value in range(most + 1)]
    ranges, low, width = [(0, 0)], 1, 1
    while low <= most:
        ranges.append((low, low + width - 1))
        low, width = low + width, 2 * width
    return ranges


def staleness(plt, runs, style, title=''):
    runs = [run for run in runs if run.staleness('reads') or run.staleness('pushes')]
    if not runs:
        return None
    ranges = classes_of(runs)
    names = [f'{low} or more' if high >= MOST_COUNTED else str(low) if low == high else f'{low}–{high}' for low, high in ranges]
    panels = [panel for panel in (('pushes', 'versions that others made of a row between a read\nand the merge of what was computed from it'),
                                  ('reads', 'clocks that the reader of a row was\nahead of the slowest worker'))
              if any(run.staleness(panel[0]) for run in runs)]
    # a bar for each run, in which pale is fresh and dark is stale: as many runs as there are rows can be read
    figure, grid = plt.subplots(1, len(panels), figsize=(1.5 + 5.5 * len(panels), 2.1 + 0.34 * len(runs)), sharey=True, squeeze=False)
    colours = plt.get_cmap('YlGnBu')
    shade = [colours(0.06 + 0.94 * i / max(1, len(ranges) - 1)) for i in range(len(ranges))]
    for axes, (of, words) in zip(grid[0], panels):
        for place, run in enumerate(runs):
            histogram = run.staleness(of)
            count, left = sum(histogram.values()), 0.0
            for (low, high), name, colour in zip(ranges, names, shade):
                value = 100 * sum(n for stale, n in histogram.items() if low <= stale <= high) / count if count else 0
                if value:
                    axes.barh(place, value, left=left, height=0.8, color=colour, edgecolor='#888888', linewidth=0.4)
                if value >= 9:
                    axes.text(left + value / 2, place, name, ha='center', va='center', fontsize=8, color='white' if sum(colour[:3]) < 1.5 else 'black')
                left += value
            mean = mean_of(histogram)
            axes.text(101, place, f'mean {mean:.2g}{"+" * (MOST_COUNTED in histogram)}' if mean is not None else 'none counted', va='center', fontsize=9)
        axes.set_xlim(0, 100)
        axes.set_xlabel(f'% of {of}, by {words}')
        axes.grid(axis='y', visible=False)
    grid[0][0].set_yticks(range(len(runs)), [run.label for run in runs])
    grid[0][0].invert_yaxis()
    for name, colour in zip(names, shade):
        grid[0][0].barh([0], [0], color=colour, edgecolor='#888888', linewidth=0.4, label=name)
    finish(figure, [grid[0][0]], title)
    figure.subplots_adjust(wspace=0.22, right=0.93)
    return figure


# ---- losses of processes ----

def mark_faults(panels, runs, style):
    """A line where a process was lost, over time, in the run's colour."""
    per, _ = time_unit(runs)
    for run in runs:
        for fault in run.faults.values():
            for axes in panels:
                axes.axvline(fault['time'] / per, color=style.of[id(run)][0], linewidth=0.8, linestyle=':')


def losses(plt, runs, style, title=''):
    """How many processes are alive, how many workers take part, and the steps in the params; None where no process was lost."""
    runs = [run for run in runs if run.faults and run.presence()]
    if not runs:
        return None
    per, unit = time_unit(runs)
    figure, (above, below) = plt.subplots(2, 1, figsize=(10, 6.5), sharex=True)
    for run in runs:
        times = [line['time'] / per for line in run.presence()]
        line = style.line(run)
        above.step(times, [shown['alive'] for shown in run.presence()], where='post', label=f'{run.label}: processes alive', **line)
        above.step(times, [shown['taking_part'] for shown in run.presence()], where='post', label=f'{run.label}: workers taking part',
                   **{**line, 'linewidth': 3.2, 'alpha': 0.45})
        below.plot(times, [shown['committed'] for shown in run.presence()], label='_', **line)
        for fault in run.faults.values():
            name = f'rank {fault["rank"]}' if len(runs) == 1 else ''
            above.text(fault['time'] / per, 1, name, transform=above.get_xaxis_transform(), fontsize=8, ha='center', va='bottom')
    mark_faults((above, below), runs, style)
    above.set_ylim(bottom=0)
    above.set_ylabel('processes')
    below.set_ylabel('steps in the params')
    below.set_xlabel(unit)
    finish(figure, [above], title)
    return figure


# ---- all of it ----

def overview(plt, runs, style, title=''):
    """What matters of many schemes on one page."""
    figure, grid = plt.subplots(2, 2, figsize=(11, 7.4))
    (x_of, words), _ = abscissae(runs, 'samples')
    accuracy = next((run.accuracy_name() for run in runs if run.accuracy_name()), 'accuracy')
    draw_curve(grid[0][0], runs, style, lambda run: run.accuracies(), x_of, (words, f'test {accuracy}'))
    accuracy_floor(grid[0][0], runs)
    bars(grid[0][1], runs, style, [run.throughput() for run in runs], ('samples a second, all workers', ''), '{:.4g}')
    stacked(grid[1][0], range(len(runs)), [run.mean_shares() for run in runs])
    grid[1][0].set_yticks(range(len(runs)), [run.label for run in runs])
    grid[1][0].invert_yaxis()
    grid[1][0].set_xlabel('% of the time, mean of the workers')
    grid[1][0].legend(loc='lower center', bbox_to_anchor=(0.45, 1.0), ncol=3, fontsize=8, handlelength=1.2, columnspacing=1)
    bars(grid[1][1], runs, style, [run.traffic() for run in runs], ('sent by all workers a second', 'B/s'), '{:.3g}')
    finish(figure, [grid[0][0]], title)
    return figure


PICTURES = {'curves': curves, 'speed': speed, 'shares': shares, 'staleness': staleness, 'losses': losses}


def spare_colours(path):
    """A third of the bytes, and nothing that an eye would miss."""
    try:
        from PIL import Image
    except ImportError:                                   # matplotlib brings it; without, the picture is larger
        return
    with Image.open(path) as picture:
        small = picture.convert('RGB').quantize(256, method=1, dither=0)   # by coverage, so that rare colours stay
    small.save(path, optimize=True)


def save(figure, path):
    figure.savefig(path)
    if Path(path).suffix.lower() == '.png':
        spare_colours(path)
    pyplot().close(figure)


def draw_runs(runs, folder, title='', by='samples', with_overview=False, baseline=None):
    """Writes the pictures; returns their paths."""
    plt = pyplot()
    style, written = Style(runs), []
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, draw in {**PICTURES, **({'overview': overview} if with_overview else {})}.items():
        figure = draw(plt, runs, style, title=title, **({'by': by, 'baseline': baseline} if name == 'curves' else {}))
        if figure is None:
            continue
        path = Path(folder) / f'{name}.png'
        save(figure, path)
        written.append(path)
    return written
