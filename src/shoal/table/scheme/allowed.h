// The values that a parameter of a scheme may have, as fields.def says them, and their words.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "shoal/base/number.h"
#include "shoal/base/text.h"
#include "shoal/table/scheme_spec.h"

namespace shoal::table {

inline constexpr std::int64_t kMostSteps = 1'000'000;  // local ones of a task
inline constexpr double kMostMomentum = 0.9999;        // 1 never ends

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The range of a number, both ends included, but for `least` if it is open.
struct Allowed {
  double least = 0, most = kInfinity;
  bool open = false;
  bool clocks = false;     // "unbounded" is kUnbounded
  const char* words = "";  // of an enum or a bool, with commas, in the order of its values
};
constexpr Allowed above(double least, double most = kInfinity) { return {least, most, true}; }
constexpr Allowed at_least(double least) { return {least}; }
constexpr Allowed between(double least, double most) { return {least, most}; }
constexpr Allowed clocks() { return {.clocks = true}; }
constexpr Allowed words(const char* words) { return {.words = words}; }

template <class T>
constexpr bool kIsNumber = std::is_same_v<T, Count> || std::is_same_v<T, double>;

template <class T>
std::string text_of(const T& value, const Allowed& allowed) {
  if constexpr (std::is_same_v<T, Groups>)
    return text_of(value);
  else if constexpr (!kIsNumber<T>)
    return split(allowed.words, ',').at(static_cast<std::size_t>(value));
  else
    return allowed.clocks && value == static_cast<T>(kUnbounded) ? "unbounded" : shortest(value);
}

// "a whole number, 0 to 9", "keep, reset, average".
template <class T>
std::string described(const Allowed& allowed) {
  if constexpr (!kIsNumber<T>) {
    return join(split(allowed.words, ','));
  } else {
    const auto number = [](double end) { return shortest(static_cast<T>(end)); };
    if (allowed.clocks) return "a whole number of clocks, 0 or more, or \"unbounded\"";
    if (std::is_integral_v<T>)
      return str("a whole number, ", number(allowed.least), " to ", number(allowed.most));
    return str("a number, ", allowed.open ? "above " : "", number(allowed.least),
               allowed.open ? "" : " or more",
               allowed.most < kInfinity ? ", at most " + number(allowed.most) : "");
  }
}

template <class T>
std::string not_allowed(const char* name, std::string_view text, const Allowed& allowed) {
  return str(name, " is ", text, "; it must be ", described<T>(allowed));
}

// Returns why the parameter cannot have this value; "" if it can.
template <class T>
std::string why_not(const char* name, const T& value, const Allowed& allowed) {
  if constexpr (!kIsNumber<T>) {
    return "";
  } else {
    const auto number = static_cast<double>(value);
    const bool fits = allowed.open ? number > allowed.least : number >= allowed.least;
    return fits && number < kInfinity && number <= allowed.most
               ? ""
               : not_allowed<T>(name, text_of(value, allowed), allowed);
  }
}

}  // namespace shoal::table
