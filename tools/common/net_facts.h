// Shapes, params and multiply-adds of a net's layers, for tables and drawings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/least_time.h"

namespace shoal {

// A layer of the prototxt; those that the net inserted (splits) are left out.
struct LayerFacts {
  int index = 0;  // among the net's layers
  std::string name, type;
  std::vector<std::string> bottoms, tops;  // as the prototxt names them
  std::vector<std::string> shapes;         // of the tops: "64 x 20 x 24 x 24"
  std::string kernel;                      // "20 of 5 x 5, stride 2"; "" where there is none
  std::int64_t data = 0;                   // numbers of its tops, but those in place
  std::int64_t params = 0;                 // numbers that it owns
  std::string shares_with;                 // the layer that owns others of its params; "": none
  std::int64_t multiply_adds = 0;          // of a forward pass of the whole batch
};
std::vector<LayerFacts> facts_of(const Net& net);

// Returns a table of the layers, and what the net has in all: numbers, multiply-adds for an item of
// the batch, planned memory. |D| are the numbers of a layer's tops for the batch, |W| its params,
// and D/W is their ratio (FireCaffe, Iandola et al., CVPR 2016). Params that layers share are
// counted once. With rates also the least times of the layers and of a pass on such a device.
std::string summary_of(const Net& net, const std::optional<DeviceRates>& rates);

// Returns the graph in the language of Graphviz: a box for each layer, with the layers that work in
// place on its top, and an ellipse for each blob.
std::string dot_of(const Net& net);

}  // namespace shoal
