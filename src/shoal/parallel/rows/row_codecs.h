// The codecs of a net's layers as those of the rows that its params are cut into.
#pragma once

#include <vector>

#include "shoal/parallel/exchange/codec_choice.h"
#include "shoal/parallel/row_map.h"
#include "shoal/table/plan.h"

namespace shoal::parallel {

class RowCodecs {
 public:
  RowCodecs() = default;
  // Takes the layers' codecs for the rows of params that gradients change. Rows of params with
  // fewer than `least` numbers, of histories and of running sums travel in float32.
  RowCodecs(const Net& net, const RowMap& map, const std::vector<LayerCodecs>& layers,
            std::int64_t least);

  // Returns the number of a codec as table::Row has it, new if the plan has none like it.
  std::uint8_t number_of(const table::CodecSpec& spec);
  // Gives the rows of the map, which are the plan's first, their codecs.
  void put(table::Plan& plan) const;
  const table::CodecSpec& pushes(table::RowId row) const { return at(rows_[row].push); }
  const table::CodecSpec& answers(table::RowId row) const { return at(rows_[row].pull); }

 private:
  // As table::Row numbers them.
  struct Numbers {
    std::uint8_t push = 0, pull = 0;
  };
  const table::CodecSpec& at(std::uint8_t number) const {
    static constexpr table::CodecSpec kFloat32;
    return number == 0 ? kFloat32 : codecs_[number - 1];
  }
  std::vector<table::CodecSpec> codecs_;
  std::vector<Numbers> rows_;
};

}  // namespace shoal::parallel
