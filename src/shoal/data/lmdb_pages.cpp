// Checks and walks the pages of an LMDB file.
#include "shoal/data/lmdb_pages.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "shoal/base/bytes.h"
#include "shoal/base/file.h"

namespace shoal {
namespace {

constexpr std::uint32_t kLmdbMagic = 0xbeefc0de, kLmdbVersion = 1;
constexpr std::size_t kHead = 16, kEntryHead = 8, kMetaBytes = 136;
constexpr std::uint64_t kNoPage = ~std::uint64_t{0};
// Flags of a page; kKinds are all but "dirty".
constexpr std::uint32_t kBranch = 1, kLeaf = 2, kOverflow = 4, kKinds = 0x6f;
// The flag of an entry whose data are elsewhere.
constexpr std::uint32_t kBigData = 1;
// The flags of a tree like Caffe's.
constexpr std::uint32_t kSortedKeysOnly = 0;
constexpr std::uint64_t kDeepest = 32;

// The offsets in a meta page, from its magic on.
std::uint64_t page_size_of(std::string_view meta) { return get_le<std::uint32_t>(meta.substr(24)); }
std::uint64_t last_page_of(std::string_view meta) {
  return get_le<std::uint64_t>(meta.substr(120));
}
std::uint64_t transaction_of(std::string_view meta) {
  return get_le<std::uint64_t>(meta.substr(128));
}
std::string_view records_tree_of(std::string_view meta) { return meta.substr(72, 48); }

std::uint32_t u16(std::string_view bytes, std::size_t at) {
  return get_le<std::uint16_t>(bytes.substr(at));
}

}  // namespace

LmdbPages::LmdbPages(std::string file, int fd, std::uint64_t size)
    : file_(std::move(file)), fd_(fd), size_(size) {}

LmdbPages::LmdbPages(LmdbPages&& other) noexcept
    : file_(std::move(other.file_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      page_size_(other.page_size_),
      last_page_(other.last_page_),
      count_(other.count_),
      root_(other.root_),
      depth_(other.depth_),
      walked_(other.walked_),
      levels_(std::move(other.levels_)),
      started_(other.started_),
      leaf_(std::move(other.leaf_)),
      value_(std::move(other.value_)) {}

LmdbPages::~LmdbPages() {
  if (fd_ >= 0) ::close(fd_);
}

Error LmdbPages::bad(std::uint64_t page, const std::string& what) const {
  return Error{Code::kData, str(file_, ": page ", page, " ", what, "; the file is corrupt")};
}

Status LmdbPages::read(std::uint64_t offset, std::size_t count, std::string& into) const {
  into.resize(count);
  for (std::size_t have = 0; have < count;) {
    const ssize_t n =
        ::pread(fd_, into.data() + have, count - have, static_cast<off_t>(offset + have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return Error{Code::kData, str("cannot read ", file_, " at offset ", offset + have, ": ",
                                    system_reason(errno))};
    if (n == 0)
      return Error{Code::kData,
                   str(file_, " is cut short: it ends before offset ", offset + count)};
    have += static_cast<std::size_t>(n);
  }
  return {};
}

Result<std::string> LmdbPages::meta(std::uint64_t offset, const char* which) const {
  std::string bytes;
  if (Status done = read(offset + kHead, kMetaBytes, bytes); !done.ok()) return done.error();
  const auto error = [&](const std::string& what) {
    return Error{Code::kData, str(file_, ": the ", which, " meta page ", what)};
  };
  if (get_le<std::uint32_t>(bytes) != kLmdbMagic)
    return error("has no magic number: the file is corrupt or no LMDB");
  const std::uint32_t version = get_le<std::uint32_t>(std::string_view(bytes).substr(4));
  if (version != kLmdbVersion) return error(str("has version ", version, ", not 1"));
  const std::uint64_t size = page_size_of(bytes);
  if (size < 512 || size > 65536 || (size & (size - 1)) != 0)
    return error(str("says that a page has ", size, " bytes; the file is corrupt"));
  return bytes;
}

Result<LmdbPages> LmdbPages::open(const std::string& file) {
  // O_NONBLOCK: to open a pipe would wait for its writer for ever
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info;
  if (fd < 0 || ::fstat(fd, &info) != 0) {
    const int reason = errno;
    if (fd >= 0) ::close(fd);
    return Error{Code::kData, str("cannot open ", file, ": ", system_reason(reason))};
  }
  LmdbPages pages(file, fd, static_cast<std::uint64_t>(info.st_size));
  if (!S_ISREG(info.st_mode)) return Error{Code::kData, file + " is no regular file"};
  if (pages.size_ == 0) return Error{Code::kData, str(file, " is empty (0 bytes)")};
  const Result<std::string> first = pages.meta(0, "first");
  if (!first.ok()) return first.error();
  pages.page_size_ = page_size_of(first.value());
  const Result<std::string> second = pages.meta(pages.page_size_, "second");
  if (!second.ok()) return second.error();
  const std::string& newest = transaction_of(first.value()) > transaction_of(second.value())
                                  ? first.value()
                                  : second.value();
  if (page_size_of(newest) != pages.page_size_)
    return Error{Code::kData,
                 str(file, ": its meta pages name two page sizes; the file is corrupt")};
  if (last_page_of(newest) >= pages.size_ / pages.page_size_)
    return Error{Code::kData, str(file, " is cut short: it has ", pages.size_,
                                  " bytes and says that its last page is number ",
                                  last_page_of(newest), " of ", pages.page_size_, " bytes each")};
  return pages;
}

Status LmdbPages::choose(std::uint64_t transaction) {
  for (const std::uint64_t offset : {std::uint64_t{0}, page_size_}) {
    const Result<std::string> found = meta(offset, offset == 0 ? "first" : "second");
    if (!found.ok()) return found.error();
    if (transaction_of(found.value()) != transaction) continue;
    const std::string_view tree = records_tree_of(found.value());
    if (u16(tree, 4) != kSortedKeysOnly)
      return Error{Code::kData,
                   str(file_, " keeps its records in a way that is not Caffe's (tree flags ",
                       u16(tree, 4), ")")};
    last_page_ = last_page_of(found.value());
    depth_ = u16(tree, 6);
    count_ = get_le<std::uint64_t>(tree.substr(32));
    root_ = get_le<std::uint64_t>(tree.substr(40));
    if (depth_ > kDeepest || (count_ > 0 && root_ == kNoPage))
      return bad(offset / page_size_, "describes no tree");
    rewind();
    return {};
  }
  return Error{Code::kData, str(file_, ": no meta page is of transaction ", transaction,
                                "; it is being written, or corrupt")};
}

void LmdbPages::rewind() {
  levels_.clear();
  started_ = false;
  walked_ = 0;
}

Status LmdbPages::load(std::uint64_t page, bool leaf, Level& level) const {
  if (page > last_page_) return bad(page, str("is asked for, and the last is ", last_page_));
  if (Status done = read(page * page_size_, page_size_, level.bytes); !done.ok()) return done;
  const std::string_view bytes = level.bytes;
  if (get_le<std::uint64_t>(bytes) != page)
    return bad(page, str("carries the number ", get_le<std::uint64_t>(bytes)));
  if ((u16(bytes, 10) & kKinds) != (leaf ? kLeaf : kBranch))
    return bad(
        page, str("should be a ", leaf ? "leaf" : "branch", " and has the flags ", u16(bytes, 10)));
  const std::uint32_t lower = u16(bytes, 12), upper = u16(bytes, 14);
  if (lower < kHead || lower > upper || upper > page_size_)
    return bad(page, str("has the bounds ", lower, " and ", upper));
  level.page = page;
  level.entries = static_cast<std::uint32_t>(lower - kHead) / 2;
  level.at = 0;
  if (level.entries == 0) return bad(page, "holds nothing");
  return {};
}

Result<LmdbPages::Entry> LmdbPages::entry(const Level& level, std::uint32_t at) const {
  const std::string_view bytes = level.bytes;
  if (at >= level.entries) return bad(level.page, str("has no entry ", at));
  const std::uint32_t offset = u16(bytes, kHead + 2 * at);
  if (offset < kHead + 2 * level.entries || offset + kEntryHead > bytes.size())
    return bad(level.page, str("has an entry at ", offset));
  const std::uint32_t key_size = u16(bytes, offset + 6);
  if (offset + kEntryHead + key_size > bytes.size())
    return bad(level.page, str("has a key of ", key_size, " bytes"));
  Entry found;
  found.low = u16(bytes, offset) | u16(bytes, offset + 2) << 16;
  found.flags = u16(bytes, offset + 4);
  found.key = bytes.substr(offset + kEntryHead, key_size);
  found.rest = bytes.substr(offset + kEntryHead + key_size);
  return found;
}

Status LmdbPages::descend(std::uint64_t page) {
  for (;;) {
    const bool leaf = levels_.size() + 1 == depth_;
    levels_.emplace_back();
    if (Status loaded = load(page, leaf, levels_.back()); !loaded.ok()) return loaded;
    if (leaf) return {};
    const Result<Entry> first = entry(levels_.back(), 0);
    if (!first.ok()) return first.error();
    page = first.value().low | std::uint64_t{first.value().flags} << 32;
  }
}

Result<std::optional<LmdbPages::Place>> LmdbPages::next_place() {
  if (!started_) {
    started_ = true;
    if (Status down = count_ > 0 ? descend(root_) : Status(); !down.ok()) return down.error();
  } else if (!levels_.empty()) {
    while (!levels_.empty() && ++levels_.back().at == levels_.back().entries) levels_.pop_back();
    if (!levels_.empty() && levels_.size() < depth_) {
      const Result<Entry> child = entry(levels_.back(), levels_.back().at);
      if (!child.ok()) return child.error();
      if (Status down = descend(child.value().low | std::uint64_t{child.value().flags} << 32);
          !down.ok())
        return down.error();
    }
  }
  const bool end = levels_.empty();
  if (end ? walked_ < count_ : walked_ >= count_)
    return Error{Code::kData, str(file_, " says that it has ", count_, " records and holds ",
                                  end ? "only " : "more than ", walked_, "; it is corrupt")};
  if (end) return std::optional<Place>();
  ++walked_;
  return std::optional(Place{levels_.back().page, levels_.back().at});
}

Result<std::string_view> LmdbPages::overflow(std::uint64_t page, std::uint32_t size) {
  if (page > last_page_ || page * page_size_ + kHead + size > size_)
    return bad(page, str("is said to hold ", size, " bytes, beyond the end"));
  if (Status done = read(page * page_size_, kHead + size, value_); !done.ok()) return done.error();
  const std::string_view bytes = value_;
  if (get_le<std::uint64_t>(bytes) != page || (u16(bytes, 10) & kKinds) != kOverflow)
    return bad(page, str("should hold a large value; it carries the number ",
                         get_le<std::uint64_t>(bytes), " and the flags ", u16(bytes, 10)));
  const std::uint64_t pages = get_le<std::uint32_t>(bytes.substr(12));
  if (kHead + size > pages * page_size_ || pages > last_page_ - page + 1)
    return bad(page, str("is said to hold ", size, " bytes on ", pages, " pages"));
  return bytes.substr(kHead);
}

Result<RecordView> LmdbPages::record(const Place& place) {
  const Level* leaf =
      !levels_.empty() && levels_.back().page == place.page ? &levels_.back() : &leaf_;
  if (leaf == &leaf_ && (leaf_.page != place.page || leaf_.bytes.empty())) {
    leaf_.page = 0;
    if (Status loaded = load(place.page, true, leaf_); !loaded.ok()) return loaded.error();
  }
  const Result<Entry> found = entry(*leaf, place.entry);
  if (!found.ok()) return found.error();
  const auto& [size, flags, key, rest] = found.value();
  if (size > kMaxRecordBytes) return bad(place.page, str("has a value of ", size, " bytes"));
  if ((flags & kBigData) == 0 && size <= rest.size()) return RecordView{key, rest.substr(0, size)};
  if (flags != kBigData || rest.size() < 8)
    return bad(place.page, str("has a value of ", size, " bytes with the flags ", flags));
  const Result<std::string_view> value = overflow(get_le<std::uint64_t>(rest), size);
  if (!value.ok()) return value.error();
  return RecordView{key, value.value()};
}

}  // namespace shoal
