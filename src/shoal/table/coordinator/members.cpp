#include "shoal/table/coordinator/members.h"

#include <bit>

#include "shoal/base/bytes.h"

namespace shoal::table {

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
