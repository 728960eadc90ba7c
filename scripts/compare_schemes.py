#!/usr/bin/env python3
"""Tries consistency schemes on a cluster that is imagined, with real training, and writes one report of them.

  compare_schemes.py --cluster=examples/compare/cluster.prototxt --solver=examples/compare/solver.prototxt --out=build/compare

runs tools/simulate once for each scheme and writes OUT/report.md (a table, which scheme to use when, the exact commands), its pictures, and
OUT/runs/<scheme> with each run's files. --schemes is a list, separated by commas, of names of schemes or of own ones as name=flags:

  --schemes='bsp,async,patient=--scheme=ssp --staleness=8'

One rate for all favours the schemes that it happens to suit. --rates=0.3,1,3 tries each scheme for a quarter of --seconds with so many times
the solver's base_lr, and then for all of them with the rate that was best for it; the report says which, and how the order is without."""
import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from machines import UsageError, main_of
from metrics import MetricsError, mean_of, read_run
from plot_runs import draw_runs, pyplot, use_python_with_matplotlib

ROOT = Path(__file__).resolve().parent.parent
# Flags of schemes that have no defaults, or whose defaults would not show what they are for; of the others --scheme alone. {groups} are the
# cluster's kinds of workers, a group each; {late} is a sixth of the workers, and one at least.
FLAGS = {'ssp': [('ssp 2', '--scheme=ssp --staleness=2')],
         'async': [('async', '--scheme=async'), ('async 1/Y', '--scheme=async --weighting=inverse')],
         'drift_barrier': [('drift_barrier 4', '--scheme=drift_barrier --max_advance=4')],
         'grouped': [('grouped', '--scheme=grouped --groups={groups}')],
         'sync_backup': [('sync_backup {late}', '--scheme=sync_backup --backup={late}')],
         'weed_out': [('weed_out 8', '--scheme=weed_out --max_version_lag=8')],
         'esync': [('esync', '--scheme=esync --epsilon=0.005')]}
# What a scheme is for, whatever the numbers of one cluster.
PURPOSES = {
    'bsp': 'all workers take each step together, the same every time; for workers of equal speed',
    'ssp': 'workers may be a few steps apart; for workers of equal speed on the whole that stumble now and then',
    'async': 'nobody waits for anybody; for workers whose speeds differ for good, where some staleness does no harm',
    'elastic': 'workers keep weights of their own and are pulled together now and then; for slow networks',
    'local_steps': 'several steps of their own between exchanges; for slow networks and workers of equal speed',
    'esync': 'as many steps of their own as fit while the slowest takes one; for workers whose speeds differ very much',
    'grouped': 'together within a group of equal speed, apart between groups; for a few kinds of machines',
    'sync_backup': 'the last ones of each step are not waited for; for large clusters in which someone is always late',
    'drift_barrier': 'asynchronous until one has done so many tasks more than another, when all wait and start again together; for workers that drift apart slowly',
    'weed_out': 'gradients that come too late are thrown away; for asynchronous workers with stragglers',
    'dc_asgd': 'asynchronous, with a correction of what is stale; where plain async learns too badly',
}


class Trial:
    def __init__(self, label, flags):
        self.label, self.flags = label, flags
        self.slug = re.sub(r'[^A-Za-z0-9.]+', '_', label).strip('_') or 'scheme'
        self.run = self.failure = self.ending = None      # ending: why it ended, as the tool says it
        self.seconds = 0.0
        self.rate, self.plain = 1.0, None                 # times the solver's base_lr; the trial at that itself, where another was better

    def at(self, rate, base_lr, name):
        """The same scheme with another rate, in a folder of its own."""
        trial = Trial(self.label, f"{self.flags} --set='base_lr: {rate * base_lr:.6g}'")
        trial.slug, trial.rate = f'{self.slug}_{name}', rate
        return trial


def known_schemes(arguments):
    """As the tool names them when it hears of one that there is not."""
    said = subprocess.run([arguments.simulate, '--scheme=?', f'--solver={arguments.solver}', f'--cluster={arguments.cluster}'], capture_output=True,
                          text=True)
    found = re.search(r'[Kk]nown(?: are|:) ([\w ,]+)', said.stderr + said.stdout)
    names = [name.split()[0] for name in re.split(r',| and ', found.group(1)) if name.strip()] if found else []
    return names or ['bsp', 'ssp', 'async']


def kinds_of(text):
    """How many workers each `worker` of a cluster's prototxt stands for."""
    counts, text = [], re.sub(r'#[^\n]*', '', text)
    for match in re.finditer(r'\bworker\s*:?\s*\{', text):
        depth, at, own = 1, match.end(), ''
        while depth and at < len(text):
            depth += {'{': 1, '}': -1}.get(text[at], 0)
            own += text[at] if depth == 1 else ''
            at += 1
        count = re.search(r'\bcount\s*:\s*(\d+)', own)
        counts.append(int(count.group(1)) if count else 1)
    return counts


def trials_of(arguments):
    words, numbers, groups = arguments.schemes, 0, []
    for count in kinds_of((ROOT / arguments.cluster).read_text()):
        groups.append(','.join(str(worker) for worker in range(numbers, numbers + count)))
        numbers += count

    def usual(name):
        pairs = FLAGS.get(name, [(name, f'--scheme={name}')])
        filled = {'groups': '|'.join(groups), 'late': max(1, numbers // 6)}
        return [Trial(label.format(**filled), flags.format(**filled)) for label, flags in pairs]

    if not words:
        trials = [trial for name in known_schemes(arguments) for trial in usual(name)]
        return sorted(trials, key=lambda trial: trial.label != 'bsp')   # what the others are measured by comes first
    trials = []
    for word in split_schemes(words):
        label, equals, flags = word.partition('=')
        trials += [Trial(label, flags)] if equals else usual(word)
    folders = {}
    for trial in trials:
        other = folders.setdefault(trial.slug, trial)
        if other is not trial:
            raise UsageError(f"--schemes: '{other.label}' and '{trial.label}' would write to one folder; give each a name of its own")
    return trials


def split_schemes(words):
    """At commas before a name, or before name=-; other commas belong to a flag (--groups=0,1|2,3, --exchange=AUTO,fc8=TABLE)."""
    ends = r',(?=\s*(?:[\w.+/]+(?:[ -][\w.+/]+)*=-|[A-Za-z]\w*\s*(?:,|$)))'
    return [word.strip() for word in re.split(ends, words) if word.strip()]


def base_lr_of(path):
    found = re.search(r'^\s*base_lr\s*:\s*([\d.eE+-]+)', (ROOT / path).read_text(), re.MULTILINE)
    if not found:
        raise UsageError(f'--rates: {path} has no base_lr to multiply')
    return float(found.group(1))


def score(trial):
    """The larger, the better a short trial was: its accuracy, or without one its last loss; last are those that failed."""
    if not trial.run:
        return (-1, 0.0)
    accuracy, losses = trial.run.final_accuracy(), [row['loss'] for row in trial.run.displays if row.get('loss') is not None]
    return (1, accuracy) if accuracy is not None else (0, -losses[-1] if losses else 0.0)


def with_best_rates(arguments, trials, run_all):
    """Each scheme at the rate that was best for it in a short run, beside itself at the solver's own."""
    base_lr, rates = base_lr_of(arguments.solver), arguments.rates
    short = argparse.Namespace(**{**vars(arguments), 'seconds': arguments.seconds / 4})
    tried = run_all(short, [trial.at(rate, base_lr, f'short_{rate:g}') for trial in trials for rate in rates])
    best = []
    for trial in trials:
        rate = max((one for one in tried if one.label == trial.label), key=lambda one: (*score(one), one.rate == 1)).rate
        best.append(trial if rate == 1 else trial.at(rate, base_lr, f'{rate:g}'))
        best[-1].plain = trial
    run_all(arguments, [trial for one in best for trial in ({one, one.plain} if one is not one.plain else {one})])
    return best


def one_set(*lists):
    """These lists of flags, with what each --set says in the first one's last place: of several the tool takes the last alone."""
    fields, rest = [], []
    for words in lists:
        rest.append([])
        words = iter(words)
        for word in words:
            found = re.fullmatch(r'--?set(?:=(.*))?', word, re.DOTALL)
            if not found:
                rest[-1].append(word)
            else:
                fields.append(next(words, '') if found[1] is None else found[1])
    if fields:
        rest[0].append(f'--set={" ".join(fields)}')
    return rest


def command_of(arguments, trial):
    flags, more = one_set(shlex.split(trial.flags), shlex.split(arguments.more))
    command = [arguments.simulate, f'--solver={arguments.solver}', f'--cluster={arguments.cluster}', *flags,
               f'--seed={arguments.seed}', '--threads=1', f'--out={Path(arguments.out) / "runs" / trial.slug}']
    if arguments.seconds:                                 # tests often enough for a curve
        command += [f'--seconds={arguments.seconds:g}', f'--test_every={arguments.test_every or arguments.seconds / 60:g}']
    elif arguments.test_every:
        command += [f'--test_every={arguments.test_every:g}']
    return command + more


def try_out(arguments, trial):
    folder = Path(arguments.out) / 'runs' / trial.slug
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob('metrics*.jsonl'):
        old.unlink()
    started = time.monotonic()
    with open(folder / 'log.txt', 'w') as log:
        code = subprocess.run(command_of(arguments, trial), stdout=log, stderr=subprocess.STDOUT,
                              env={**os.environ, 'OMP_NUM_THREADS': '1'}).returncode
    trial.seconds = time.monotonic() - started
    found = re.search(r'^Ended since (.*); it took', (folder / 'log.txt').read_text(errors='replace'), re.MULTILINE)
    trial.ending = found[1] if found else None
    if code:
        said = [line for line in (folder / 'log.txt').read_text(errors='replace').splitlines() if line.strip() and not line.startswith('Try ')]
        fatal = [line for line in said if 'Check failed' in line] or said[-1:] or ['it said nothing']
        trial.failure = f'ended with {code}: {fatal[0][:300]}'
    else:
        try:
            trial.run = read_run(folder, trial.label)
        except MetricsError as error:
            trial.failure = str(error)
    print(f'  {trial.label:16} {trial.seconds:6.1f} s  {trial.failure or "done"}', flush=True)
    return trial


# ---- the report ----

def seconds_words(value):
    return '–' if value is None else f'{value:.1f} s' if value < 600 else f'{value / 60:.1f} min'


def percent(value):
    return f'{100 * value:.0f} %'


def table(trials, target):
    lines = ['| scheme | time to target | final accuracy | samples/s | sent | sent a sample | compute | wait for rows | staleness of pushes, mean | dropped |',
             '|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|']
    for trial in trials:
        run, shares = trial.run, trial.run.mean_shares()
        final, stale = run.final_accuracy(), mean_of(run.staleness('pushes'))
        sent = run.total('bytes_sent') / run.total('samples') / 1e3 if run.total('samples') else 0
        lines.append(f'| {trial.label} | {seconds_words(run.time_to(target) if target else None)} | {"–" if final is None else f"{final:.4f}"} | '
                     f'{run.throughput():.0f} | {run.traffic() / 1e6:.2f} MB/s | {sent:.2f} kB | {percent(shares["compute"])} | '
                     f'{percent(shares["row_wait"])} | {"–" if stale is None else f"{stale:.2f}"} | {run.total("drops")} |')
    return lines


def ratio_words(ratio, more, less):
    if ratio >= 1.05:
        return f'{ratio:.2g} times {more}' if ratio >= 1.995 else f'{100 * (ratio - 1):.0f} % {more}'
    return f'{100 * (1 - ratio):.0f} % {less}' if ratio <= 0.95 else None


def verdict(trial, base, target, soonest):
    """(one of HEADINGS, words on this scheme on this cluster), from its numbers beside the first one's."""
    run, other = trial.run, base.run
    reached, others = run.time_to(target), other.time_to(target)
    speed = run.throughput() / other.throughput() if other.throughput() else 1
    stale = mean_of(run.staleness('pushes')) or 0
    loss = (other.final_accuracy() or 0) - (run.final_accuracy() or 0)
    behind = f', but in the end {100 * loss:.1f} points below {base.label}' if loss > 0.005 else ''
    if reached is None:
        return 'never', f'{speed:.2g} times the samples a second' + (f'; its gradients were {stale:.1f} versions old on average' if stale >= 0.5 else '')
    first = soonest.run.time_to(target)
    if others is None:
        return 'use' if reached <= 1.1 * first else 'better', f'after {seconds_words(reached)}{behind}'
    gain = others / reached if reached else 1
    if gain >= 1.1:
        return 'near' if loss > 0.005 else 'use' if reached <= 1.1 * first else 'better', f'{gain:.2g} times sooner{behind}'
    if gain <= 0.91:
        return 'later', f'{1 / gain:.2g} times later, at {speed:.2g} times the samples a second'
    return 'same', f'{speed:.2g} times the samples a second'


# In the order of the report; {} are the target, the first scheme and the soonest one.
HEADINGS = {'use': 'Use here', 'near': 'Use to come near soon, and finish with a stricter one', 'better': 'Better than {1}, though {2} is better still',
            'same': 'No gain here: {0} came as soon as with {1}', 'later': 'Not here: {0} came later than with {1}', 'never': 'Not here: {0} was not reached'}


def one_by_one(trials, base, target, soonest):
    """A paragraph for each verdict, so that what schemes have in common is said once."""
    waits, known = base.run.mean_shares()['row_wait'], {}

    def purpose(trial):
        family = next((word for word in (trial.label.split()[0], (trial.run.scheme or trial.label).split()[0]) if word in PURPOSES), None)
        first = known.setdefault(family, trial.label)
        return '' if family is None else f' ({PURPOSES[family]})' if first == trial.label else f' (as {first})'

    lines = [f'* **{base.label}**{purpose(base)}: its workers spend {percent(waits)} of their time waiting, so there is '
             f'{"much" if waits >= 0.25 else "little"} to gain.']
    if soonest:
        lines[:0] = [f'All are measured by {base.label}, and by when they reached {target:.3f}' +
                     (f': it did after {seconds_words(base.run.time_to(target))}.' if base.run.time_to(target) is not None else ', which it did not.'), '']
    found = [(trial, *verdict(trial, base, target, soonest)) for trial in trials if trial is not base]
    for kind, heading in HEADINGS.items():
        of_kind = {}
        for trial, its, words in found:
            if its == kind:
                of_kind.setdefault(words, []).append(f'**{trial.label}**{purpose(trial)}')
        if of_kind:
            lines += ['', f'**{heading.format(f"{target:.3f}", base.label, soonest.label if soonest else "")}:**', '',
                      *[f'* {", ".join(names)}: {words}.' for words, names in of_kind.items()]]
    return lines


def advice(trials, target):
    base, tested = trials[0], [trial for trial in trials if trial.run.final_accuracy() is not None]
    if not tested or target is None:
        fastest = max(trials, key=lambda trial: trial.run.throughput())
        return [f'There were no tests, so this says nothing of learning: {fastest.label} goes through the most samples, {fastest.run.throughput():.0f} a second.']
    most = max(tested, key=lambda trial: trial.run.final_accuracy())
    lines = []
    reached = [trial for trial in tested if trial.run.time_to(target) is not None]
    first = min(reached, key=lambda trial: trial.run.time_to(target)) if reached else None
    if first:
        lines.append(f'* **Soonest at {target:.3f}: {first.label}**, after {seconds_words(first.run.time_to(target))}.')
    lines.append(f'* **Best in the end: {most.label}**, {most.run.final_accuracy():.4f} after {seconds_words(most.run.seconds())}.')
    sent = {trial.label: trial.run.total('bytes_sent') / max(1, trial.run.total('samples')) / 1e3 for trial in tested}
    sparing = min(sent, key=sent.get)
    if sent[sparing] < 0.95 * max(sent.values()):
        lines.append(f'* **Least traffic: {sparing}**, {sent[sparing]:.2f} kB sent for each sample.')
    else:
        lines.append(f'* All send about the same for each sample, {sent[sparing]:.2f} kB.')
    return [*lines, '', *one_by_one(tested, base, target, first)]


def target_of(trials, given):
    """What all are timed to: as asked for, or 98 % of the best accuracy."""
    finals = [trial.run.final_accuracy() for trial in trials if trial.run.final_accuracy() is not None]
    return given or (int(980 * max(finals)) / 1000 if finals else None)


def rate_lines(trials, target):
    """Which rate each scheme had, and the order with these rates and with the solver's own."""
    def order(runs):
        timed = [(run.time_to(target), label) for label, run in runs if run and run.time_to(target) is not None]
        return ', '.join(f'{label} ({seconds_words(time)})' for time, label in sorted(timed)) or 'none reached it'
    lines = ['## Rates', '', 'Each scheme had the rate, of those tried, with which a short run came farthest:', '',
             '| scheme | times base_lr | final accuracy | at base_lr itself |', '|---|--:|--:|--:|']
    for trial in trials:
        finals = [one.run.final_accuracy() if one.run else None for one in (trial, trial.plain)]
        lines.append(f'| {trial.label} | {trial.rate:g} | ' + ' | '.join('–' if final is None else f'{final:.4f}' for final in finals) + ' |')
    if target:
        lines += ['', f'In the order in which they reached {target:.3f}: {order([(t.label, t.run) for t in trials])}.',
                  f'All at base_lr itself: {order([(t.label, t.plain.run) for t in trials])}.']
    return [*lines, '']


def unequal(arguments, trials):
    """Words on runs that are not of the same length."""
    early = [f'{trial.label} after {seconds_words(trial.run.seconds())}' for trial in trials
             if arguments.seconds and trial.ending and 'seconds are over' not in trial.ending]
    if early:
        return [f'**Not all lasted {seconds_words(arguments.seconds)}:** the solver\'s max_iter, or a flag, ended {", ".join(early)}.', '']
    samples = {trial.label: trial.run.total('samples') for trial in trials}
    least, most = min(samples, key=samples.get), max(samples, key=samples.get)
    if arguments.seconds or samples[least] > 0.95 * samples[most]:
        return []
    return [f'**Not all did as much:** without --seconds each ends after the solver\'s max_iter on every worker, which counts exchanges, not local steps: '
            f'{samples[least]:.0f} samples of {least}, {samples[most]:.0f} of {most}.', '']


def report(arguments, trials, pictures, seconds):
    good, bad = [t for t in trials if t.run], [t for t in trials if not t.run]
    target = target_of(good, arguments.target)
    workers = max(len(trial.run.clocks) for trial in good)
    lines = ['# Which scheme for this cluster?', '',
             f'{len(good)} schemes on {arguments.cluster} ({workers} workers), training {good[0].run.name or "the net"} of {arguments.solver}, '
             f'until {seconds_words(max(trial.run.seconds() for trial in good))} of virtual time. Gradients and tests are real, time and network are simulated; '
             f'all of it took {seconds:.0f} s here.' + (f' The target is an accuracy of {target:.3f}.' if target else ''), '',
             *unequal(arguments, good), '![overview](overview.png)', '', '## Which to use', '', *advice(good, target), '', '## Numbers', '', *table(good, target), '',
             'Time is virtual. "Sent" is what all workers hand to the network; what one sends another receives. "Compute" and "wait for rows" are shares of',
             'the workers\' time, the mean of all. The staleness of a push counts the versions that others made of a row in the time between reading it and',
             'adding to it what was computed.', '']
    if arguments.rates:
        lines += rate_lines(good, target)
    if bad:
        lines += ['Left out:', '', *[f'* {trial.label}: {trial.failure}' for trial in bad], '']
    lines += ['## Pictures', '']
    for picture, words in (('curves', 'loss and accuracy over time and over samples'), ('speed', 'speed and traffic'),
                           ('shares', 'where each worker\'s time goes'), ('staleness', 'how old gradients and reads are')):
        if any(path.stem == picture for path in pictures):
            lines += [f'{words[0].upper()}{words[1:]}:', '', f'![{picture}]({picture}.png)', '']
    lines += ['## Commands', '', 'In the folder of the source:', '', '```']
    lines += [shlex.join(command_of(arguments, trial)) for trial in trials]
    lines += ['```', '', 'and for this page `' + shlex.join(['scripts/compare_schemes.py', *sys.argv[1:]]) + '`.', '']
    path = Path(arguments.out) / 'report.md'
    path.write_text('\n'.join(lines))
    return path


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--cluster', required=True, help='a prototxt: docs/simulating-a-cluster.md')
    parser.add_argument('--solver', required=True, help='a prototxt, as for train')
    parser.add_argument('--schemes', default='', help='names of schemes; default: all')
    parser.add_argument('--out', required=True, help='the folder of the report')
    parser.add_argument('--seconds', type=float, default=0, help='virtual seconds of each run; default: the solver\'s max_iter on every worker')
    parser.add_argument('--test_every', type=float, default=0, help='virtual seconds between tests; default: a sixtieth of --seconds, or as the solver says')
    parser.add_argument('--target', type=float, default=0, help='the accuracy that all are timed to; default: 98 %% of the best')
    parser.add_argument('--rates', default='', metavar='A,B,...', help="factors of base_lr to try; each scheme gets the best of them (needs --seconds)")
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--jobs', type=int, default=os.cpu_count() or 1, help='runs at once; default: one a core')
    parser.add_argument('--more', default='', help='flags for every run')
    parser.add_argument('--simulate', default=os.environ.get('BUILD', 'build/release') + '/tools/simulate')
    arguments = parser.parse_args()
    if not (ROOT / arguments.simulate).exists():
        parser.error(f'{arguments.simulate} does not exist: build it with make, or name it with --simulate')
    for name in ('cluster', 'solver'):
        if not (ROOT / getattr(arguments, name)).exists():
            parser.error(f'--{name}={getattr(arguments, name)}: there is no such file under {ROOT}')
    try:
        arguments.rates = [float(rate) for rate in arguments.rates.split(',')] if arguments.rates else []
    except ValueError:
        parser.error(f'--rates={arguments.rates}: it must be a list of numbers, as 0.3,1,3')
    if arguments.rates and (min(arguments.rates) <= 0 or not arguments.seconds):
        parser.error('--rates must be above 0, and need --seconds: the short runs take a quarter of it')
    arguments.out = os.path.abspath(arguments.out)
    if Path(arguments.out).is_relative_to(ROOT):          # commands are to be read, and run, in the folder of the source
        arguments.out = os.path.relpath(arguments.out, ROOT)
    os.chdir(ROOT)
    return arguments


def main():
    use_python_with_matplotlib()
    arguments = arguments_of()
    pyplot()                                              # before the long work: it may be missing
    started = time.monotonic()
    trials = trials_of(arguments)
    print(f'{len(trials)} schemes, {arguments.jobs} at once', flush=True)
    with ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        def run_all(how, those):
            return list(pool.map(lambda trial: try_out(how, trial), those))
        trials = with_best_rates(arguments, trials, run_all) if arguments.rates else run_all(arguments, trials)
    good = [trial.run for trial in trials if trial.run]
    if not good:
        sys.exit('no scheme ran to its end; ' + '; '.join(f'{trial.label}: {trial.failure}' for trial in trials))
    title = f'{good[0].name or "training"}, {max(len(run.clocks) for run in good)} workers, simulated'
    pictures = draw_runs(good, arguments.out, title=title, with_overview=True)
    print(f'report: {report(arguments, trials, pictures, time.monotonic() - started)}')


if __name__ == '__main__':
    main_of(main)
