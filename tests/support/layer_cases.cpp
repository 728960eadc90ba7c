// One entry a case, sorted by name, each complete in itself: branches that add some are merged line by line.
#include "support/layer_cases.h"

namespace shoal::test {
namespace {

// clang-format off
const std::vector<LayerCase> kCases = {
    {.name = "dummydata_constants", .type = "DummyData", .param = "dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 4 } data_filler { value: 2 } }", .tops = 2},
    {.name = "dummydata_random", .type = "DummyData", .param = "dummy_data_param { num: 2 channels: 3 height: 2 width: 2 data_filler { type: 'uniform' } }"},
    {.name = "silence", .type = "Silence", .bottoms = {gaussian({2, 3}), gaussian({4})}, .tops = 0},
    {.name = "split", .type = "Split", .bottoms = {gaussian({2, 3, 4})}, .tops = 3},
    {.name = "split_one", .type = "Split", .bottoms = {gaussian({2, 3})}},
    {.name = "split_two", .type = "Split", .bottoms = {gaussian({3, 5})}, .tops = 2},
};

constexpr Exempt kExempt[] = {
    {"Data", "reads a database; data tests"},
    {"ImageData", "reads images; data tests"},
    {"Input", "no arithmetic: its caller fills the tops"},
    {"MemoryData", "no arithmetic: its caller gives the records"},
};
// clang-format on

}  // namespace

std::span<const LayerCase> every_layer_case() { return kCases; }
std::span<const Exempt> exempt_layers() { return kExempt; }

}  // namespace shoal::test
