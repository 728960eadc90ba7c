// Opens record sources and writers by name, and recognizes what a path holds.
#include <sys/stat.h>

#include <algorithm>
#include <cctype>

#include "shoal/base/file.h"
#include "shoal/base/text.h"
#include "shoal/data/backends.h"
#include "shoal/data/datumfile.h"
#include "shoal/data/record.h"

namespace shoal {
namespace {

struct Backend {
  const char* name;
  OpenSource open;
  CreateWriter create;
};

// Every back end there is.
constexpr Backend kBackends[] = {
    {"leveldb", open_leveldb, create_leveldb},
    {"lmdb", open_lmdb, create_lmdb},
    {"datumfile", open_datumfile, create_datumfile},
};

Result<const Backend*> find(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const Backend& backend : kBackends)
    if (lower == backend.name) return &backend;
  return Error{Code::kUsage,
               str("unknown back end \"", name, "\"", known_words(lower, record_backends()))};
}

bool is_directory(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

Result<std::unique_ptr<RecordSource>> open_source(std::string_view backend,
                                                  const std::string& path) {
  const bool any = backend == "ANY" || backend == "any";
  const std::string kind = any ? looks_like(path) : "";
  if (any && !file_exists(path))
    return Error{Code::kData, str("cannot open ", path, ": ", why_not_opened(path, ENOENT))};
  if (any && kind.empty() && is_directory(path))
    return Error{Code::kData, path + " is neither an LMDB nor a LevelDB"};
  // The datumfile back end refuses what is no datumfile either, in its words.
  Result<const Backend*> found = find(!any ? backend : kind.empty() ? "datumfile" : kind);
  if (!found.ok()) return found.error();
  return found.value()->open(path);
}

Result<std::unique_ptr<RecordWriter>> create_writer(std::string_view backend,
                                                    const std::string& path, WriteMode mode) {
  Result<const Backend*> found = find(backend);
  if (!found.ok()) return found.error();
  return found.value()->create(path, mode);
}

std::vector<std::string> record_backends() {
  std::vector<std::string> names;
  for (const Backend& backend : kBackends) names.emplace_back(backend.name);
  return names;
}

std::string looks_like(const std::string& path) {
  if (is_directory(path)) {
    if (file_exists(path + "/data.mdb")) return "lmdb";
    if (file_exists(path + "/CURRENT")) return "leveldb";
    return "";
  }
  return starts_like_datumfile(path) ? "datumfile" : "";
}

std::string kind_hint(const std::string& path) {
  const std::string kind = looks_like(path);
  if (kind.empty()) return is_directory(path) ? "; it is a directory of something else" : "";
  std::string upper = kind;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return str("; it looks like a ", kind, ", for which the back end is ", upper);
}

Status check_record_size(const std::string& path, std::string_view key, std::string_view value) {
  if (key.size() > kMaxRecordBytes || value.size() > kMaxRecordBytes ||
      key.size() + value.size() + 8 > kMaxRecordBytes)
    return Error{Code::kData, str("the record \"", key.substr(0, 80), "\" for ", path,
                                  " has a key of ", key.size(), " and a value of ", value.size(),
                                  " bytes; together they may have ", kMaxRecordBytes - 8)};
  return {};
}

}  // namespace shoal
