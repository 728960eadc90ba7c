#!/usr/bin/env python3
"""Makes ESync's summary of a run: node -> worker -> accuracy_list, num_samples_list, self_iters_list, elapsed_time_list, aggregate_time_list.

summarize.py FOLDER, or with ESync's flags summarize.py -b BASE -n NETWORK -m MODE, which reads BASE/NETWORK/MODE and writes the summary there
under ESync's name for the mode, ESync.json or Async-Non-IID.json.

Reads ESync's logs (folders with iter-1.txt, iter-2.txt ..., up to the first that is missing), as `train --esync_log_dir=DIR` and ESync
itself write them: the node is the folder above a worker's. Or metrics.*.jsonl, as `train --metrics=DIR` writes them: the node is the
folder that they lie in. Lists have a number a round: accuracy with 3 decimals (of the rounds that were tested alone), samples, entries of
`time` (local steps and one more for the exchange; 1 without local steps), rounded seconds since the start, and seconds of the exchange with
others."""
import argparse
import json
import sys
from pathlib import Path
from machines import main_of

from metrics import MetricsError, esync_files, esync_folders, exchange_seconds, metrics_files, read_run


def of_rounds(rounds):
    return {'accuracy_list': [round(r['accuracy'], 3) for r in rounds if r.get('accuracy') is not None],
            'num_samples_list': [r['num_samples'] for r in rounds],
            'self_iters_list': [len(r['time']) for r in rounds],
            'elapsed_time_list': [round(r['total_time']) for r in rounds],
            'aggregate_time_list': [round(exchange_seconds(r), 4) for r in rounds]}


def of_clocks(run, worker):
    """A test is of the round that it came after."""
    scores = {line['clock']: value for line, value in run.accuracies()} if worker == min(run.clocks) else {}
    lines = run.clocks[worker]
    return {'accuracy_list': [round(scores[line['clock'] + 1], 3) for line in lines if line['clock'] + 1 in scores],
            'num_samples_list': [round(line['samples']) for line in lines],
            'self_iters_list': [line['local_steps'] + 1 if line['local_steps'] > 1 else 1 for line in lines],
            'elapsed_time_list': [round(line['time']) for line in lines],
            'aggregate_time_list': [round(line['row_wait'] or 0, 4) for line in lines]}


def summary_of(path):
    path = Path(path)
    if metrics_files(path):
        run = read_run(path)
        node = (path if path.is_dir() else path.parent).resolve().name
        return {node: {f'worker{worker}': of_clocks(run, worker) for worker in run.clocks}}
    folders = esync_folders(path)
    if not folders:
        raise MetricsError(f'{path}: holds neither iter-1.txt of ESync nor metrics*.jsonl')
    summary = {}
    for folder in folders:
        folder = folder.resolve()
        summary.setdefault(folder.parent.name, {})[folder.name] = of_rounds(esync_files(folder))
    return summary


def esync_name(mode):
    """ESync's name of the summary of a mode; '-niid' stands for data split by class."""
    names = {'esync': 'ESync', 'sync': 'Sync', 'async': 'Async', 'dcasgd': 'DCASGD'}
    plain = mode.removesuffix('-niid')
    if plain not in names:
        raise MetricsError(f"-m {mode}: ESync's modes are {', '.join(names)}, each with -niid behind it for data split by class")
    return names[plain] + ('' if plain == mode else '-Non-IID') + '.json'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', nargs='?', help='what --esync_log_dir, --metrics or ESync wrote')
    parser.add_argument('--out', help='the summary; the standard output by default')
    parser.add_argument('-b', '--base-dir', default='logs', help="ESync's: the folder of all networks' logs")
    parser.add_argument('-n', '--network', default='resnet18-v1', help="ESync's: the folder in that")
    parser.add_argument('-m', '--mode', help="ESync's: the folder in that: esync, sync, async or dcasgd, perhaps with -niid")
    arguments = parser.parse_args()
    if bool(arguments.folder) == bool(arguments.mode):
        parser.error('give a folder, or -b, -n and -m, which name one as ESync does')
    try:
        if arguments.mode:
            arguments.folder = str(Path(arguments.base_dir) / arguments.network / arguments.mode)
            arguments.out = arguments.out or str(Path(arguments.folder) / esync_name(arguments.mode))
        text = json.dumps(summary_of(arguments.folder), indent=1)
    except MetricsError as error:
        sys.exit(str(error))
    except (KeyError, TypeError, AttributeError) as error:
        sys.exit(f'{arguments.folder}: a file of a round is not in ESync\'s format: {error!r}')
    if arguments.out:
        Path(arguments.out).write_text(text + '\n')
    else:
        print(text)


if __name__ == '__main__':
    main_of(main)
