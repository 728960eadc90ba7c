// Declares what each back end provides for the list in open.cpp.
#pragma once

#include <memory>
#include <string>

#include "shoal/base/error.h"
#include "shoal/data/record.h"

namespace shoal {

using OpenSource = Result<std::unique_ptr<RecordSource>> (*)(const std::string& path);
using CreateWriter = Result<std::unique_ptr<RecordWriter>> (*)(const std::string& path,
                                                               WriteMode mode);

Result<std::unique_ptr<RecordSource>> open_leveldb(const std::string& path);
Result<std::unique_ptr<RecordWriter>> create_leveldb(const std::string& path, WriteMode mode);
Result<std::unique_ptr<RecordSource>> open_lmdb(const std::string& path);
Result<std::unique_ptr<RecordWriter>> create_lmdb(const std::string& path, WriteMode mode);
Result<std::unique_ptr<RecordSource>> open_datumfile(const std::string& path);
Result<std::unique_ptr<RecordWriter>> create_datumfile(const std::string& path, WriteMode mode);

// ": it is a regular file that looks like a datumfile; say backend: DATUMFILE" and its like, or ""
// when nothing is known of `path`.
std::string kind_hint(const std::string& path);

// Returns an error unless both sizes may be written.
Status check_record_size(const std::string& path, std::string_view key, std::string_view value);

}  // namespace shoal
