#include "support/devices.h"

#include "support/guarded_device.h"

namespace shoal::test {
namespace {

std::vector<TestDevice>& added() {
  static std::vector<TestDevice> devices;
  return devices;
}

}  // namespace

std::vector<TestDevice> test_devices() {
  std::vector<TestDevice> devices = {{"cpu", [] { return nullptr; }},
                                     {"guarded", []() -> const Device* {
                                        static const GuardedDevice device(1, 2);
                                        return &device;
                                      }}};
  devices.insert(devices.end(), added().begin(), added().end());
  return devices;
}

AddTestDevice::AddTestDevice(const TestDevice& device) { added().push_back(device); }

std::string name_on(const std::string& name, const TestDevice& device) {
  return device.get() ? name + "_on_" + device.name : name;
}

}  // namespace shoal::test
