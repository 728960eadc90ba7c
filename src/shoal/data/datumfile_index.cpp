// Keeps where the records of a datumfile begin, for random access.
#include <sys/stat.h>

#include "shoal/base/bytes.h"
#include "shoal/base/file.h"
#include "shoal/data/datumfile.h"

namespace shoal {
namespace {

constexpr std::string_view kMagic = "SHIX";
constexpr std::uint32_t kIndexVersion = 1;
constexpr std::size_t kHead = 16, kTail = 4;

std::string index_path(const DatumFile& file) { return file.path() + ".index"; }

bool newer_than(const std::string& path, std::int64_t ns) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return false;
  return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec >= ns;
}

}  // namespace

std::vector<std::uint64_t> load_datumfile_index(DatumFile& file) {
  if (!newer_than(index_path(file), file.changed_ns())) return {};
  const Result<std::string> read = read_file(index_path(file), Code::kData);
  if (!read.ok()) return {};
  const std::string_view all = read.value();
  if (all.size() < kHead + kTail || all.substr(0, 4) != kMagic ||
      get_le<std::uint32_t>(all.substr(4)) != kIndexVersion)
    return {};
  const std::uint64_t count = get_le<std::uint64_t>(all.substr(8));
  if (count == 0 || count > file.size() || all.size() != kHead + 8 * count + kTail) return {};
  if (get_le<std::uint32_t>(all.substr(all.size() - kTail)) !=
      crc32c(all.substr(0, all.size() - kTail)))
    return {};
  std::vector<std::uint64_t> offsets(count);
  for (std::size_t i = 0; i < count; ++i)
    offsets[i] = get_le<std::uint64_t>(all.substr(kHead + 8 * i));
  if (offsets.back() >= file.size()) return {};
  const Result<std::uint64_t> last = file.extent(offsets.back(), count - 1);
  if (!last.ok() || offsets.back() + last.value() != file.size()) return {};
  return offsets;
}

Status save_datumfile_index(const DatumFile& file, const std::vector<std::uint64_t>& offsets) {
  std::string bytes(kMagic);
  put_le(bytes, kIndexVersion);
  put_le(bytes, std::uint64_t{offsets.size()});
  for (const std::uint64_t offset : offsets) put_le(bytes, offset);
  put_le(bytes, crc32c(bytes));
  return write_file(index_path(file), bytes, Code::kData);
}

}  // namespace shoal
