"""The machinefile as the launcher reads it: the grammar of docs/reference/formats.md, and the words of src/shoal/parallel/launch/machinefile.cpp about what is
wrong with one, so that a file is refused before anything is started and not by every process. tests/parallel/machinefile_test.cpp has the cases of both."""
import math
import re
import socket
from dataclasses import dataclass, field

DEFAULT_PORT, MOST_PROCESSES, MOST_PORT, MOST_ERRORS = 29600, 65535, 65535, 10
KEYS = ('slots', 'max_slots', 'port', 'ssh_port', 'user', 'gpus', 'group', 'data', 'iface', 'weight', 'bandwidth', 'role')
ROLES = ('both', 'worker', 'server')
MOST = {'slots': MOST_PROCESSES, 'max_slots': MOST_PROCESSES, 'port': MOST_PORT, 'ssh_port': MOST_PORT}


class UsageError(Exception):
    """What the user can mend; exit code 2."""


@dataclass
class Process:
    rank: int
    host: str
    port: int
    line: int
    keys: dict = field(default_factory=dict)

    @property
    def name(self):
        return f'{self.rank}@{self.host}'


def digits(word):
    return re.fullmatch('[0-9]+', word) is not None


def whole(word, least, most):
    """The number, or None if the word is not one of digits alone from `least` to `most`."""
    return int(word) if digits(word) and least <= int(word) <= most else None


def edit_distance(a, b):
    """Letters to insert, leave out, replace or swap with a neighbour."""
    rows = [list(range(len(b) + 1))]
    for i in range(1, len(a) + 1):
        rows.append([i])
        for j in range(1, len(b) + 1):
            cost = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                cost = min(cost, rows[i - 2][j - 2] + 1)
            rows[i].append(cost)
    return rows[-1][-1]


def most_slips(word, meant):
    """How many slips may lie between a word and the one that was meant, as src/shoal/base/text.cpp has it."""
    ending = word.rfind('_')
    letters = ending if ending > 0 and len(meant) > len(word) - ending and meant.endswith(word[ending:]) else len(word)
    other_first = letters > 1 and len(meant) > 1 and word[0] != meant[0] and word[1] == meant[1] and word[0] != meant[1]
    return 0 if other_first else min(max(letters // 4, 1), 3)


def known_words(word, candidates):
    def same_start(other):
        return next((i for i, (x, y) in enumerate(zip(word.lower(), other)) if x != y), min(len(word), len(other)))

    near = sorted(((edit_distance(word.lower(), c), -same_start(c), c) for c in candidates
                   if edit_distance(word.lower(), c) <= most_slips(word.lower(), c)), key=lambda t: t[:2])
    known = ', '.join(candidates)
    return f"; did you mean '{near[0][2]}'? Known: {known}" if near else f'; known: {known}'


def is_address(family, text):
    try:
        socket.inet_pton(family, text)
        return True
    except (OSError, ValueError):
        return False


def is_ipv6(host):
    return is_address(socket.AF_INET6, host.partition('%')[0])


class Line:
    """One line, taken apart; what is wrong with it goes to `errors`."""

    def __init__(self, words, number):
        self.words, self.number, self.errors, self.keys = words, number, [], {}
        self.id = self.port = None
        has_id = len(words) >= 3 and digits(words[0])
        if has_id:
            self.read_id()
        else:
            self.read_address(words[0])
        for word in words[3 if has_id else 1:]:
            self.read_key(word)
        self.slots = whole(self.keys.get('slots', '1'), 1, MOST_PROCESSES) or 1
        most = whole(self.keys.get('max_slots', ''), 1, MOST_PROCESSES)
        if self.id is not None and self.slots > 1:
            self.wrong(f'slots={self.slots} on a line with an id; a line with an id is one process')
        if most is not None and most < self.slots:
            self.wrong(f'slots={self.slots} is more than max_slots={most}')

    def wrong(self, text):
        self.errors.append(text)

    def read_id(self):
        self.id = whole(self.words[0], 0, MOST_PROCESSES - 1)
        if self.id is None:
            self.wrong(f'id {self.words[0]} is not from 0 to {MOST_PROCESSES - 1}')
        self.read_host(self.words[1])
        self.port = whole(self.words[2], 1, MOST_PORT)
        if self.port is None:
            self.wrong(f"'{self.words[2]}' is not a port from 1 to 65535; a line that begins with an id is 'id address port'")

    def read_address(self, word):
        if word.count(':') != 1 or word.startswith('['):
            return self.read_host(word)
        host, _, number = word.partition(':')
        self.read_host(host)
        self.wrong(f"'{word}' is ambiguous: write '{host} ssh_port={number}' or '{host} slots={number}' "
                   "(or 'port=' for the table service)")

    def read_host(self, word):
        self.host = word
        if word.startswith('['):
            self.host = word[1:-1] if word.endswith(']') else word[1:]
            if not word.endswith(']') or not is_ipv6(self.host):
                self.wrong(f"'{word}' is not an IPv6 address in brackets")
        elif is_ipv6(word):
            self.wrong(f'IPv6 address {word} without brackets; write [{word}]')
        elif '@' in word:
            user, _, host = word.partition('@')
            self.wrong(f"'{word}' has a user; write '{host} user={user}'")
        elif not re.fullmatch('[A-Za-z0-9_][A-Za-z0-9._-]{0,252}', word):
            self.wrong(f"'{word}' is neither a host's name nor an address")
        elif re.fullmatch('[0-9.]+', word) and not is_address(socket.AF_INET, word):
            self.wrong(f"'{word}' is not an IPv4 address")

    def read_key(self, word):
        key, equals, value = word.partition('=')
        if not equals:
            hint = "; a line with an id is 'id address port'" if digits(self.words[0]) else ''
            return self.wrong(f"'{word}' is not key=value{hint}")
        if key not in KEYS:
            return self.wrong(f"unknown key '{key}'{known_words(key, KEYS)}")
        if key in self.keys or (key == 'port' and self.id is not None):
            return self.wrong(f'{key} is given twice')
        self.keys[key] = value
        if not value:
            return self.wrong(f'{key}= has no value')
        if key in MOST and whole(value, 1, MOST[key]) is None:
            self.wrong(f'{key}={value} is not from 1 to {MOST[key]}')
        elif key == 'port':
            self.port = int(value)
        elif key == 'gpus' and not is_gpus(value):
            self.wrong(f'gpus={value} is not a list of different numbers')
        elif key in ('weight', 'bandwidth') and not is_positive(value):
            self.wrong(f'{key}={value} is not a number above 0')
        elif key == 'role' and value not in ROLES:
            self.wrong(f'role={value} is not worker, server or both')


def is_gpus(value):
    gpus = [whole(part, 0, 1023) for part in value.split(',') if part]
    return bool(gpus) and None not in gpus and len(set(gpus)) == len(gpus)


def is_positive(value):
    return re.fullmatch(r'(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?', value, re.ASCII) is not None and 0 < float(value) < math.inf


def lines_text(numbers):
    """"line 3", "lines 2 and 5", "lines 1, 2 and 4"."""
    if len(numbers) == 1:
        return f'line {numbers[0]}'
    return f'lines {", ".join(map(str, numbers[:-1]))} and {numbers[-1]}'


def by(keys_and_lines):
    """Numbers of lines by key, in the order of keys."""
    found = {}
    for key, line in keys_and_lines:
        found.setdefault(key, []).append(line)
    return sorted(found.items())


def wrong_ids(lines):
    count = len(lines)
    with_id, without = [x.number for x in lines if x.id is not None], [x.number for x in lines if x.id is None]
    if not with_id:
        return []
    if without:
        return [f'{lines_text(with_id)} begin{"s" if len(with_id) == 1 else ""} with an id and {lines_text(without)} '
                f'{"does" if len(without) == 1 else "do"} not; all must, or none']
    ids = by((x.id, x.number) for x in lines)
    errors = [f'{lines_text(numbers)} have the same id {id}' for id, numbers in ids if len(numbers) > 1]
    missing = sorted(set(range(count)) - {id for id, _ in ids})
    beyond = [x.number for x in lines if x.id >= count]
    if missing:
        errors.append(f'ids of {count} lines must be 0 to {count - 1}, and {", ".join(map(str, missing))} {"is" if len(missing) == 1 else "are"} missing'
                      + (f'; ids that are too large: {lines_text(beyond)}' if beyond else ''))
    return errors


def one_name(host):
    """One name for those by which this machine calls itself."""
    return '127.0.0.1' if host in ('localhost', '::1') else host


def make_processes(lines):
    """Each slot becomes a process on a port of its own; a host that is named again without a port goes on where it was left. Several GPUs are
    divided among the slots."""
    processes, taken = [], set()
    for line in sorted(lines, key=lambda x: x.id or 0):
        gpus = [gpu for gpu in line.keys.get('gpus', '').split(',') if gpu]
        if len(gpus) > 1 and len(gpus) % line.slots:
            return [], [f'{lines_text([line.number])}: {len(gpus)} gpus cannot be divided among {line.slots} slots']
        each = len(gpus) // line.slots
        for slot in range(line.slots):
            port = (line.port or DEFAULT_PORT) + slot
            while not line.port and (one_name(line.host), port) in taken:
                port += 1
            if port > MOST_PORT:
                return [], [f'{lines_text([line.number])} needs ports above 65535']
            taken.add((one_name(line.host), port))
            own = {'gpus': ','.join(gpus[slot * each:(slot + 1) * each])} if len(gpus) > 1 else {}
            processes.append(Process(len(processes), line.host, port, line.number, {**line.keys, **own}))
            if len(processes) > MOST_PROCESSES:
                return [], [f'more than {MOST_PROCESSES} processes']
    return processes, []


def address_text(host, port):
    return f'[{host}]:{port}' if ':' in host else f'{host}:{port}'


def read_machinefile(text, name):
    """The processes of a machinefile in the order of their ranks."""
    lines = []
    for number, line in enumerate(text.removeprefix('\ufeff').split('\n'), 1):
        words = re.findall('[^ \t]+', line.partition('#')[0].removesuffix('\r'))
        if words:
            lines.append(Line(words, number))
    errors = [f'{name}:{line.number}: {error}' for line in lines for error in line.errors]
    if not errors and not lines:
        errors = [f'{name}: names no machine']
    errors = errors or [f'{name}: {error}' for error in wrong_ids(lines)]
    processes = []
    if not errors:
        processes, wrong = make_processes(lines)
        errors = [f'{name}: {error}' for error in wrong]
    errors = errors or [f'{name}: {lines_text(numbers)} have the same address {address_text(*address)}'
                        for address, numbers in by(((one_name(p.host), p.port), p.line) for p in processes) if len(numbers) > 1]
    if errors:
        more = len(errors) - MOST_ERRORS
        raise UsageError('\n'.join(errors[:MOST_ERRORS]) + (f'\n... and {more} more' if more > 0 else ''))
    return processes


def hosts_text(text, name, workers, servers):
    """A machinefile from a file with one address a line, as dmlc's launchers take it ("host" or "host:ssh_port"): `workers` processes that
    compute, then `servers` that hold params, on the addresses in turn. Without servers each worker is both."""
    addresses, errors = [], []
    for number, line in enumerate(text.removeprefix('\ufeff').split('\n'), 1):
        words = re.findall('[^ \t]+', line.partition('#')[0].removesuffix('\r'))
        if not words:
            continue
        words[:1] = re.sub(r'^([^:\[\]]+):(\d+)$', r'\1 ssh_port=\2', words[0]).split()
        checked = Line(words, number)
        if checked.id is not None:
            checked.wrong('a line of a hosts file is an address; a file with ids is a --machinefile')
        checked.errors += [f"'{key}=' has no meaning with -n and -s, which say what runs" for key in ('slots', 'max_slots', 'port', 'role')
                           if key in checked.keys]
        errors += [f'{name}:{number}: {error}' for error in checked.errors]
        addresses.append(' '.join(words))
    if errors or not addresses:
        raise UsageError('\n'.join(errors[:MOST_ERRORS]) or f'{name}: names no machine')
    roles = ([''] * workers if not servers else [' role=worker'] * workers + [' role=server'] * servers)
    return ''.join(f'{addresses[k % len(addresses)]}{role}\n' for k, role in enumerate(roles))


def machinefile_text(processes):
    """One line a process, with its id: what every process of the job reads."""
    lines = []
    for p in processes:
        host = f'[{p.host}]' if ':' in p.host else p.host
        keys = ''.join(f' {k}={v}' for k, v in p.keys.items() if k not in ('slots', 'max_slots', 'port'))
        lines.append(f'{p.rank} {host} {p.port}{keys}\n')
    return ''.join(lines)
