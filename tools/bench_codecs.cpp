// Measures how fast the codecs turn numbers into bytes and back, on one core, beside memcpy.
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/tool.h"
#include "shoal/base/processor.h"
#include "shoal/base/random.h"
#include "shoal/table/codecs/kinds.h"

DEFINE_int64(floats, 0, "numbers of a row; 0: first 65,536, which stay in a cache, then 1,048,576");
DEFINE_int32(repeats, 15, "rounds in which each codec is measured once; the median is printed");

namespace shoal {
namespace {

using table::CodecKind, table::CodecSpec;

struct Case {
  const char* name;
  const CodecKind& kind;
  CodecSpec spec;
};

std::vector<Case> all_cases() {
  const auto topk = [](float share, std::uint8_t bits) {
    return CodecSpec{.id = table::topk_id, .amount = share, .bits = bits};
  };
  return {{"fp16", table::fp16_kind, {.id = table::fp16_id}},
          {"bf16", table::bf16_kind, {.id = table::bf16_id}},
          {"int8", table::int8_kind, {.id = table::int8_id}},
          {"int8, at random", table::int8_kind, {.id = table::int8_id, .stochastic = true}},
          {"onebit", table::onebit_kind, {.id = table::onebit_id}},
          {"twobit 2", table::twobit_kind, {.id = table::twobit_id, .amount = 2}},
          {"threshold 2.5", table::threshold_kind, {.id = table::threshold_id, .amount = 2.5f}},
          {"topk 0.01, 32 bits", table::topk_kind, topk(0.01f, 32)},
          {"topk 0.01, 8 bits", table::topk_kind, topk(0.01f, 8)},
          {"topk 0.01, 2 bits", table::topk_kind, topk(0.01f, 2)},
          {"topk 0.03, 2 bits", table::topk_kind, topk(0.03f, 2)},
          {"topk 0.25, 2 bits", table::topk_kind, topk(0.25f, 2)}};
}

// Returns the seconds that the processor works on it, whatever else the machine does.
double seconds_of(const std::function<void()>& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

double median(std::vector<double>& seconds) {
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

// Prints GB/s of float32, made into bytes or out of them.
void measure(std::size_t floats) {
  Random random(1);
  std::vector<float> numbers(floats), copy(floats);
  for (float& number : numbers) number = random.gaussian(0, 1);
  // Some milliseconds of work make a time.
  const std::size_t calls = std::max<std::size_t>(1, (std::size_t{1} << 21) / floats);
  const double gigabytes = 4e-9 * static_cast<double>(floats * calls);
  struct Times {
    std::vector<double> encode, decode;
  };
  const std::vector<Case> cases = all_cases();
  std::vector<Times> times(cases.size());
  std::vector<double> sizes, copies;
  for (int repeat = 0; repeat < FLAGS_repeats; ++repeat) {
    copies.push_back(seconds_of([&] {
      for (std::size_t call = 0; call < calls; ++call) {
        std::memcpy(copy.data(), numbers.data(), floats * sizeof(float));
        asm("" : : "r"(copy.data()) : "memory");  // so that the copy is made
      }
    }));
    for (std::size_t c = 0; c < cases.size(); ++c) {
      const auto codec = cases[c].kind.make(cases[c].spec);
      table::Payload payload;
      times[c].encode.push_back(seconds_of([&] {
        for (std::size_t call = 0; call < calls; ++call)
          payload = codec->encode({numbers, nullptr}, {.state = {}, .clock = 0, .seed = call});
      }));
      times[c].decode.push_back(seconds_of([&] {
        for (std::size_t call = 0; call < calls; ++call) or_throw(codec->decode(payload, floats));
      }));
      if (repeat == 0) sizes.push_back(static_cast<double>(payload.bytes.size()));
    }
  }
  const double memcpy_rate = gigabytes / median(copies);
  std::printf(
      "rows of %zu KiB; GB/s of float32, with the memory for the result; memcpy %.1f GB/s\n",
      floats / 256, memcpy_rate);
  std::printf("  %-20s %8s %8s %8s %18s\n", "codec", "encode", "decode", "ratio", "part of memcpy");
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const double encode = gigabytes / median(times[c].encode),
                 decode = gigabytes / median(times[c].decode);
    std::printf("  %-20s %8.2f %8.2f %8.1f %9.2f %8.2f\n", cases[c].name, encode, decode,
                4 * static_cast<double>(floats) / sizes[c], encode / memcpy_rate,
                decode / memcpy_rate);
  }
  std::fflush(stdout);
}

int bench(const std::vector<std::string>&) {
  if (FLAGS_repeats < 1 || FLAGS_floats < 0 ||
      FLAGS_floats > static_cast<std::int64_t>(table::kMaxRowFloats))
    throw ConfigError(Code::kUsage, str("--repeats must be 1 or more, --floats from 0 to ",
                                        table::kMaxRowFloats));
  std::printf("%s, one core\n", processor_name().c_str());
  if (FLAGS_floats > 0) return measure(static_cast<std::size_t>(FLAGS_floats)), 0;
  measure(std::size_t{1} << 16);
  measure(table::kMaxRowFloats);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(
      argc, argv,
      "bench_codecs [--floats=N] [--repeats=N]\n\nMeasures the codecs on one core "
      "beside memcpy.",
      &shoal::bench);
}
