#include "shoal/parallel/rows/push_states.h"

#include <algorithm>
#include <cstring>

#include "shoal/base/log.h"
#include "shoal/net/net.h"
#include "shoal/table/codec.h"

namespace shoal::parallel {
namespace {

using table::RowId;

void put(std::string& out, std::span<const float> numbers) {
  const auto count = static_cast<std::uint64_t>(numbers.size());
  out.append(reinterpret_cast<const char*>(&count), sizeof count);
  out.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
}

// Takes numbers from the front of `bytes`. Returns false if they are too few.
bool get(std::string_view& bytes, std::vector<float>& numbers) {
  std::uint64_t count = 0;
  if (bytes.size() < sizeof count) return false;
  std::memcpy(&count, bytes.data(), sizeof count);
  bytes.remove_prefix(sizeof count);
  if (count > bytes.size() / sizeof(float)) return false;
  numbers.resize(count);
  if (count > 0) std::memcpy(numbers.data(), bytes.data(), count * sizeof(float));
  bytes.remove_prefix(count * sizeof(float));
  return true;
}

}  // namespace

std::string encode(const ParamStates& states) {
  std::string out;
  for (const ParamState& one : states) {
    put(out, one.left_out);
    put(out, one.velocity);
    put(out, {&one.rate, 1});
  }
  return out;
}

Result<ParamStates> decode_param_states(std::string_view bytes) {
  ParamStates states;
  while (!bytes.empty()) {
    ParamState& one = states.emplace_back();
    std::vector<float> rate;
    if (!get(bytes, one.left_out) || !get(bytes, one.velocity) || !get(bytes, rate) ||
        rate.size() != 1)
      return Error{Code::kConfig, str("it ends within the state of param ", states.size() - 1)};
    one.rate = rate[0];
  }
  return states;
}

PushStates::PushStates(const RowMap& map, const RowCodecs& codecs)
    : map_(map), codecs_(codecs), states_(map.rows().size()) {
  for (RowId row = 0; row < states_.size(); ++row) any_ = any_ || spec(row).feedback;
}

table::CodecState PushStates::of(RowId row, std::size_t length) {
  if (row >= states_.size()) return {};
  states_[row].resize(length);
  return states_[row];
}

std::size_t PushStates::bytes() const {
  std::size_t bytes = 0;
  for (RowId row = 0; row < states_.size(); ++row)
    if (spec(row).feedback)
      bytes += (spec(row).momentum > 0 ? 2 : 1) * map_.rows()[row].length * sizeof(float);
  return bytes;
}

PushStates::Parts PushStates::parts_of(RowId row) const {
  if (!spec(row).feedback) return {};
  const std::size_t length = map_.rows()[row].length;
  const bool has_velocity = spec(row).momentum > 0;
  std::vector<float>& state = states_[row];
  if (state.empty()) state.resize(table::make_codec(spec(row))->state_length(length));
  const std::span<float> all(state);
  return {all.first(1), all.subspan(1, length),
          has_velocity ? all.subspan(1 + length, length) : std::span<float>()};
}

ParamStates PushStates::save(std::size_t params) const {
  ParamStates states(params);
  const auto add = [](std::vector<float>& to, std::size_t offset, std::span<const float> part) {
    if (part.empty()) return;
    to.resize(std::max(to.size(), offset + part.size()));
    std::ranges::copy(part, to.begin() + static_cast<std::ptrdiff_t>(offset));
  };
  for (RowId row = 0; row < states_.size(); ++row) {
    if (!spec(row).feedback) continue;
    const RowMap::Piece at = map_.piece(row);
    const Parts parts = parts_of(row);
    states[at.param].rate = parts.rate[0];
    add(states[at.param].left_out, at.offset, parts.left_out);
    add(states[at.param].velocity, at.offset, parts.velocity);
  }
  return states;
}

void PushStates::take(const ParamStates& states) {
  const auto give = [](std::span<const float> from, std::size_t offset, std::span<float> part) {
    if (offset + part.size() <= from.size())
      std::ranges::copy(from.subspan(offset, part.size()), part.begin());
  };
  for (RowId row = 0; row < states_.size(); ++row) {
    const RowMap::Piece at = map_.piece(row);
    if (!spec(row).feedback || at.param >= states.size()) continue;
    const Parts parts = parts_of(row);
    parts.rate[0] = states[at.param].rate;
    give(states[at.param].left_out, at.offset, parts.left_out);
    give(states[at.param].velocity, at.offset, parts.velocity);
  }
}

}  // namespace shoal::parallel
