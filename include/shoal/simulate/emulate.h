// For trials on one machine: a worker that computes as slowly as another would.
#pragma once

#include <memory>

#include "shoal/solver/updater.h"

namespace shoal {
class Net;
}

namespace shoal::simulate {

// An updater around `inner` that makes the computation of an iteration, forward and backward
// passes, take so many seconds, if it really takes less; layers take the parts of it that a
// simulation gives them.
std::unique_ptr<Updater> make_emulated(std::unique_ptr<Updater> inner, const Net& net,
                                       int iter_size, double seconds);

}  // namespace shoal::simulate
