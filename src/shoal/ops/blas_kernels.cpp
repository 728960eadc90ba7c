#include "shoal/ops/blas_kernels.h"

#include <cblas.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/base/processor.h"
#include "shoal/base/text.h"

namespace shoal::ops {
namespace {

// Names of OPENBLAS_CORETYPE for kernels without AVX-512, and the level of x86-64 whose
// instructions they use. Names that newer versions add are not here.
struct Kernels {
  std::string_view name;
  int level;
};
constexpr Kernels kOlder[] = {
    {"Haswell", 3},    {"Zen", 3},        {"Excavator", 2},    {"Steamroller", 2},
    {"Piledriver", 2}, {"Bulldozer", 2},  {"Sandybridge", 2},  {"Nehalem", 2},
    {"Bobcat", 1},     {"Barcelona", 1},  {"Opteron_SSE3", 1}, {"Opteron", 1},
    {"Athlon", 1},     {"Nano", 1},       {"Atom", 1},         {"Dunnington", 1},
    {"Penryn", 1},     {"Core2", 1},      {"Prescott", 1},     {"Banias", 1},
    {"Northwood", 1},  {"Coppermine", 1}, {"Katmai", 1}};

constexpr std::string_view kUnknown = "Prescott", kAvx2 = "Haswell", kAvx512 = "SkylakeX";

std::string_view kernels_in_use() { return openblas_get_corename(); }

}  // namespace

std::string better_blas_kernels(CpuKernels kernels) {
  if (kernels == CpuKernels::kAvx2) return std::string(kernels_in_use() == kAvx2 ? "" : kAvx2);
  if (kernels_in_use() != kUnknown || !missing_of_level(3).empty()) return "";
  return std::string(missing_of_level(4).empty() ? kAvx512 : kAvx2);
}

std::string weak_blas_kernels() {
  const auto* const known = std::ranges::find(kOlder, kernels_in_use(), &Kernels::name);
  const bool weak = known != std::end(kOlder) && missing_of_level(known->level < 3 ? 3 : 4).empty();
  return weak ? std::string(known->name) : "";
}

std::string describe_blas() {
  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  const std::vector<std::string> words = split(openblas_get_config(), ' ');
  return str("OpenBLAS ", words.size() > 1 ? words[1] : "of unknown version", " for ",
             kernels_in_use());
}

}  // namespace shoal::ops
