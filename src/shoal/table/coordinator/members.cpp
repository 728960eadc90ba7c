#include "shoal/table/coordinator/members.h"

namespace shoal::table {

std::string numbers_to_bytes(std::span<const double> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()};
}

std::vector<double> bytes_to_numbers(std::string_view bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  std::ranges::copy(bytes, reinterpret_cast<char*>(numbers.data()));
  return numbers;
}

const char* name_of(Topic topic) {
  constexpr const char* kNames[] = {"unknown", "join",       "barrier", "sum",   "gather",  "share",
                                    "outputs", "pause",      "paused",  "done",  "report",  "heard",
                                    "begin",   "judge",      "scheme",  "meet",  "regroup", "leave",
                                    "enroll",  "tolerances", "reunite", "record"};
  const auto number = static_cast<std::size_t>(topic);
  return kNames[number < std::size(kNames) ? number : 0];
}

}  // namespace shoal::table
