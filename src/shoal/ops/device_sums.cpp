// Finds the devices' own way to sum.
#include "shoal/ops/device_sums.h"

#include "shoal/ops/backend.h"

namespace shoal::ops {

std::unique_ptr<DeviceSums> make_device_sums(std::span<Context* const> contexts, int slots,
                                             Why& why) {
  if (const auto make = backend(*contexts[0]).device_sums) return make(contexts, slots, why);
  why = str(contexts[0]->device().name(), " has no way of its own to sum with other devices");
  return nullptr;
}

}  // namespace shoal::ops
