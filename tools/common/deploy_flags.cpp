#include "common/deploy_flags.h"

#include <gflags/gflags.h>

#include <charconv>

#include "common/net_flags.h"
#include "shoal/base/error.h"
#include "shoal/base/text.h"

DEFINE_string(shape, "", "size of inputs whose size the net does not give, batch first: 1,3,32,32");
DEFINE_bool(auxiliary, false, "keep heads whose loss counts less than the largest");

namespace shoal {
namespace {

std::vector<std::int64_t> read_shape() {
  std::vector<std::int64_t> shape;
  for (const std::string& word : split(FLAGS_shape, ',')) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
    if (error != std::errc() || end != word.data() + word.size() || size < 1)
      throw ConfigError(Code::kUsage, "--shape=", FLAGS_shape, ": '", word,
                        "' is not a size; a shape is like 1,3,32,32");
    shape.push_back(size);
  }
  return shape;
}

}  // namespace

DeployOptions deploy_options_of_flags(std::int64_t batch) {
  return {read_shape(), batch, FLAGS_level, split(FLAGS_stage, ','), FLAGS_auxiliary};
}

}  // namespace shoal
