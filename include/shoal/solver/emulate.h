// Makes a worker compute as slowly as another machine would, for trials on one machine.
#pragma once

#include <memory>

#include "shoal/solver/updater.h"

namespace shoal {

class Net;

// Wraps `inner` so that the forward and backward passes of an iteration take at least `seconds`.
// Each layer takes the part of it that its arithmetic suggests (compute_slices.h).
std::unique_ptr<Updater> make_emulated(std::unique_ptr<Updater> inner, const Net& net,
                                       int iter_size, double seconds);

}  // namespace shoal
