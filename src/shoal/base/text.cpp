// Implements small helpers on words: distances, lists, numbers.
#include "shoal/base/text.h"

#include <algorithm>
#include <cctype>
#include <limits>

namespace shoal {
namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

// Returns how many letters two words share from their beginning.
std::size_t same_start(std::string_view a, std::string_view b) {
  std::size_t n = 0;
  while (n < a.size() && n < b.size() && lower(a[n]) == lower(b[n])) ++n;
  return n;
}

// Returns how many slips may lie between a word and the one that was meant: one in four letters,
// without an ending that both have behind a '_', and never another first letter in place of the
// right one.
int most_slips(std::string_view word, std::string_view meant) {
  const std::size_t ending = word.rfind('_');
  const bool shared = ending != std::string_view::npos && ending > 0 &&
                      meant.size() > word.size() - ending && meant.ends_with(word.substr(ending));
  const std::size_t letters = shared ? ending : word.size();
  const bool other_first = letters > 1 && meant.size() > 1 && lower(word[0]) != lower(meant[0]) &&
                           lower(word[1]) == lower(meant[1]) && lower(word[0]) != lower(meant[1]);
  return other_first ? 0 : std::clamp(static_cast<int>(letters) / 4, 1, 3);
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  const auto rows = a.size() + 1, columns = b.size() + 1;
  std::vector<int> cost(rows * columns);
  const auto at = [&](std::size_t i, std::size_t j) -> int& { return cost[i * columns + j]; };
  for (std::size_t i = 0; i < rows; ++i) at(i, 0) = static_cast<int>(i);
  for (std::size_t j = 0; j < columns; ++j) at(0, j) = static_cast<int>(j);
  for (std::size_t i = 1; i < rows; ++i) {
    for (std::size_t j = 1; j < columns; ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(rows - 1, columns - 1);
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  int best = std::numeric_limits<int>::max();
  std::string found;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate), limit = most_slips(word, candidate);
    const bool better = distance < best ||
                        (distance == best && same_start(word, candidate) > same_start(word, found));
    if (distance <= limit && better) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? "" : "; did you mean '" + near + "'?";
}

std::string known_words(std::string_view word, std::span<const std::string> candidates) {
  const std::string hint = did_you_mean(word, candidates);
  return hint + (hint.empty() ? "; known: " : " Known: ") + join(candidates);
}

std::string join(std::span<const std::string> words, std::string_view separator) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += separator;
    out += word;
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    const std::string_view part = trimmed(text.substr(0, end));
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string hex(std::string_view bytes, std::string_view separator) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char byte : bytes) {
    if (!out.empty()) out += separator;
    out += {kDigits[byte >> 4 & 15], kDigits[byte & 15]};
  }
  return out;
}

}  // namespace shoal
