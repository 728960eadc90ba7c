// Reads and checks the records of a datumfile.
#include "shoal/data/datumfile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "shoal/base/bytes.h"
#include "shoal/base/file.h"

namespace shoal {
namespace {

constexpr std::uint64_t kFrame = 12;     // the three sizes
constexpr std::size_t kAhead = 1 << 20;  // a block of sequential reading
// Bytes of the first size, the second, and a usual key with the third.
constexpr std::size_t kPeek = 64;
// Smaller files may stay in the page cache for the next epoch.
constexpr std::uint64_t kDropAbove = std::uint64_t{1} << 28;
constexpr std::uint64_t kDropStep = std::uint64_t{1} << 24;

std::uint32_t swapped(std::uint32_t value) { return __builtin_bswap32(value); }

}  // namespace

DatumFile::DatumFile(std::string path, int fd, std::uint64_t size, std::int64_t changed_ns)
    : path_(std::move(path)), fd_(fd), size_(size), changed_ns_(changed_ns) {}

DatumFile::DatumFile(DatumFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      dropped_(other.dropped_),
      changed_ns_(other.changed_ns_),
      window_offset_(other.window_offset_),
      window_(std::move(other.window_)) {}

DatumFile::~DatumFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<DatumFile> DatumFile::open(const std::string& path) {
  // O_NONBLOCK: to open a pipe would wait for its writer for ever
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return Error{Code::kData,
                 str("cannot open datumfile ", path, ": ", why_not_opened(path, errno))};
  struct stat info;
  const bool known = ::fstat(fd, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return Error{Code::kData, str(path, " is no datumfile: it is not a regular file")};
  }
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  const std::int64_t changed =
      std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  return DatumFile(path, fd, static_cast<std::uint64_t>(info.st_size), changed);
}

Error DatumFile::bad(std::uint64_t offset, std::uint64_t number, const std::string& what) const {
  return Error{Code::kData,
               str("datumfile ", path_, ": record ", number, " at offset ", offset, " ", what)};
}

void DatumFile::drop_behind(std::uint64_t offset) {
  if (size_ < kDropAbove) return;
  if (offset < dropped_) dropped_ = 0;  // a new epoch
  if (offset < dropped_ + kDropStep) return;
  ::posix_fadvise(fd_, static_cast<off_t>(dropped_), static_cast<off_t>(offset - dropped_),
                  POSIX_FADV_DONTNEED);
  dropped_ = offset;
}

// The caller has checked that offset + count <= size_.
Result<std::string_view> DatumFile::bytes(std::uint64_t offset, std::size_t count, bool ahead) {
  if (offset >= window_offset_ && offset + count <= window_offset_ + window_.size())
    return std::string_view(window_).substr(offset - window_offset_, count);
  const std::size_t wanted =
      std::min<std::uint64_t>(ahead ? std::max(count, kAhead) : count, size_ - offset);
  window_.resize(wanted);
  window_offset_ = offset;
  for (std::size_t have = 0; have < wanted;) {
    const ssize_t n =
        ::pread(fd_, window_.data() + have, wanted - have, static_cast<off_t>(offset + have));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const std::string why =
          n < 0 ? system_reason(errno) : std::string("the file became shorter while it was read");
      window_.clear();
      return Error{Code::kData,
                   str("cannot read datumfile ", path_, " at offset ", offset + have, ": ", why)};
    }
    have += static_cast<std::size_t>(n);
  }
  if (ahead) drop_behind(offset);
  return std::string_view(window_).substr(0, count);
}

Error DatumFile::bad_size(std::uint64_t offset, std::uint64_t number, std::uint32_t record_size) {
  std::string what = str("has a record_size of ", record_size, " bytes; at most ", kMaxRecordBytes,
                         " are allowed");
  const std::uint64_t turned = swapped(record_size);
  bool agrees = false;
  if (turned >= 8 && turned <= kMaxRecordBytes && turned <= size_) {
    Result<std::string_view> second = offset + 8 <= size_
                                          ? bytes(offset + 4, 4, false)
                                          : Result<std::string_view>(std::string_view());
    agrees = second.ok() && second.value().size() == 4 &&
             swapped(get_le<std::uint32_t>(second.value())) <= turned - 8;
  }
  if (agrees)
    what += str("; with its bytes swapped it would be ", turned,
                ": the file was written on a big-endian machine");
  else if (offset == 0)
    what += "; is this a datumfile at all?";
  return bad(offset, number, what);
}

Result<std::uint64_t> DatumFile::extent(std::uint64_t offset, std::uint64_t number) {
  const std::uint64_t left = size_ - offset;
  if (left < 4)
    return Error{Code::kData, str("datumfile ", path_, ": ", left, " stray bytes at offset ",
                                  offset, ", after ", number, " whole records")};
  const bool in_window =
      offset >= window_offset_ && offset + kPeek <= window_offset_ + window_.size();
  Result<std::string_view> head = bytes(offset, std::min<std::uint64_t>(kPeek, left), in_window);
  if (!head.ok()) return head.error();
  const std::uint32_t record_size = get_le<std::uint32_t>(head.value());
  if (record_size > kMaxRecordBytes) return bad_size(offset, number, record_size);
  if (record_size < 8)
    return bad(offset, number,
               str("has a record_size of ", record_size, "; two sizes alone take 8"));
  if (left < 8)
    return bad(offset, number,
               str("is cut in its key_size: ", left, " bytes are left of ", record_size + 4));
  const std::uint32_t key_size = get_le<std::uint32_t>(head.value().substr(4));
  if (key_size > record_size - 8)
    return bad(
        offset, number,
        str("has a key_size of ", key_size, " that does not fit its record_size of ", record_size));
  if (left < kFrame + key_size)
    return bad(offset, number,
               str("is cut in its key: ", left, " bytes are left of ", record_size + 4));
  const std::uint64_t at = 8 + std::uint64_t{key_size};
  std::uint32_t value_size;
  if (at + 4 <= head.value().size()) {
    value_size = get_le<std::uint32_t>(head.value().substr(at));
  } else {
    Result<std::string_view> third = bytes(offset + at, 4, false);
    if (!third.ok()) return third.error();
    value_size = get_le<std::uint32_t>(third.value());
  }
  if (std::uint64_t{key_size} + value_size + 8 != record_size)
    return bad(
        offset, number,
        str("has a record_size of ", record_size, ", but key_size ", key_size, " + value_size ",
            value_size, " + 8 is ", std::uint64_t{key_size} + value_size + 8));
  if (left < std::uint64_t{record_size} + 4)
    return bad(offset, number,
               str("is cut in its value: ", left, " bytes are left of ", record_size + 4));
  return std::uint64_t{record_size} + 4;
}

Result<RecordView> DatumFile::read(std::uint64_t offset, std::uint64_t number, bool ahead) {
  // Reads one block now, so that extent() and the body below find what they ask for in memory.
  if (ahead && size_ - offset >= kPeek) {
    if (Result<std::string_view> block = bytes(offset, kPeek, true); !block.ok())
      return block.error();
  }
  Result<std::uint64_t> whole = extent(offset, number);
  if (!whole.ok()) return whole.error();
  Result<std::string_view> record = bytes(offset, whole.value(), ahead);
  if (!record.ok()) return record.error();
  // The bytes that were checked may not be those that are here now.
  const std::uint64_t record_size = get_le<std::uint32_t>(record.value()),
                      key_size = get_le<std::uint32_t>(record.value().substr(4));
  if (record_size + 4 != whole.value() || key_size + kFrame > whole.value())
    return bad(offset, number, "changed while it was read");
  return RecordView{record.value().substr(8, key_size), record.value().substr(kFrame + key_size)};
}

Result<std::vector<std::uint64_t>> DatumFile::scan() {
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t offset = 0; offset < size_;) {
    Result<std::uint64_t> step = extent(offset, offsets.size());
    if (!step.ok()) return step.error();
    offsets.push_back(offset);
    offset += step.value();
  }
  return offsets;
}

bool starts_like_datumfile(const std::string& path) {
  struct stat info;
  // Opening a pipe might wait for ever.
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  Result<DatumFile> file = DatumFile::open(path);
  return file.ok() && file.value().size() > 0 && file.value().extent(0, 0).ok();
}

}  // namespace shoal
