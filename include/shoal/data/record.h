// Reads and writes files of records (key, value), where a value is a serialised Datum: one
// interface for all formats. Formats: docs/reference/formats.md. A back end is one file in
// src/shoal/data and one line in src/shoal/data/open.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

// The most bytes of a key, of a value, and of a datumfile's record.
inline constexpr std::size_t kMaxRecordBytes = 104'857'600;

struct RecordView {
  std::string_view key, value;
};

// A set of records in the order of the back end (LMDB, LevelDB: of the keys; datumfile: as
// written), open for reading only, with one cursor that starts at record 0. Two cursors are two
// sources on the same path. Used by one thread at a time. Every Error has Code::kData and names the
// file, and the offset or the record where there is one.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  virtual const std::string& path() const = 0;

  // Returns the record at the cursor, which moves on; nothing past the last one. The views are good
  // until the next call.
  virtual Result<std::optional<RecordView>> next() = 0;

  // Puts the cursor on record `position` modulo the number of records.
  virtual Status seek(std::uint64_t position) = 0;

  // Returns the number of records, at least 1. May read through the whole file once.
  virtual Result<std::uint64_t> count() = 0;

  // Makes every later seek cost about one read, for shuffled reading: finds where all records are
  // and keeps that in memory.
  virtual Status prepare_random_access() = 0;
};

// Opens `path`. `backend` is a name of record_backends() in any case: "lmdb" or "LMDB"; or "any" or
// "ANY" for what `path` looks like. An unknown name, a missing, empty, cut, or corrupt file, no
// records, and a file of another kind (said which) are errors.
Result<std::unique_ptr<RecordSource>> open_source(std::string_view backend,
                                                  const std::string& path);

// Returns a source that reads all of `source` now and answers from memory.
Result<std::unique_ptr<RecordSource>> load_source(std::unique_ptr<RecordSource> source);

enum class WriteMode {
  kNew,       // it is an error if `path` exists
  kTruncate,  // replaces what is there, at finish()
  kAppend,    // datumfile only: the records there, then the new ones; `path` must exist
};

// Records being written beside `path` (`path`.tmp.<process>); they appear under `path` all together
// at finish(), or never: a writer destroyed before that removes what it wrote. Used by one thread.
// Errors have Code::kData and name the file and the system's reason; after one, only destruction
// makes sense.
class RecordWriter {
 public:
  virtual ~RecordWriter() = default;
  // Refuses a key or value above kMaxRecordBytes, and, where the back end cannot hold both, a key
  // that was put before.
  virtual Status put(std::string_view key, std::string_view value) = 0;
  // Hands what was put to the system, so that memory stays bounded; converters call it every
  // kRecordsPerCommit records.
  virtual Status commit() = 0;
  // Commits, flushes to the disk and renames to `path`. A set without records is refused.
  virtual Status finish() = 0;
};
inline constexpr int kRecordsPerCommit = 1000;

Result<std::unique_ptr<RecordWriter>> create_writer(std::string_view backend,
                                                    const std::string& path,
                                                    WriteMode mode = WriteMode::kNew);

// "leveldb", "lmdb", "datumfile".
std::vector<std::string> record_backends();

// Returns what `path` seems to be, for error messages and tools: a name of record_backends(), or ""
// for anything else.
std::string looks_like(const std::string& path);

}  // namespace shoal
