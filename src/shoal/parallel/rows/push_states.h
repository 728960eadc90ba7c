// Holds what the codecs of a worker's pushes keep of each row. It is saved by params: the rows of
// another generation may cut them elsewhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/rows/row_codecs.h"

namespace shoal::parallel {

// The numbers that one codec has left out of a param, and its momentum; empty where it keeps none.
struct ParamState {
  std::vector<float> left_out, velocity;
  float rate = 0;  // of the last push
  bool operator==(const ParamState&) const = default;
};
using ParamStates = std::vector<ParamState>;  // by param of a net

// Write states as bytes, and read them back. The error says what is wrong with the bytes.
std::string encode(const ParamStates& states);
Result<ParamStates> decode_param_states(std::string_view bytes);

class PushStates {
 public:
  // Makes the states, zeros, for the codecs of the map's rows. Both outlive this.
  PushStates(const RowMap& map, const RowCodecs& codecs);

  // Returns the memory of a row's state, as Table::hold_states() wants it.
  table::CodecState of(table::RowId row, std::size_t length);
  // Returns whether any codec keeps something.
  bool any() const { return any_; }
  std::size_t bytes() const;
  // Returns the states by param, and sets them. A param of another size, or whose codec keeps
  // something else, has zeros then.
  ParamStates save(std::size_t params) const;
  void take(const ParamStates& states);

 private:
  // The parts of a row's state, as error_feedback.h has them.
  struct Parts {
    std::span<float> rate, left_out, velocity;
  };
  Parts parts_of(table::RowId row) const;

  const table::CodecSpec& spec(table::RowId row) const { return codecs_.pushes(row); }

  const RowMap& map_;
  const RowCodecs& codecs_;
  mutable std::vector<std::vector<float>> states_;  // by row
  bool any_ = false;
};

}  // namespace shoal::parallel
