"""Looks at every machine of a job before it starts: can it be reached, has it the same program, net and solver, its data, room on the disk,
the time of day, and do the ports work both ways. One table, and one line for each thing that is wrong."""
import concurrent.futures
import re
import shlex
import time

MOST_SKEW = 60.0          # seconds: only log lines and dates of files are compared by people
LEAST_DISK = 1 << 30      # bytes

# Given: folder, the command's words. Says "key value" lines.
SCRIPT = r'''
cd -- "$1" 2>/dev/null || { echo "folder missing"; exit; }
shift
echo "time $(date +%s.%N)"
program=$(command -v -- "$1") && echo "program $(sha256sum < "$program" | cut -d ' ' -f 1)" || echo "program missing"
echo "disk $(df -Pk . | awk 'NR == 2 { print $4 * 1024 }')"
echo "python $(command -v python3)"
echo "gpus $([ -e /dev/dxg ] && echo unknown || ls /dev | grep -c '^nvidia[0-9]')"
'''
# Given: folder, files. "file SHA NAME", "file missing NAME" or "file folder NAME".
FILES = r'''
cd -- "$1" || exit
shift
for f in "$@"; do
  if [ -d "$f" ]; then echo "file folder $f"
  elif [ ! -e "$f" ]; then echo "file missing $f"
  elif [ "$(wc -c < "$f")" -gt 1000000 ]; then echo "file large $f"
  else echo "file $(sha256sum < "$f" | cut -d ' ' -f 1) $f"; fi
done
'''
CAT = 'cd -- "$1" && cat -- "$2"'
LISTEN = '''import socket, sys
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2]))); s.listen(64); print("listening", flush=True); s.settimeout(float(sys.argv[3]))
try:
    for _ in range(int(sys.argv[4])): s.accept()
except OSError: pass
'''
CONNECT = '''import errno, socket, sys, time
until = time.monotonic() + float(sys.argv[1])
for pair in sys.argv[2:]:
    host, port = pair.rsplit(",", 1)
    while True:
        try: socket.create_connection((host, int(port)), max(0.5, until - time.monotonic())).close(); print("open", pair); break
        except OSError as e:
            if e.errno == errno.ECONNREFUSED and time.monotonic() < until: time.sleep(0.2); continue
            print("closed", pair, e); break
'''
RUN_PYTHON = 'python3 -c "$@"'


class Report:
    def __init__(self, processes):
        self.rows = {p.rank: {'rank': str(p.rank), 'host': p.host} for p in processes}
        self.wrong = []

    def put(self, process, column, good, text, why=''):
        self.rows[process.rank][column] = text
        if not good:
            self.wrong.append(f'{process.name}: {why or text}')

    def print(self):
        columns = ['rank', 'host', 'reach', 'program', 'prototxt', 'data', 'disk', 'clock', 'gpus', 'ports']
        width = {c: max(len(c), *(len(r.get(c, '-')) for r in self.rows.values())) for c in columns}
        for row in ({c: c for c in columns}, *self.rows.values()):
            print('  '.join(row.get(c, '-').ljust(width[c]) for c in columns).rstrip())
        for line in self.wrong:
            print(f'wrong: {line}')
        print('check: ' + (f'{len(self.wrong)} wrong' if self.wrong else f'all well on {len(self.rows)} processes'))


def words_of(said):
    return dict(line.split(' ', 1) for line in said.splitlines() if ' ' in line)


def look(hosts, report, process, folder, command):
    started = time.time()
    code, said, complaint = hosts.run(process, SCRIPT, [folder, *command[:1]], timeout=hosts.connect_timeout + 10)
    ended = time.time()
    found = words_of(said)
    if code != 0 or not found:
        report.put(process, 'reach', False, 'no', 'not reached: ' + (complaint.strip().splitlines() or ['no answer'])[-1])
        return None
    report.put(process, 'reach', True, f'{1000 * (ended - started):.0f} ms')
    if 'folder' in found:
        report.put(process, 'program', False, 'no folder', f'there is no folder {folder}')
        return None
    skew = max(0.0, float(found['time']) - ended, started - float(found['time']))
    report.put(process, 'clock', skew < MOST_SKEW, f'{skew:.1f} s off' if skew > 1 else 'ok', f'its clock is {skew:.0f} s off')
    disk = int(float(found.get('disk') or 0))
    report.put(process, 'disk', disk >= LEAST_DISK, f'{disk / 1e9:.0f} GB', f'only {disk / 1e9:.1f} GB free in {folder}')
    return found


def look_for_gpus(report, process, there, command):
    """Whether the machine has the GPUs that the command's --gpu, or else its line of the machinefile, names."""
    named = values_of(command, 'gpu')
    wanted = named[-1] if named else process.keys.get('gpus', '')
    if wanted in ('', '-1') or process.keys.get('role') == 'server' or not there.isdigit():
        return
    most = max([1 + int(word) for word in wanted.split(',') if word.isdigit()], default=1)
    report.put(process, 'gpus', most <= int(there), there, f'GPU {wanted} is asked for, and the machine has {there} of NVIDIA\'s')


def compare_programs(report, found, processes, program):
    first = found[processes[0].rank]['program']
    for process in processes:
        mine = found[process.rank]['program']
        why = f'there is no {program}' if mine == 'missing' else f'{program} is not the one of rank {processes[0].rank}'
        report.put(process, 'program', mine != 'missing' and mine == first, 'no' if mine == 'missing' else mine[:8], why)


def values_of(command, *names):
    """Of these flags, as the trainer takes them: "--name=value", or the value as the next word; with one dash or two."""
    found = []
    for word, after in zip(command[1:], [*command[2:], '']):
        if match := re.fullmatch(f'--?(?:{"|".join(names)})(=.*)?', word, re.DOTALL):
            found.append(match.group(1)[1:] if match.group(1) else after)
    return found


def field(text, name):
    return [one or other for one, other in re.findall(r'^[^#\n]*?\b' + name + r'\s*:\s*(?:"([^"]*)"|\'([^\']*)\')', text, re.MULTILINE)]


def files_of(hosts, process, folder, command):
    """The prototxts that the command names and those they name, and the sources of data with whether they are shared."""
    prototxts = list(filter(None, values_of(command, 'solver', 'model')))
    sources, named, all_shared = [], {'train_source': '', 'test_source': ''}, False
    for path in prototxts:
        code, text, _ = hosts.run(process, CAT, [folder, path])
        if code == 0:
            prototxts += [net for key in ('net', 'train_net', 'test_net') for net in field(text, key) if net not in prototxts]
            shared = bool(re.search(r'^[^#\n]*\bshared_file_system\s*:\s*true', text, re.MULTILINE))
            all_shared = all_shared or shared       # a solver's field is its nets' too
            sources += field(text, 'source')
            named.update({key: each for key in named for each in field(text, key)})
    named.update({key: each for key in named for each in values_of(command, key) if each})
    # what the nets say is not read if the solver or a flag says it for both
    return prototxts, [(source, all_shared) for source in [*filter(None, named.values()), *([] if all(named.values()) else sources)]]


def compare_files(hosts, report, processes, folder_of, command):
    prototxts, sources = files_of(hosts, processes[0], folder_of(processes[0]), command)
    hashes = {}
    for process in processes:
        suffix = process.keys.get('data', str(process.rank))
        cut = len(processes) > 1
        data = [s if shared or not cut else f'{s}_{suffix}' for s, shared in dict.fromkeys(sources)]
        _, said, _ = hosts.run(process, FILES, [folder_of(process), *prototxts, *data])
        state = {line.split(' ', 2)[2]: line.split(' ', 2)[1] for line in said.splitlines() if line.startswith('file ')}
        bad = [p for p in prototxts if state.get(p, 'missing') == 'missing' or state[p] != hashes.setdefault(p, state[p])]
        report.put(process, 'prototxt', not bad, 'differ' if bad else str(len(prototxts)),
                   '; '.join(f'{p} is missing' if state.get(p, 'missing') == 'missing' else f'{p} is not the one of rank {processes[0].rank}'
                             for p in bad))
        gone = [d for d in data if state.get(d, 'missing') == 'missing']
        if process.keys.get('role') != 'server':
            report.put(process, 'data', not gone, f'{len(gone)} missing' if gone else str(len(data)),
                       f'{", ".join(gone)} missing; cut the set up with scripts/partition_data.sh, or set shared_file_system: true')


def try_ports(hosts, report, processes, found, pool):
    """Everybody listens, everybody connects to everybody."""
    able = [p for p in processes if found[p.rank].get('python')]
    for process in set(p.rank for p in processes) - set(p.rank for p in able):
        report.rows[process]['ports'] = 'not tried: no python3'
    listeners = [pool.submit(hosts.run, p, RUN_PYTHON, [LISTEN, p.host, p.port, 15, len(able)], timeout=30) for p in able]
    pairs = [f'{p.host},{p.port}' for p in able]
    tries = {p.rank: pool.submit(hosts.run, p, RUN_PYTHON, [CONNECT, 8, *pairs], timeout=20 + len(pairs)) for p in able}
    for process in able:
        said = tries[process.rank].result()[1].splitlines()
        closed = [line[len('closed '):] for line in said if line.startswith('closed ')]
        opened = sum(line.startswith('open ') for line in said)
        report.put(process, 'ports', not closed, f'{opened}/{len(pairs)} open', 'cannot connect to ' + '; '.join(closed) +
                   ' (a firewall, another program on that port, or another address?)')
    for process, listener in zip(able, listeners):
        if 'in use' in listener.result()[2]:
            report.wrong.append(f'{process.name}: port {process.port} is taken there')


def check(hosts, processes, command, remote_folder):
    """Prints the table. How many things are wrong."""
    report = Report(processes)
    folder_of = lambda process: '.' if hosts.is_local(process) else remote_folder
    with concurrent.futures.ThreadPoolExecutor(2 * len(processes)) as pool:
        answers = list(pool.map(lambda p: look(hosts, report, p, folder_of(p), command), processes))
        found = {p.rank: answer for p, answer in zip(processes, answers) if answer}
        reached = [p for p in processes if p.rank in found]
        if reached:
            compare_programs(report, found, reached, shlex.quote(command[0]))
            compare_files(hosts, report, reached, folder_of, command)
            for process in reached:
                look_for_gpus(report, process, found[process.rank].get('gpus', ''), command)
            try_ports(hosts, report, reached, found, pool)
    report.print()
    return len(report.wrong)
