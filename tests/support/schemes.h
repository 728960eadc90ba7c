// Schemes by their words.
#pragma once

#include <memory>
#include <string_view>

#include "shoal/table/scheme.h"

namespace shoal::table {

// Returns the scheme of words, which are right in a test.
inline SchemeSpec scheme_of(std::string_view words) { return parse_scheme(words).value(); }

inline Result<std::unique_ptr<Scheme>> make_scheme(std::string_view words) {
  const Result<SchemeSpec> spec = parse_scheme(words);
  return spec.ok() ? spec.value().make() : spec.error();
}

// Returns "" for no scheme.
inline std::string words_of(const std::optional<SchemeSpec>& spec) {
  return spec ? spec->words() : "";
}

}  // namespace shoal::table
