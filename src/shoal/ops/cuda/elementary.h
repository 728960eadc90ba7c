// A CUDA device's functions for the elementary ops, with the signatures of the ops themselves.
#pragma once

#include <type_traits>

#include "shoal/ops/backend.h"

namespace shoal::ops::cuda {

#define OP(name) std::remove_pointer_t<decltype(&ops::name)> name;
#include "shoal/ops/elementary.def"
#undef OP

}  // namespace shoal::ops::cuda
