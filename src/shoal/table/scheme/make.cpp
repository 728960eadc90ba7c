#include "shoal/table/scheme/make.h"

#include <algorithm>

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

}  // namespace

Result<std::unique_ptr<Scheme>> make_scheme(std::string_view text) {
  const std::vector<std::string> words = split(text, ' ');
  const auto wrong = [&](const auto&... what) {
    return Error{Code::kConfig, str("scheme '", join(words, " "), "': ", what...)};
  };
  const std::vector<std::string> names = scheme_names();
  if (words.empty()) return wrong("it has no name; known: ", join(names));
  for (const auto& entry : kSchemes) {
    if (words.front() != entry.name) continue;
    Parameters parameters(words);
    std::unique_ptr<Scheme> made = entry.make(parameters);
    if (const std::string what = parameters.wrong(); !what.empty()) return wrong(what);
    return made;
  }
  return wrong("there is no '", words.front(), "'", known_words(words.front(), names));
}

std::string text_of(const Groups& groups) {
  std::string text;
  for (const std::vector<int>& group : groups)
    for (std::size_t i = 0; i < group.size(); ++i)
      text += str(i > 0 ? "," : text.empty() ? "" : "|", group[i]);
  return text;
}

std::string SchemeSpec::words() const {
  std::string words = name;
  if (!groups.empty()) words += " groups=" + text_of(groups);
  for (const std::string& parameter : parameters) words += " " + parameter;
  return words;
}

Result<std::unique_ptr<Scheme>> SchemeSpec::make() const { return make_scheme(words()); }

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const auto& entry : kSchemes) names.emplace_back(entry.name);
  return names;
}

}  // namespace shoal::table
