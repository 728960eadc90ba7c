#include "support/simulated_losses.h"

#include <algorithm>
#include <utility>

namespace shoal::table {

SimulatedLosses::SimulatedLosses(const ClusterCase& job, VirtualTime& time, Owner owner)
    : job_(job),
      time_(time),
      owner_(std::move(owner)),
      random_(job.seed, 6),
      gone_(job.plan.servers),
      lost_servers_(job.plan.servers) {}

void SimulatedLosses::expect_next() {
  if (happened_ < job_.losses.size() && job_.losses[happened_].message == 0)
    time_.after(job_.losses[happened_].at, [this] { lose_next(); });
}

UnreliableEnd SimulatedLosses::counted(UnreliableEnd end) {
  end.received = [this, handle = std::move(end.received)](Message&& message) {
    ++messages_;
    lose_if_due(true);
    handle(std::move(message));
    lose_if_due(false);
  };
  return end;
}

void SimulatedLosses::lose_if_due(bool before) {
  if (happened_ == job_.losses.size()) return;
  const Loss& next = job_.losses[happened_];
  if (next.message == messages_ && next.before == before) lose_next();
}

void SimulatedLosses::lose_next() {
  if (over_) return;
  const Loss loss = job_.losses[happened_++];
  if (loss.server >= 0) dead_.insert(loss.server);
  owner_.lose(loss);
  for (int other = 0; other < job_.plan.servers; ++other)
    time_.at(soon(other), [this, other, loss] { tell_server(other, loss); });
  for (int worker = 0; worker < job_.plan.workers && loss.server >= 0; ++worker)
    time_.at(soon(~worker), [this, worker, loss] { owner_.tell_worker(worker, loss.server); });
  expect_next();
}

// Returns when word of a loss comes to a process: not before that of an earlier one.
Instant SimulatedLosses::soon(int who) {
  const Instant when = time_.now() + std::chrono::microseconds(random_.below(200'000));
  return told_[who] = std::max(told_[who], when);
}

void SimulatedLosses::tell_server(int server, const Loss& loss) {
  if (is_dead(server)) return;
  const auto number = static_cast<std::size_t>(server);
  Loss news;
  if (loss.server >= 0 && lost_servers_[number].insert(loss.server).second)
    news.server = loss.server;
  if (loss.worker >= 0 && gone_[number].insert(loss.worker).second) news.worker = loss.worker;
  owner_.tell_server(server, news);
}

void SimulatedLosses::end() {
  over_ = true;
  for (std::size_t i = 0; i < happened_; ++i)
    for (int server = 0; server < job_.plan.servers; ++server) tell_server(server, job_.losses[i]);
}

}  // namespace shoal::table
