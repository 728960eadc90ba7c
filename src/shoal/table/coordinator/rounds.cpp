#include "shoal/table/coordinator/rounds.h"

#include "shoal/base/bytes.h"
#include "shoal/base/text.h"

namespace shoal::table {
namespace {

std::string name_of(const std::pair<Topic, Clock>& key) {
  return str(table::name_of(key.first), ' ', key.second);
}

}  // namespace

bool Rounds::is_one(Topic topic) {
  return topic == Topic::kBarrier || topic == Topic::kSum || topic == Topic::kGather ||
         topic == Topic::kShare || topic == Topic::kMeet || topic == Topic::kRegroup;
}

Status Rounds::ask(Rank rank, const Ask& ask) {
  const Key key{ask.topic, ask.clock};
  Worker& worker = workers_[rank];
  if (worker.answer && worker.last == key) {
    members_.say(rank, Answer{ask.topic, ask.clock, *worker.answer});
    return {};
  }
  const auto before = worker.answered.find(ask.topic);
  if (before != worker.answered.end() && ask.clock <= before->second) return {};
  if (worker.waits == key) return {};
  if (worker.waits)
    return members_.broken(rank, " asks for ", name_of(key), " while it waits in ",
                           name_of(*worker.waits), "; a worker waits in one round at a time");
  if (ask.topic == Topic::kSum && !whole_numbers(ask.body))
    return members_.broken(rank, " sends ", ask.body.size(), " bytes for ", name_of(key),
                           ", which are no float64s");
  worker.waits = key;
  open_[key][rank] = ask.body;
  close();
  return {};
}

void Rounds::close() {
  for (auto round = open_.begin(); round != open_.end();) {
    if (!complete(round->first, round->second)) {
      ++round;
      continue;
    }
    answer(round->first, round->second);
    round = open_.erase(round);
  }
}

bool Rounds::complete(const Key& key, const Round& round) const {
  if ((key.first == Topic::kMeet || key.first == Topic::kRegroup) && agreement_.open())
    return false;
  return std::ranges::all_of(members_.active(), [&](Rank rank) { return round.contains(rank); });
}

void Rounds::answer(const Key& key, const Round& round) {
  const Rank chief = members_.rank_of_worker(0);
  std::string chiefs, others;
  if (key.first == Topic::kMeet) {
    chiefs = others = encode(agreement_.take());
  } else if (key.first == Topic::kRegroup) {
    Result<std::string> roster = regroup_(round);
    if (!roster.ok()) {
      mismatch_ = roster.error();
      return;
    }
    chiefs = others = std::move(roster).value();
  } else if (key.first == Topic::kGather) {
    chiefs = gathered(round);
  } else if (key.first == Topic::kSum) {
    const std::optional<std::string> total = sum(key, round);
    if (!total) return;
    chiefs = others = *total;
  } else if (key.first == Topic::kShare) {
    if (!round.contains(chief)) {
      mismatch_ = broken(name_of(key), " can have no answer: worker 0, ", members_.name(chief),
                         ", is done already");
      return;
    }
    chiefs = others = round.at(chief);
  } else if (const auto first = round.find(chief); first != round.end()) {
    chiefs = others = first->second;
  }
  const auto to_chief = std::make_shared<const std::string>(std::move(chiefs));
  const auto to_others = std::make_shared<const std::string>(std::move(others));
  for (const auto& [rank, body] : round) {
    Worker& worker = workers_[rank];
    worker.waits.reset();
    worker.last = key;
    worker.answered[key.first] = key.second;
    worker.answer = rank == chief ? to_chief : to_others;
    members_.say(rank, Answer{key.first, key.second, *worker.answer});
  }
}

// In the order of workers, so that the same numbers give the same bits whoever came first.
std::optional<std::string> Rounds::sum(const Key& key, const Round& round) {
  std::vector<double> total = bytes_to_numbers(round.begin()->second);
  for (auto next = std::next(round.begin()); next != round.end(); ++next) {
    const std::vector<double> numbers = bytes_to_numbers(next->second);
    if (numbers.size() != total.size()) {
      mismatch_ = broken("in ", name_of(key), " ", members_.name(next->first), " has ",
                         numbers.size(), " numbers where ", members_.name(round.begin()->first),
                         " has ", total.size(), "; do both train the same net?");
      return std::nullopt;
    }
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += numbers[i];
  }
  return numbers_to_bytes(total);
}

std::string Rounds::gathered(const Round& round) const {
  std::string bytes;
  for (const Rank rank : members_.which([](const Member& member) { return member.worker >= 0; })) {
    const auto body = round.find(rank), stands_in = stand_ins_.find(rank);
    std::string_view part;
    if (body != round.end())
      part = body->second;
    else if (stands_in != stand_ins_.end())
      part = stands_in->second;
    put_le(bytes, static_cast<std::uint32_t>(part.size()));
    bytes += part;
  }
  return bytes;
}

std::vector<std::string> Rounds::places() const {
  std::vector<std::string> lines;
  for (const auto& [key, round] : open_) {
    std::vector<Rank> ranks;
    for (const auto& [rank, body] : round) ranks.push_back(rank);
    lines.push_back(str(members_.names(ranks), " in ", name_of(key)));
  }
  return lines;
}

std::vector<std::string> Rounds::waiting_for() const {
  std::vector<std::string> lines;
  for (const auto& round : open_)
    lines.push_back(members_.waiting_for(name_of(round.first), members_.active(),
                                         [&](Rank rank) { return round.second.contains(rank); }));
  return lines;
}

}  // namespace shoal::table
