// Schemes by their words.
#pragma once

#include <memory>
#include <string_view>

#include "shoal/table/scheme.h"

namespace shoal::table {

// Words that a test gives make sense.
inline SchemeSpec scheme_of(std::string_view words) { return parse_scheme(words).value(); }

inline Result<std::unique_ptr<Scheme>> make_scheme(std::string_view words) {
  const Result<SchemeSpec> spec = parse_scheme(words);
  return spec.ok() ? spec.value().make() : spec.error();
}

// "" of none.
inline std::string words_of(const std::optional<SchemeSpec>& spec) {
  return spec ? spec->words() : "";
}

}  // namespace shoal::table
