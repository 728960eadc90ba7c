// The devices on which tests of layers, nets and jobs run.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "shoal/tensor/device.h"

namespace shoal::test {

struct TestDevice {
  std::string name;                    // letters, digits and _
  std::function<const Device*()> get;  // null: the CPU; made at first use
};
inline void PrintTo(const TestDevice& device, std::ostream* out) { *out << device.name; }

// The CPU, the guarded device, and what AddTestDevice brought.
std::vector<TestDevice> test_devices();

// Brings, as a constant of a file, a device that not every build or machine has.
struct AddTestDevice {
  explicit AddTestDevice(const TestDevice& device);
};

// "name" on the CPU, else "name_on_device".
std::string name_on(const std::string& name, const TestDevice& device);

}  // namespace shoal::test
