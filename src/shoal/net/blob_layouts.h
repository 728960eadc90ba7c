// The layouts in which kernels keep the blobs of a net: the plan gives each storage the bytes of
// its own.
#pragma once

#include <unordered_map>

#include "shoal/tensor/tensor.h"

namespace shoal {

class Net;

using BlobLayouts = std::unordered_map<const Storage*, LayoutPtr>;

// Returns the layout in which each storage will be written, where that is not the plain one. Gives
// storages the size with padding.
BlobLayouts layouts_of(const Net& net);
// Returns the bytes that the tensor takes then: fewer than plain ones, if its layout has such.
std::size_t bytes_in(const BlobLayouts& layouts, const Tensor& tensor);

}  // namespace shoal
