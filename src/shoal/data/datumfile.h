// Reads datumfiles: records one after the other, little-endian, without header, index or checksum
// (docs/reference/formats.md):
//   u32 record_size = key_size + value_size + 8 | u32 key_size | key | u32 value_size | value
// Every size is checked against the others and against the file before anything is kept, which its
// inventors do not do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/data/record.h"

namespace shoal {

// A datumfile open for reading at any offset, by pread, so that no position is shared.
class DatumFile {
 public:
  static Result<DatumFile> open(const std::string& path);
  DatumFile(DatumFile&& other) noexcept;
  DatumFile& operator=(DatumFile&&) = delete;
  ~DatumFile();
  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  std::int64_t changed_ns() const { return changed_ns_; }  // modification time

  // Returns the record at `offset`, number `number` in messages. Reads ahead in large blocks if
  // `ahead`. The views are good until the next call.
  Result<RecordView> read(std::uint64_t offset, std::uint64_t number, bool ahead);
  // Returns the bytes the record at `offset` takes in the file, checked as read() does but for the
  // body, which is not read.
  Result<std::uint64_t> extent(std::uint64_t offset, std::uint64_t number);
  // Returns the offsets of all records.
  Result<std::vector<std::uint64_t>> scan();

 private:
  DatumFile(std::string path, int fd, std::uint64_t size, std::int64_t changed_ns);
  Result<std::string_view> bytes(std::uint64_t offset, std::size_t count, bool ahead);
  Error bad(std::uint64_t offset, std::uint64_t number, const std::string& what) const;
  Error bad_size(std::uint64_t offset, std::uint64_t number, std::uint32_t record_size);
  // Drops what was read from the page cache, for files large enough to matter.
  void drop_behind(std::uint64_t offset);
  std::string path_;
  int fd_;
  std::uint64_t size_, dropped_ = 0;
  std::int64_t changed_ns_;
  std::uint64_t window_offset_ = 0;
  std::string window_;  // file bytes from window_offset_
};

// Returns whether the first record's three sizes agree with each other and with the file.
bool starts_like_datumfile(const std::string& path);

// The sidecar <file>.index: "SHIX" | u32 version | u64 count | count x u64 offsets | u32 crc32c of
// all before it. A sidecar that is missing, damaged, older than the file, or does not end where the
// file ends gives nothing.
std::vector<std::uint64_t> load_datumfile_index(DatumFile& file);
Status save_datumfile_index(const DatumFile& file, const std::vector<std::uint64_t>& offsets);

}  // namespace shoal
