// Prints the GPUs of this machine, as `caffe device_query` does.
#include <gflags/gflags.h>

#include <cstdio>
#include <numeric>

#include "common/tool.h"
#include "shoal/base/error.h"
#include "shoal/base/number.h"
#include "shoal/base/text.h"
#include "shoal/ops/gpu.h"

DEFINE_string(gpu, "all", "which GPUs, counted from 0 and separated by commas, or all");

namespace shoal {
namespace {

constexpr const char* kUsage =
    "device_query [--gpu=all|0|0,1]\n\n"
    "Prints a line on each GPU, or why there is none. A GPU that was named and cannot be used ends "
    "it with 5.";

std::vector<int> asked_for() {
  if (FLAGS_gpu == "all") {
    std::vector<int> all(static_cast<std::size_t>(ops::gpu_count()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::vector<int> numbers;
  for (const std::string& word : split(FLAGS_gpu, ',')) {
    const std::optional<int> number = number_in<int>(word, 0, 1 << 16);
    if (!number)
      throw ConfigError(Code::kUsage, "--gpu=", FLAGS_gpu, ": '", word,
                        "' is not the number of a GPU; they count from 0");
    numbers.push_back(*number);
  }
  return numbers;
}

int query(const std::vector<std::string>& words) {
  if (!words.empty())
    throw ConfigError(Code::kUsage, "'", words[0], "' is not a flag; did you mean --gpu=", words[0],
                      "?");
  const std::vector<int> numbers = asked_for();
  if (numbers.empty()) std::printf("no GPU: %s\n", ops::why_no_gpu().c_str());
  for (const int number : numbers)
    std::printf("GPU %d: %s\n", number, ops::describe_gpu(number).c_str());
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run_tool(argc, argv, shoal::kUsage, shoal::query); }
