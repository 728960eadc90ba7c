"""What `train --metrics=DIR` and `simulate --out=DIR` wrote."""
import json
import os
import re
from pathlib import Path


def read_metrics(path):
    """The lines of a metrics.N.jsonl, or of all in a folder, as a dict from kind (run, clock, display, test ...) to a list of
    dicts with the members that docs/reference/metrics.md names. What a limit of size divided is one; a line that is being
    written is left out."""
    path = Path(os.fspath(path))
    files = sorted(path.glob('metrics.*.jsonl'), key=_worker) if path.is_dir() else [path]
    if not files:
        raise FileNotFoundError(f'{path} has no metrics.N.jsonl')
    kinds = {}
    for file in files:
        for part in (Path(f'{file}.1'), file):
            if part != file and not part.exists():
                continue
            for line in part.read_text().splitlines(keepends=True):
                if line.endswith('\n'):
                    entry = json.loads(line)
                    kinds.setdefault(entry['kind'], []).append(entry)
    return kinds


def _worker(path):
    number = re.search(r'metrics\.(\d+)\.jsonl$', path.name)
    return int(number.group(1)) if number else -1
