#include "common/list_conversion.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "common/conversion.h"
#include "common/pictures.h"
#include "shoal/base/error.h"

namespace shoal {
namespace {

constexpr std::size_t kLongestKey = 511;  // what LMDB takes
constexpr std::size_t kAtOnce = 256;

// Returns the exit code.
int report(const ListConversion& options, const std::vector<std::string>& bad,
           std::uint64_t written) {
  if (bad.empty()) return 0;
  constexpr std::size_t kShown = 20;
  for (std::size_t i = 0; i < std::min(kShown, bad.size()); ++i)
    std::fprintf(stderr, "%s\n", bad[i].c_str());
  if (bad.size() > kShown) std::fprintf(stderr, "... and %zu more\n", bad.size() - kShown);
  if (written == 0)
    throw ConfigError(Code::kData, "none of the ", bad.size(), " ", options.pictures,
                      " could be used; nothing was written to ", options.path);
  std::fprintf(stderr, "%s\n",
               str(bad.size(), " bad ", options.pictures, " were left out; the other ", written,
                   " are in ", options.path)
                   .c_str());
  return static_cast<int>(Code::kData);
}

}  // namespace

int convert_list(const ListConversion& options, const std::vector<ListedRecord>& records,
                 const std::function<ConvertedRecord(std::size_t)>& convert) {
  Conversion out({.tool = options.tool,
                  .backend = options.backend,
                  .path = options.path,
                  .total = records.size()});
  std::vector<std::string> bad;
  std::optional<ImageSize> first;
  for (std::size_t begin = 0; begin < records.size(); begin += kAtOnce) {
    std::vector<ConvertedRecord> converted(std::min(kAtOnce, records.size() - begin));
    for_each_on(options.threads, converted.size(),
                [&](std::size_t i) { converted[i] = convert(begin + i); });
    for (std::size_t i = 0; i < converted.size(); ++i) {
      const ListedRecord& listed = records[begin + i];
      std::string trouble = converted[i].trouble;
      if (trouble.empty() && options.check_size && first && *first != converted[i].size)
        trouble = str("the image ", options.root, listed.path, " is ", to_string(converted[i].size),
                      "; the first is ", to_string(*first));
      if (!trouble.empty()) {
        bad.push_back(str(options.list, ":", listed.line, ": ", trouble));
        continue;
      }
      if (!first) first = converted[i].size;
      out.put((padded(begin + i, 8) + "_" + listed.path).substr(0, kLongestKey),
              converted[i].value);
    }
    out.passed(begin + converted.size());
  }
  if (out.written() > 0) out.finish();
  return report(options, bad, out.written());
}

void check_threads(int threads) {
  constexpr int kMost = 1024;
  if (threads < 0 || threads > kMost)
    throw ConfigError(Code::kUsage, "--threads is from 0 to ", kMost);
}

}  // namespace shoal
