#include "shoal/table/scheme/make.h"

#include <algorithm>
#include <utility>

#include "shoal/base/text.h"

namespace shoal::table {
namespace {

constexpr struct {
  const char* name;
  std::unique_ptr<Scheme> (*make)(Parameters&);
} kSchemes[] = {
#define SCHEME(name) {#name, make_##name},
#include "shoal/table/scheme/schemes.def"
#undef SCHEME
};

Error wrong(std::string_view words, const std::string& what) {
  return {Code::kConfig, str("scheme '", words, "': ", what)};
}

}  // namespace

Result<std::unique_ptr<Scheme>> make_scheme(std::string_view text) {
  const std::vector<std::string> words = split(text, ' '), names = scheme_names();
  if (words.empty()) return wrong(text, str("it has no name; known: ", join(names)));
  for (const auto& entry : kSchemes) {
    if (words.front() != entry.name) continue;
    Parameters parameters(words);
    std::unique_ptr<Scheme> made = entry.make(parameters);
    if (const std::string what = parameters.wrong(); !what.empty()) return wrong(text, what);
    return made;
  }
  return wrong(text, str("there is no '", words.front(), "'", did_you_mean(words.front(), names),
                         "; known: ", join(names)));
}

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const auto& entry : kSchemes) names.emplace_back(entry.name);
  return names;
}

Clock slowest(const RowView& row) {
  Clock least = kUnbounded;
  for (const WorkerView& worker : row.workers)
    if (worker.counts) least = std::min(least, worker.pushed);
  return least;
}

}  // namespace shoal::table
