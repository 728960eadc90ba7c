#include "make.h"

#include <algorithm>
#include <utility>

#include "shoal/base/text.h"

namespace shoal::table {
namespace {

constexpr struct {
  const char* name;
  const char* parameters;   // their names, cut at blanks
  Result<std::unique_ptr<Scheme>> (*make)(const Parameters&);
} kSchemes[] = {
#define SCHEME(name, parameters) {#name, parameters, make_##name},
#include "schemes.def"
#undef SCHEME
};

Error wrong(std::string_view words, const std::string& what) {
  return {Code::kConfig, str("scheme '", words, "': ", what)};
}

}  // namespace

Result<std::unique_ptr<Scheme>> make_scheme(std::string_view words) {
  Parameters parameters = split(words, ' ');
  if (parameters.empty()) return wrong(words, str("it has no name; known: ", join(scheme_names())));
  const std::string name = parameters.front();
  parameters.erase(parameters.begin());
  std::vector<std::string> names;
  for (const auto& entry : kSchemes) {
    names.emplace_back(entry.name);
    if (name != entry.name) continue;
    const std::size_t wanted = split(entry.parameters, ' ').size();
    if (parameters.size() != wanted)
      return wrong(words, str(name, " takes ", wanted, " parameters, and ", parameters.size(), " are given; known: ", join(scheme_names())));
    auto made = entry.make(parameters);
    if (!made.ok()) return wrong(words, made.error().message);
    return made;
  }
  return wrong(words, str("there is no '", name, "'", did_you_mean(name, names), "; known: ", join(scheme_names())));
}

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const auto& entry : kSchemes) names.push_back(entry.parameters[0] == '\0' ? entry.name : str(entry.name, ' ', entry.parameters));
  return names;
}

Clock slowest(const RowView& row) {
  Clock least = kUnbounded;
  for (const WorkerView& worker : row.workers)
    if (worker.counts) least = std::min(least, worker.pushed);
  return least;
}

}  // namespace shoal::table
