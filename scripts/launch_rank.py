"""One process of a job, as its launcher sees it."""
import os
import re
import subprocess
import threading
import time

from launch_agent import AGENT
from machinefile import address_text

KILLED = 128
LAST_LINES = 20
# Lines of a trainer's log: in that of the process that coordinates, which processes the job goes on
# without; in that of a process that joins, the rank that the job gives it, and that it takes part.
LOST = re.compile(r'\] lost rank (\d+) \(host .* The job goes on without it\.$')
PLACE = re.compile(r'\] Process (\d+) of \d+, as .*; known from --join$')
JOINED = re.compile(r'\] Iteration \d+: has joined the job, as ')


def words_of_founder(command, _process, _all):
    """The command as it was given. The agent adds the machinefile and the rank."""
    return command


def words_to_join(command, process, processes):
    """The command of a process that joins the job of `processes` in the place of `process`. It asks
    at each of their servers: any may be lost."""
    given = {match.group(1) for word in command if (match := re.match(r'--?(\w+)', word))}
    own = {'join': ','.join(address_text(each.host, each.port) for each in processes
                            if each.keys.get('role', 'both') != 'worker'),
           'role': process.keys.get('role', 'both'),
           'data_part': process.keys.get('data', process.rank),
           'interface': process.keys.get('iface'),
           'host': None if process.keys.get('iface') else process.host,
           'port': process.port,
           'advertise': address_text(process.host, process.port),
           'gpu': process.keys.get('gpus')}
    excluded = {'host': {'interface'}, 'interface': {'host'}, 'port': {'port_range'},
                'advertise': {'host', 'interface', 'port', 'port_range'}}
    return [*command, *(f'--{name}={value}' for name, value in own.items()
                        if value is not None and not given & {name, *excluded.get(name, ())})]


class Rank:
    """An ssh or a shell, and threads that copy what the process says.

    `joins`: it takes part in a job that trains, instead of a process that was lost. `again`: its
    log goes on behind that of an earlier process."""

    def __init__(self, process, job, joins=False, again=False):
        self.process, self.job, self.again, self.code = process, job, joins or again, None
        self.ended = False                                    # and the launcher has looked at it
        self.known_as = None if joins else process.rank       # the rank that the job has for it
        self.joined, self.since = not joins, time.monotonic()
        stem = job.logs / f'rank.{process.rank:04d}'
        self.error_log = stem.with_name(stem.name + '.err')
        goes_on = self.again and self.error_log.exists()
        self.log_began = self.error_log.stat().st_size if goes_on else 0
        local = job.hosts.is_local(process)
        folder = os.getcwd() if local else job.args.remote_dir or os.getcwd()
        command = (words_to_join if joins else words_of_founder)(job.command, process,
                                                                 job.processes)
        arguments = [folder, job.name, process.rank, job.args.grace,
                     'joins' if joins else 'founds', *command]
        self.popen = subprocess.Popen(job.hosts.command(process, AGENT, arguments),
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, start_new_session=True, text=True,
                                      errors='replace')
        self.say(job.token + '\n' + job.machinefile + '.\n')
        self.threads = [threading.Thread(target=self.copy, args=(stream, heard, path), daemon=True)
                        for stream, heard, path in (
                            (self.popen.stdout, None, stem.with_name(stem.name + '.out')),
                            (self.popen.stderr, self.hear, self.error_log))]
        self.threads.append(threading.Thread(target=self.wait, daemon=True))
        for thread in self.threads:
            thread.start()

    def say(self, text):
        try:
            self.popen.stdin.write(text)
            self.popen.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass                                              # it has ended, which wait() sees

    def hang_up(self):
        try:
            self.popen.stdin.close()
        except BrokenPipeError:
            pass

    def copy(self, stream, heard, path):
        """To the console, and to the log as long as the disk takes it. It reads on in any case:
        a process whose pipe is full waits."""
        def show(line):
            self.job.show(f'[{self.process.name}] {line}')
            if heard:
                heard(line.rstrip('\n'))

        try:
            with open(path, 'ab' if self.again else 'wb', buffering=0) as log:
                if self.again and heard:
                    now = time.strftime('%Y-%m-%d %H:%M:%S')
                    log.write(f'---- started again at {now} ----\n'.encode())
                for line in stream:
                    show(line)
                    log.write(line.encode(errors='replace'))
        except OSError as error:
            self.job.logs_cut = True
            self.job.show(f'launch: {path}: {error.strerror}; '
                          'the rest of this log is on the console alone\n')
            for line in stream:
                show(line)

    def hear(self, line):
        """Puts what the job's losses follow from into the launcher's queue."""
        if match := LOST.search(line):
            self.job.events.put(('lost', int(match.group(1))))
        elif match := PLACE.search(line):
            if self.known_as is not None:                     # it was removed, and joins anew
                self.joined = False
                self.job.events.put(('rejoins', self))
            self.known_as = int(match.group(1))
        elif not self.joined and JOINED.search(line):
            self.job.events.put(('joined', self))

    def wait(self):
        code = self.popen.wait()
        for thread in self.threads[:2]:
            thread.join()
        self.code = code if code >= 0 else KILLED - code
        self.job.events.put(self)

    def last_words(self):
        """The end of its log, without what an earlier process of this rank wrote."""
        if not self.error_log.exists():
            return []
        with open(self.error_log, 'rb') as log:
            log.seek(self.log_began)
            return log.read().decode(errors='replace').splitlines()[-LAST_LINES:]

    def words(self):
        return self.error_log.read_text(errors='replace') if self.error_log.exists() else ''
