// Finds parameters that are given to a layer of another type.
#pragma once

namespace shoal {

class LayerParameter;

// Warns of each message of parameters that layers of this type do not read, such as relu_param of a
// PReLU.
void warn_of_foreign_params(const LayerParameter& layer);

}  // namespace shoal
