// Reads and checks the pages of an LMDB file. LMDB itself trusts them, and ends the process over a
// damaged one. No file is mapped, so reading a large set does not grow the process either.
// Layout of LMDB 0.9 with 64-bit page numbers, little-endian (lmdb.h says MDB_DATA_VERSION 1):
//   page    u64 number | u16 unused | u16 flags | u16 lower, u16 upper | u16 offsets of entries ...
//           An overflow page has u32 pages in place of lower and upper.
//   entry   u16 low, u16 high, u16 flags, u16 key size | key | data
//           In a leaf the data are low + high << 16 bytes, or with flag 1 the u64 number of the
//           overflow page that holds them. In a branch the child's number is low + high << 16 +
//           flags << 32.
//   meta    after the head of pages 0 and 1: u32 magic, u32 version, u64 address, u64 map size, two
//           trees (free pages, records), u64 last page, u64 transaction
//   tree    u32 pad (in the first: the page size), u16 flags, u16 depth, u64 branch, leaf and
//           overflow pages, u64 records, u64 root
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/data/record.h"

namespace shoal {

// The records of one transaction, in the order of their keys. Every Error is kData and names the
// file, and the page if there is one.
class LmdbPages {
 public:
  // Checks both meta pages, so that LMDB may look at the file.
  static Result<LmdbPages> open(const std::string& file);
  LmdbPages(LmdbPages&& other) noexcept;
  LmdbPages& operator=(LmdbPages&&) = delete;
  ~LmdbPages();
  // Reads the records as this transaction left them.
  Status choose(std::uint64_t transaction);
  std::uint64_t count() const { return count_; }

  // A leaf page and an entry in it: where a record is.
  struct Place {
    std::uint64_t page = 0;
    std::uint32_t entry = 0;
  };
  void rewind();
  // Returns the place of the next record in order; nothing after the last one.
  Result<std::optional<Place>> next_place();
  // Returns the record there. The views are good until the next call of any kind.
  Result<RecordView> record(const Place& place);

 private:
  struct Level {  // a page on the way from the root to a leaf, and how far it was walked
    std::uint64_t page = 0;
    std::string bytes;
    std::uint32_t entries = 0, at = 0;
  };
  struct Entry {
    std::uint32_t low = 0, flags = 0;  // low: both halves
    std::string_view key, rest;        // rest: from behind the key to the end of the page
  };
  LmdbPages(std::string file, int fd, std::uint64_t size);
  Status read(std::uint64_t offset, std::size_t count, std::string& into) const;
  Error bad(std::uint64_t page, const std::string& what) const;
  Result<std::string> meta(std::uint64_t offset, const char* which) const;
  Status load(std::uint64_t page, bool leaf, Level& level) const;
  Result<Entry> entry(const Level& level, std::uint32_t at) const;
  Status descend(std::uint64_t page);  // to the first leaf under it
  Result<std::string_view> overflow(std::uint64_t page, std::uint32_t size);

  std::string file_;
  int fd_;
  std::uint64_t size_;
  std::uint64_t page_size_ = 0, last_page_ = 0, count_ = 0, root_ = 0, depth_ = 0, walked_ = 0;
  std::vector<Level> levels_;  // empty before the first record
  bool started_ = false;
  Level leaf_;  // of the record asked for last, if it is not the walk's
  std::string value_;
};

}  // namespace shoal
