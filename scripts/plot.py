#!/usr/bin/env python3
"""Draws a training log, or runs that were measured.

plot.py LOG [OUT.png]: the curves of a log as a PNG: loss above, the test nets' other outputs (accuracy) below. Needs nothing but Python.
plot.py RUN ... [--out=FOLDER]: one or many runs side by side: curves.png, speed.png, shares.png, staleness.png. A run is a folder that
  `train --metrics` or `simulate --out` wrote, one of its files, or a folder of ESync's logs; name=RUN gives it a name. Needs matplotlib."""
import argparse
import math
import struct
import sys
import zlib
from pathlib import Path

from parse_log import columns, read_log

WHITE, INK, SOFT, GRID = (255, 255, 255), (34, 34, 34), (110, 110, 110), (228, 228, 228)
COLOURS = [(31, 97, 175), (214, 90, 24), (44, 145, 76), (150, 64, 160), (190, 40, 60), (20, 140, 150), (130, 110, 30), (90, 90, 90)]

# Letters as strokes on a grid 4 wide: capitals from 0 down to the base line at 6, small letters from 2, tails to 8.
STROKES = {}
for entry in '''0 10 30 41 45 36 16 05 01 10|1 11 20 26|16 36|2 01 10 30 41 42 06 46|3 01 10 30 41 42 33 13|33 44 45 36 16 05|4 36 30 04 44
5 40 10 03 12 32 43 45 36 16 05|6 31 20 11 03 05 16 36 45 44 33 13 04|7 00 40 16|8 10 30 41 42 33 13 02 01 10|13 04 05 16 36 45 44 33
9 15 26 35 43 41 30 10 01 02 13 33 42|. 15 25 26 16 15|, 15 25 26 17|- 03 43|+ 03 43|21 25|= 02 42|04 44|: 12 22|15 25|% 40 06|00 10 11 01 00|35 45 46 36 35
# 10 16|30 36|02 42|04 44|( 30 21 23 25 36|) 10 21 23 25 16|[ 30 10 16 36|] 10 30 36 16|/ 40 06|_ 06 46|* 11 35|31 15|' 20 22
A 06 20 46|14 34|B 00 30 41 42 33 03|33 44 45 36 06 00|C 41 30 10 01 05 16 36 45|D 00 30 41 45 36 06 00|E 40 00 06 46|03 33|F 40 00 06|03 33
G 41 30 10 01 05 16 36 45 43 23|H 00 06|40 46|03 43|I 10 30|20 26|16 36|J 30 35 26 16 05|K 00 06|40 03 46|L 00 06 46|M 06 00 23 40 46|N 06 00 46 40
O 10 30 41 45 36 16 05 01 10|P 06 00 30 41 42 33 03|Q 10 30 41 45 36 16 05 01 10|24 46|R 06 00 30 41 42 33 03|23 46|S 41 30 10 01 02 13 33 44 45 36 16 05
T 00 40|20 26|U 00 05 16 36 45 40|V 00 26 40|W 00 16 22 36 40|X 00 46|40 06|Y 00 23 40|23 26|Z 00 40 06 46
a 12 32 43 46|44 14 05 16 36 45|b 00 06 36 45 43 32 12 03|c 43 32 12 03 05 16 36 45|d 40 46 16 05 03 12 32 43|e 04 44 43 32 12 03 05 16 36 45
f 30 20 11 16|02 32|g 45 36 16 05 03 12 32 43 42 47 38 18 07|h 00 06|03 12 32 43 46|i 22 26|20 20|j 22 27 18 08|20 20|k 00 06|42 04|24 46|l 20 26
m 06 02|03 12 22 26|23 32 43 46|n 06 02|03 12 32 43 46|o 12 32 43 45 36 16 05 03 12|p 08 02 32 43 45 36 06|q 48 42 12 03 05 16 46|r 06 02|04 13 22 42
s 43 32 12 03 14 34 45 36 16 05|t 10 15 26 36|02 32|u 02 05 16 36 45|42 46|v 02 26 42|w 02 16 24 36 42|x 02 46|42 06|y 02 26|42 26 18 08|z 02 42 06 46'''.replace(
        '\n', '|').split('|'):
    words = entry.split(' ')
    if len(words[0]) == 1:
        letter = words.pop(0)
    STROKES.setdefault(letter, []).append([(int(xy[0]), int(xy[1])) for xy in words])


class Picture:
    """An RGB picture with anti-aliased lines and letters; (0, 0) is the upper left corner."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.pixels = bytearray(bytes(WHITE) * (width * height))

    def blend(self, x, y, colour, share):
        if 0 <= x < self.width and 0 <= y < self.height:
            at = 3 * (y * self.width + x)
            for k in range(3):
                self.pixels[at + k] = round(self.pixels[at + k] * (1 - share) + colour[k] * share)

    def line(self, points, colour, thick=1.0, strength=1.0):
        """A polyline. The coverage of a pixel is taken once for the whole line, so that joints are not darker."""
        half, cover = thick / 2, {}
        for (x0, y0), (x1, y1) in zip(points, points[1:] or points):
            dx, dy = x1 - x0, y1 - y0
            length2 = dx * dx + dy * dy
            reach = half + 1
            for x in range(int(min(x0, x1) - reach), int(max(x0, x1) + reach) + 1):
                low, high = min(y0, y1), max(y0, y1)
                if abs(dx) > 1e-9:                        # only the rows near the line in this column
                    ya, yb = (y0 + dy * (min(max(x + e, min(x0, x1)), max(x0, x1)) - x0) / dx for e in (-reach, reach))
                    low, high = min(ya, yb), max(ya, yb)
                for y in range(int(low - reach), int(high + reach) + 1):
                    along = 0 if length2 == 0 else min(1, max(0, ((x - x0) * dx + (y - y0) * dy) / length2))
                    share = half + 0.5 - math.hypot(x - x0 - along * dx, y - y0 - along * dy)
                    if share > cover.get((x, y), 0):
                        cover[x, y] = min(1, share)
        for (x, y), share in cover.items():
            self.blend(x, y, colour, share * strength)

    def text(self, x, y, words, colour=INK, size=1.5, align=0.0, thick=None):
        """`words` with the middle of a capital at y; align 0 starts at x, 0.5 is centred on it, 1 ends there."""
        x -= align * (text_width(words, size))
        for char in words:
            for stroke in STROKES.get(char, []):
                self.line([(x + size * a, y + size * (b - 3)) for a, b in stroke], colour, thick or 0.75 * size)
            x += size * 6
        return x

    def save(self, path):
        rows = b''.join(b'\0' + self.pixels[3 * self.width * y:3 * self.width * (y + 1)] for y in range(self.height))

        def chunk(kind, body):
            return struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
        header = struct.pack('>IIBBBBB', self.width, self.height, 8, 2, 0, 0, 0)
        Path(path).write_bytes(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(rows, 9)) + chunk(b'IEND', b''))


def text_width(words, size):
    return size * (6 * len(words) - 2)


def nice_ticks(low, high, about):
    """Round numbers from low to high, about so many."""
    span = high - low or abs(high) or 1
    step = 10 ** math.floor(math.log10(span / about))
    step *= min((1, 2, 5, 10), key=lambda m: abs(span / (step * m) - about))
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def label(value, largest):
    """A tick's number, in thousands or millions where the axis reaches far."""
    for unit, letter in ((1e6, 'M'), (1e3, 'k')):
        if value and largest >= 20 * unit:
            return f'{value / unit:g}{letter}'
    return f'{value:g}'


class Axes:
    """One panel: a box in pixels, ranges, and on request a logarithmic y axis."""

    def __init__(self, picture, box, xs, ys, log=False):
        self.picture, (self.left, self.top, self.right, self.bottom), self.log = picture, box, log
        self.x0, self.x1 = min(xs), max(max(xs), min(xs) + 1)
        low, high = (math.log10(v) for v in (min(ys), max(ys))) if log else (min(ys), max(ys))
        pad = 0.06 * (high - low) or 0.5 * abs(high) or 0.5
        self.y0, self.y1 = low - pad, high + pad
        self.frame()

    def at(self, x, y):
        y = math.log10(y) if self.log else y
        return (self.left + (x - self.x0) / (self.x1 - self.x0) * (self.right - self.left),
                self.bottom - (y - self.y0) / (self.y1 - self.y0) * (self.bottom - self.top))

    def frame(self):
        if self.log:
            powers = range(math.floor(self.y0) - 1, math.ceil(self.y1) + 1)
            many = self.y1 - self.y0 > 3
            ticks = [m * 10.0 ** p for p in powers for m in ((1,) if many else (1, 2, 5))]
            ticks = [t for t in ticks if self.y0 <= math.log10(t) <= self.y1]
        else:
            ticks = nice_ticks(self.y0, self.y1, 6)
        for tick in ticks:
            y = round(self.at(self.x0, tick)[1])
            self.picture.line([(self.left, y), (self.right, y)], GRID)
            self.picture.text(self.left - 12, y, label(tick, 0), SOFT, align=1)
        for tick in nice_ticks(self.x0, self.x1, 8):
            x = round(self.at(tick, 1)[0])
            self.picture.line([(x, self.top), (x, self.bottom)], GRID)
            self.picture.text(x, self.bottom + 16, label(tick, self.x1), SOFT, align=0.5)
        self.picture.line([(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)], SOFT)

    def curve(self, points, colour, thick=2.0, strength=1.0, marks=False):
        run = []
        for x, y in points:
            if not math.isfinite(y) or (run and x < run[-1][0]):   # a gap, or a run resumed from an earlier iteration
                self.stroke(run, colour, thick, strength)
                run = []
            if math.isfinite(y):
                run.append((x, y))
        self.stroke(run, colour, thick, strength)
        if marks:
            for x, y in points:
                if math.isfinite(y) and self.at(x, y)[1] <= self.bottom:
                    self.picture.line([self.at(x, y)], colour, 6)

    def stroke(self, run, colour, thick, strength):
        """Draws what of the run lies above the box's lower edge."""
        pieces, before = [[]], None
        for x, y in (self.at(*point) for point in run):
            below = y > self.bottom
            if before and below != (before[1] > self.bottom):
                share = (self.bottom - before[1]) / (y - before[1])
                pieces[-1].append((before[0] + share * (x - before[0]), self.bottom))
            if below and pieces[-1]:
                pieces.append([])
            elif not below:
                pieces[-1].append((x, y))
            before = x, y
        for piece in filter(None, pieces):
            self.picture.line(piece, colour, thick, strength)


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


def legend(picture, series, colours, right, y):
    for (name, points), colour in reversed(list(zip(series, colours))):
        words = f'{name} {points[-1][1]:.4g}'
        left = right - text_width(words, 1.5)
        picture.text(left, y, words)
        picture.line([(left - 28, y), (left - 10, y)], colour, 3)
        right = left - 50


def draw(log, title):
    losses, others = series_of(log)
    panels = [p for p in (losses, others) if finite(p)]
    picture = Picture(1000, 80 + 330 * len(panels))
    picture.text(picture.width / 2, 24, title, size=2, align=0.5)
    xs = [x for panel in panels for x, _ in finite(panel)]
    for index, panel in enumerate(panels):
        top = 76 + 330 * index
        values = [y for _, y in finite(panel)] if panel is losses else worth_showing(panel)
        log_axis = panel is losses and min(values) > 0 and max(values) > 20 * min(values)
        axes = Axes(picture, (90, top, picture.width - 30, top + 262), xs, values, log_axis)
        shown = panel[:len(COLOURS)]
        colours = COLOURS if panel is losses else COLOURS[1:] + COLOURS[:1]
        for (name, points), colour in zip(shown, colours):
            if name == 'training loss' and len(points) > 30:
                axes.curve(points, colour, 1, 0.35)
                axes.curve(smooth(points), colour)
            else:
                axes.curve(points, colour, marks=len(points) <= 60)
        legend(picture, shown, colours, picture.width - 30, top - 18)
    picture.text(picture.width / 2, picture.height - 14, 'iteration', SOFT, align=0.5)
    return picture


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('inputs', nargs='+', metavar='LOG|RUN', help='what `train` wrote to stderr (- reads the standard input), or runs')
    parser.add_argument('--title', help='the name of the net by default')
    parser.add_argument('--out', default='', help='the picture of a log; the folder for those of runs, by default that of the only one, or .')
    parser.add_argument('--by', choices=('samples', 'iterations'), default='samples', help='of runs: what curves are drawn over, beside time')
    arguments = parser.parse_args()
    if is_run(arguments.inputs[0]):
        draw_measured(arguments)
    elif len(arguments.inputs) > 2:
        parser.error(f'a log and its picture are two words, and these are {len(arguments.inputs)}; runs are folders or .jsonl files')
    else:
        draw_log(arguments)


def is_run(word):
    return any(Path(path).is_dir() or path.endswith('.jsonl') for path in (word, word.partition('=')[2]) if path)


def draw_measured(arguments):
    from metrics import MetricsError, read_named
    from plot_runs import draw_runs, use_python_with_matplotlib
    use_python_with_matplotlib()
    try:
        runs = [read_named(word) for word in arguments.inputs]
    except MetricsError as error:
        sys.exit(str(error))
    only = runs[0].path if len(runs) == 1 else Path('.')
    out = Path(arguments.out) if arguments.out else only if only.is_dir() else only.parent
    for path in draw_runs(runs, out, title=arguments.title or runs[0].name, by=arguments.by):
        print(f'{path.stem}: {path}')


def draw_log(arguments):
    name = arguments.inputs[0]
    log = read_log(name)
    if not finite(sum(series_of(log), [])):
        sys.exit(f'{name}: no iteration with a loss or a test output; is this a training log?')
    out = arguments.inputs[1] if len(arguments.inputs) > 1 else arguments.out
    out = out or ('curve.png' if name == '-' else str(Path(name).with_suffix('.png')))
    draw(log, arguments.title or log.name or Path(name).stem).save(out)
    print(f'curves: {out}')


if __name__ == '__main__':
    main()
