// The words after a scheme's name, each "key=value". A scheme asks for the keys it has; what is
// wrong with their values, and keys that it has not, become one error, which make_scheme
// gives out. So what is asked always has an answer, if only for an object that is thrown away.
#pragma once

#include <map>
#include <type_traits>

#include "shoal/base/text.h"
#include "shoal/table/scheme.h"

namespace shoal::table {

inline constexpr std::int64_t kMostSteps = 1'000'000;  // local ones of a task

// A word and what it means.
template <class E>
struct Choice {
  const char* word;
  E value;
};

// The range of a number, both ends included, but for `above`.
struct Range {
  double above = -std::numeric_limits<double>::infinity();
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
};

class Parameters {
 public:
  // `words`: all of a scheme's, its name first.
  explicit Parameters(std::span<const std::string> words);

  // The first word may stand without its key, which is this: "ssp 2".
  void name_first(const std::string& key);
  bool has(const std::string& key) const { return given_.contains(key); }

  // The value of a key. Without `otherwise` it must be given. What differs from `otherwise` goes
  // into spec(), in the order of asking.
  double number(const std::string& key, const Range& range,
                std::optional<double> otherwise = std::nullopt);
  std::int64_t whole(const std::string& key, std::int64_t least, std::int64_t most,
                     std::optional<std::int64_t> otherwise = std::nullopt);
  // "true" or "false", which it is if it is not given.
  bool yes_or_no(const std::string& key);
  // Clocks, 0 or more; "unbounded" is kUnbounded.
  Clock clocks(const std::string& key, std::optional<Clock> otherwise = std::nullopt);
  // "0,2|1,3": groups of different workers, none empty. Always required.
  void groups(const std::string& key);
  template <class E>
  E one_of(const std::string& key, std::span<const std::type_identity_t<Choice<E>>> choices,
           E usual) {
    const std::optional<std::string> text = take(key, false);
    if (!text) return usual;
    std::vector<std::string> known;
    for (const auto& [word, value] : choices) {
      known.emplace_back(word);
      if (*text != word) continue;
      if (value != usual) write(key, *text);
      return value;
    }
    refuse(str(key, " is '", *text, "'", known_words(*text, known)));
    return choices[0].value;
  }
  // Whatever else is wrong. The first complaint is the one that is heard.
  void refuse(const std::string& why);

  const SchemeSpec& spec() const { return spec_; }
  // The first thing wrong, "" if nothing is: to be asked after the scheme asked all it has.
  std::string wrong() const;

 private:
  std::optional<std::string> take(const std::string& key, bool required);
  template <class T>
  T value_of(const std::string& key, std::optional<T> otherwise, T usual, const auto& is_good,
             const auto& what);
  void write(const std::string& key, const std::string& value);

  std::optional<std::string> bare_;  // the first word, if it has no key
  std::string first_;                // the key it may do without
  std::map<std::string, std::string> given_;
  std::vector<std::string> known_;  // keys that the scheme has, with what else is given
  SchemeSpec spec_;
  std::string wrong_;
};

}  // namespace shoal::table
