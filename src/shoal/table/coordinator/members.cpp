#include "shoal/table/coordinator/members.h"

#include <bit>

#include "shoal/base/bytes.h"
#include "shoal/base/text.h"

namespace shoal::table {

std::vector<Rank> Members::which(const std::function<bool(const Member&)>& test) const {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < size(); ++rank)
    if (test(members_[rank])) ranks.push_back(rank);
  return ranks;
}

Rank Members::rank_of_worker(std::int32_t worker) const {
  return which([&](const Member& member) { return member.worker == worker; }).at(0);
}

std::string Members::name(Rank rank) const {
  std::vector<std::string> known;
  if (rank < size() && !members_[rank].body.host.empty())
    known.push_back("host " + members_[rank].body.host);
  if (rank < size() && members_[rank].clock >= 0)
    known.push_back(str("last clock ", members_[rank].clock));
  return str("rank ", rank, known.empty() ? "" : " (" + join(known) + ")");
}

std::string Members::names(std::span<const Rank> ranks) const {
  std::vector<std::string> words;
  for (const Rank rank : ranks) words.push_back(name(rank));
  return join(words);
}

std::string Members::waiting_for(const std::string& what, std::vector<Rank> ranks,
                                 const std::function<bool(Rank)>& has) const {
  std::erase_if(ranks, has);
  return str(what, ": waiting for ", names(ranks));
}

std::string numbers_to_bytes(std::span<const double> numbers) {
  std::string bytes;
  for (const double number : numbers) put_le(bytes, std::bit_cast<std::uint64_t>(number));
  return bytes;
}

std::vector<double> bytes_to_numbers(std::string_view bytes) {
  std::vector<double> numbers;
  for (; bytes.size() >= sizeof(double); bytes.remove_prefix(sizeof(double)))
    numbers.push_back(std::bit_cast<double>(get_le<std::uint64_t>(bytes)));
  return numbers;
}

const char* name_of(Topic topic) {
  switch (topic) {
    case Topic::kJoin: return "join";
    case Topic::kBarrier: return "barrier";
    case Topic::kSum: return "sum";
    case Topic::kGather: return "gather";
    case Topic::kShare: return "share";
    case Topic::kMeet: return "meet";
    case Topic::kOutputs: return "outputs";
    case Topic::kPause: return "pause";
    case Topic::kPaused: return "paused";
    case Topic::kDone: return "done";
    case Topic::kReport: return "report";
    case Topic::kHeard: return "heard";
    case Topic::kBegin: return "begin";
    case Topic::kJudge: return "judge";
    case Topic::kScheme: return "scheme";
    case Topic::kRegroup: return "regroup";
    case Topic::kLeave: return "leave";
    case Topic::kEnroll: return "enroll";
  }
  return "unknown";
}

}  // namespace shoal::table
