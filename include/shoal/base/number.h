// Reads and writes numbers.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace shoal {

// The number that the whole word is; nothing if it is none, or one that T does not hold.
template <class T>
std::optional<T> number_in(std::string_view word) {
  T number{};
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}
// Likewise, from `least` to `most`.
template <class T>
std::optional<T> number_in(std::string_view word, T least, T most) {
  const std::optional<T> number = number_in<T>(word);
  return number && *number >= least && *number <= most ? number : std::nullopt;
}
// The shortest word that is this number.
template <class T>
std::string shortest(T number) {
  char word[32];
  return {word, std::to_chars(word, word + sizeof word, number).ptr};
}

}  // namespace shoal
