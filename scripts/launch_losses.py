"""The processes that a job loses and goes on without, and when each of them is started again."""
import time
from collections import Counter
from dataclasses import dataclass

PEER_LOST, STALLED, REQUEUE, KILLED, NO_SSH = 6, 8, 75, 128, 255
USERS = (2, 3, 4, 5, 7, 9)          # codes of what its user is to mend before another start
WHOLE = 'whole'                     # in place of a rank: all processes
SHORTEST, LONGEST, GOOD_LIFE = 1, 60, 60                      # seconds


def is_loss(code):
    """Whether a process that ends so was killed, or lost the others."""
    return code in (PEER_LOST, STALLED) or KILLED < code < KILLED + 65


class Pause:
    """The seconds before the next start: 1, 2, 4 ... 60, and half for each minute of a life."""

    def __init__(self):
        self.next = SHORTEST

    def take(self, lived):
        self.next = max(SHORTEST, self.next / 2 ** min(lived // GOOD_LIFE, 9))
        taken, self.next = self.next, min(LONGEST, 2 * self.next)
        return int(taken)


@dataclass
class Loss:
    """One line of the list at the end."""
    rank: object                                              # of launch_rank.Rank
    at: float                                                 # as time.time()
    back: float | None = None
    whole: bool = False                                       # all processes were lost with it

    def text(self):
        name, code = self.rank.process.name, self.rank.code
        ended = 'has not ended' if code is None else f'ended with code {code}'
        back = f'back at {clock_text(self.back)}' if self.back else 'did not come back'
        if self.whole:
            return f'the whole job lost at {clock_text(self.at)} ({name} {ended}), {back}'
        return f'{name} lost at {clock_text(self.at)} ({ended}), {back}'


def clock_text(seconds):
    return time.strftime('%H:%M:%S', time.localtime(seconds))


class Losses:
    """Decides what the end of a process means. Used by the launcher's main thread alone."""

    def __init__(self, job):
        self.job, self.history = job, []
        self.pauses = {}
        self.tries = Counter()                                # of starts again, by rank
        self.begin()

    def begin(self):
        """All processes of the job start at iteration 0 or from one snapshot."""
        self.out = set()             # ranks, as the job has them, that it goes on without
        self.undecided = {}          # processes that ended: until when another may say so
        self.waiting = {}            # by rank: the process to start again, and when
        self.frozen = {}             # processes that are lost and run: when they are killed

    def is_out(self, rank):
        """Whether the job goes on without the process."""
        return rank.known_as in self.out

    def no_part(self, rank):
        """Whether the job does not count on the process: it is lost, or has not joined yet."""
        return not rank.joined or self.is_out(rank)

    # ---- what happens ----

    def ended(self, rank):
        self.frozen.pop(rank, None)

    def takes(self, rank):
        """Whether the end of a process is no failure of the job, as far as is known now."""
        if self.no_part(rank):
            self.settle(rank)
            return True
        host_lost = rank.code == NO_SSH and not self.job.hosts.is_local(rank.process)
        if not (is_loss(rank.code) or host_lost) or self.job.interrupts or self.job.failed:
            return False
        self.undecided[rank] = time.monotonic() + self.job.args.settle
        return True

    def lost(self, known_as):
        """The process that coordinates says that the job goes on without one."""
        if known_as in self.out:
            return                                            # its successor says so again
        self.out.add(known_as)
        rank = next((r for r in self.job.ranks if r.known_as == known_as), None)
        if rank is None:
            return                                            # it was not started here
        self.history.append(Loss(rank, time.time()))
        # One that was cut off may end before the others have lost it, as one that leaves does.
        if self.undecided.pop(rank, None) or rank.ended and rank.code == REQUEUE:
            self.settle(rank)
        elif rank.code is None:
            self.frozen[rank] = time.monotonic() + self.job.args.grace

    def rejoins(self, rank):
        """A process that was lost and still runs asks the job for another rank."""
        self.frozen.pop(rank, None)

    def joined(self, rank):
        rank.joined, rank.since = True, time.monotonic()
        entry = self.open_entry(rank)
        if entry:
            entry.back = time.time()

    def open_entry(self, rank):
        """The last loss of the process's rank, if it is not back since."""
        own = [loss for loss in self.history if loss.rank.process is rank.process]
        return own[-1] if own and own[-1].back is None else None

    def settle(self, rank):
        """A process has ended that the job goes on without."""
        name = rank.process.name
        left = rank.code == 0 or rank.code == REQUEUE and not self.is_out(rank)
        if left or not self.job.trains():
            return
        self.job.show(f'launch: [{name}] ended with code {rank.code}; '
                      'the job goes on without it\n')
        most, tried = self.job.args.restart, self.tries[rank.process.rank]
        if most and rank.code in USERS:
            self.job.show(f'launch: {name} is not started again: code {rank.code} is for its user '
                          f'to mend, and its last words are in {rank.error_log}\n')
        elif most and tried >= most:
            self.job.show(f'launch: {name} has been started again as often as --restart={most} '
                          'permits, and stays lost\n')
        elif most:
            self.waiting[rank.process.rank] = (rank.process, self.next_start(rank))

    def next_start(self, rank, whole=False):
        """Counts a start, of all processes if `whole`, says when it is, and returns that."""
        number = WHOLE if whole else rank.process.rank
        self.tries[number] += 1
        lived = time.monotonic() - rank.since if rank.joined else 0
        pause = self.pauses.setdefault(number, Pause()).take(lived)
        who = 'the whole job' if whole else rank.process.name
        self.job.show(f'launch: {who} is started again in {pause} s '
                      f'(start {self.tries[number]} of --restart={self.job.args.restart})\n')
        return time.monotonic() + pause

    # ---- time ----

    def next_time(self):
        """When on_time() has something to do, or None."""
        times = [*self.undecided.values(), *self.frozen.values(),
                 *(when for _, when in self.waiting.values())]
        return min(times, default=None)

    def on_time(self):
        """Returns the processes that turn out to have failed, and those to be started now."""
        now, over = time.monotonic(), self.job.is_over()
        failed = [rank for rank, until in self.undecided.items() if until <= now or over]
        for rank in failed:
            del self.undecided[rank]
        if failed or not self.job.trains():
            self.waiting.clear()
        due = [(number, process) for number, (process, when) in self.waiting.items() if when <= now]
        for number, _ in due:
            del self.waiting[number]
        for rank in [rank for rank, when in self.frozen.items() if when <= now]:
            del self.frozen[rank]
            self.job.show(f'launch: {rank.process.name} has not ended, and the job goes on without '
                          f'it since {self.job.args.grace} s (--grace); killing it\n')
            rank.say('KILL\n')
        return failed, [process for _, process in due]

    # ---- the whole job ----

    def may_begin_again(self):
        """Whether a job that failed is one that was lost, and may be started once more."""
        return (self.job.failed and self.tries[WHOLE] < self.job.args.restart
                and not self.job.interrupts
                and all(is_loss(rank.code) for rank in self.job.failed))

    def all_back(self):
        """All processes start again, which is a start of each."""
        for process in self.job.processes:
            self.tries[process.rank] += 1
        for loss in self.history:
            loss.back = loss.back or time.time()

    def report(self):
        for loss in self.history:
            self.job.show(f'launch: {loss.text()}\n')
