#include "support/history.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "shoal/base/error.h"
#include "shoal/base/random.h"

namespace shoal::table {
namespace {

constexpr int kBase = 16;

std::string push_of(int worker, Clock clock) {
  return str("worker ", worker, "'s push of clock ", clock);
}

// Returns digit `place` of a number that was checked to be whole.
int digit_of(float number, Clock place) {
  return static_cast<int>(static_cast<std::int64_t>(number) >> (4 * place) & (kBase - 1));
}

bool same_bits(const std::vector<float>& one, std::span<const float> other) {
  return one.size() == other.size() &&
         std::memcmp(one.data(), other.data(), other.size_bytes()) == 0;
}

}  // namespace

void make_gradient(std::uint64_t seed, int worker, Clock clock, RowId row, Clock start,
                   std::span<float> out) {
  const std::size_t owned = out.size() - kFractions;
  std::fill(out.begin(), out.end(), 0.f);
  out[static_cast<std::size_t>(worker)] =
      -kUnit * std::ldexp(1.f, static_cast<int>(4 * (clock - start)));
  const std::uint64_t which = static_cast<std::uint64_t>(clock) << 40 | std::uint64_t{row} << 8 |
                              static_cast<std::uint64_t>(worker);
  const std::array<std::uint32_t, 4> words = philox(seed, 7, which);
  for (std::size_t i = owned; i < out.size(); ++i) out[i] = to_unit(words[i - owned]) * 2 - 1;
}

// Returns whether a push can come about with this digit: averaged with what was pushed of the
// clock, or with as many workers as there were.
bool History::could_be(int digit, int worker, Clock clock) const {
  if (rules_.skipped.contains({worker, clock})) return false;
  if (!rules_.lockstep) return kUnit % digit == 0 && kUnit / digit <= rules_.workers;
  int counting = 0, lost = 0;
  for (int other = 0; other < rules_.workers; ++other) {
    const bool counts = clock < rules_.stops[static_cast<std::size_t>(other)] &&
                        !rules_.skipped.contains({other, clock});
    (rules_.lost.contains(other) ? lost : counting) += counts ? 1 : 0;
  }
  for (int of_lost = rules_.lost.contains(worker) ? 1 : 0; of_lost <= lost; ++of_lost)
    if (counting + of_lost > 0 && digit == kUnit / (counting + of_lost)) return true;
  return false;
}

bool History::contains(std::span<const float> numbers, int worker, Clock clock) {
  return digit_of(numbers[static_cast<std::size_t>(worker)], clock - rules_.start) != 0;
}

// Checks that no push is there twice, in part, or before it was made.
void History::check_contents(const std::string& where, RowId row, std::span<const float> numbers) {
  for (int worker = 0; worker < rules_.workers; ++worker) {
    const float number = numbers[static_cast<std::size_t>(worker)];
    if (!(number >= 0 && number < 0x1p24f && number == std::floor(number))) {
      return say(str("I1: ", where, ": the sum of worker ", worker, "'s pushes is ", number));
    }
    for (Clock clock = rules_.start; clock <= rules_.start + kMostClocks; ++clock) {
      const int digit = digit_of(number, clock - rules_.start);
      if (digit == 0) continue;
      if (!could_be(digit, worker, clock))
        return say(str("I1: ", where, ": ", digit, "/", kUnit, " of ", push_of(worker, clock)));
      const auto known = pushed_.find({worker, row});
      if (known == pushed_.end() || known->second < clock)
        return say(str("I1: ", where, ": ", push_of(worker, clock), ", not made yet"));
      const auto allowed = allowed_.find({worker, row});
      if (allowed != allowed_.end() && !allowed->second.contains(clock))
        return say(str("I1: ", where, ": ", push_of(worker, clock), ", which was lost before"));
    }
  }
}

// Returns the change of the row since the start: exact, as far as the numbers are checked.
std::vector<float> History::since_start(RowId row, std::span<const float> numbers) const {
  std::vector<float> more(numbers.begin(), numbers.end());
  if (!rules_.base.empty())
    for (std::size_t i = 0; i < more.size(); ++i) more[i] -= rules_.base[row][i];
  return more;
}

void History::cut(int worker, RowId row, Clock end, std::span<const float> numbers) {
  if (!rules_.exact) return;
  const std::vector<float> more = since_start(row, numbers);
  std::set<Clock>& allowed = allowed_[{worker, row}];
  for (Clock clock = rules_.start; clock <= rules_.start + kMostClocks; ++clock)
    if (clock < end || contains(more, worker, clock)) allowed.insert(clock);
}

void History::pushed(int worker, RowId row, Clock clock) { pushed_[{worker, row}] = clock; }

void History::answered(RowId row, Version version, std::span<const float> numbers) {
  const auto [known, is_new] =
      versions_.try_emplace({row, version}, numbers.begin(), numbers.end());
  if (!is_new) {
    if (!rules_.own_answers && !same_bits(known->second, numbers))
      say(str("I3: row ", row, " has two contents of version ", version));
    return;
  }
  if (version == rules_.start && !rules_.base.empty() && !same_bits(rules_.base[row], numbers))
    say(str("I7: row ", row,
            " is not, at the start of the generation, what it was at the end of the last"));
  if (!rules_.exact) return;
  const std::vector<float> more = since_start(row, numbers);
  check_contents(str("row ", row, ", version ", version), row, more);
  Version updates = 0;
  for (Clock clock = rules_.start; clock <= rules_.start + kMostClocks; ++clock) {
    int merged = 0;
    int digit = 0;
    for (int worker = 0; worker < rules_.workers; ++worker)
      if (contains(more, worker, clock)) {
        ++merged;
        digit = digit_of(more[static_cast<std::size_t>(worker)], clock - rules_.start);
      }
    if (rules_.lockstep && merged > 0 && digit != kUnit / merged)
      say(str("I1: row ", row, " has the mean of ", kUnit / digit, " pushes of clock ", clock,
              ", and ", merged, " are in it"));
    updates += rules_.lockstep ? (merged > 0 ? 1 : 0) : merged;
  }
  if (version != rules_.start + updates) {
    say(str("I3: row ", row, " has version ", version, " after ", updates, " updates since ",
            rules_.start));
  }
}

void History::read(int worker, RowId row, Clock clock, std::span<const float> numbers) {
  reads_[{worker, clock, row}].assign(numbers.begin(), numbers.end());
  if (!rules_.exact) return;
  const std::string where = str("worker ", worker, " at clock ", clock, ", row ", row);
  const std::vector<float> more = since_start(row, numbers);
  check_contents(where, row, more);
  if (rules_.stale.contains(row)) return;
  for (int other = 0; other < rules_.workers; ++other) {
    const Clock stop = rules_.stops[static_cast<std::size_t>(other)];
    if (rules_.lost.contains(other)) continue;
    const Clock bound = rules_.staleness == kUnbounded ? rules_.start : clock - rules_.staleness;
    const Clock due = std::min(stop, other == worker ? clock : bound);
    for (Clock made = begin_of(other); made < stop; ++made) {
      const bool there = contains(more, other, made);
      if (made < due && !there && !rules_.skipped.contains({other, made}))
        say(str("I2: ", where, ": without ", push_of(other, made)));
      if (made >= clock && there && rules_.lockstep)
        say(str("I5: ", where, ": with ", push_of(other, made)));
    }
  }
}

void History::ended(RowId row, Version version, std::span<const float> numbers) {
  answered(row, version, numbers);
  reads_[{-1, 0, row}].assign(numbers.begin(), numbers.end());
  if (!rules_.exact) return;
  const std::vector<float> more = since_start(row, numbers);
  for (int worker = 0; worker < rules_.workers; ++worker) {
    if (rules_.lost.contains(worker)) continue;
    for (Clock clock = begin_of(worker); clock < rules_.stops[static_cast<std::size_t>(worker)];
         ++clock) {
      if (!contains(more, worker, clock) && !rules_.skipped.contains({worker, clock}))
        say(str("I1: row ", row, " at the end: without ", push_of(worker, clock)));
    }
  }
}

std::string difference(const History::Reads& one, const History::Reads& other) {
  if (one.size() != other.size()) return str(one.size(), " reads, not ", other.size());
  for (auto left = one.begin(), right = other.begin(); left != one.end(); ++left, ++right) {
    if (left->first == right->first && same_bits(left->second, right->second)) continue;
    const auto& [worker, clock, row] = left->first;
    return worker < 0 ? str("row ", row, " at the end")
                      : str("worker ", worker, " at clock ", clock, ", row ", row);
  }
  return "";
}

}  // namespace shoal::table
