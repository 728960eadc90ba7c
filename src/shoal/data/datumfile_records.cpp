// Reads and writes sets of records as datumfiles (datumfile.h).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "shoal/base/bytes.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/data/backends.h"
#include "shoal/data/datumfile.h"

namespace shoal {
namespace {

class DatumFileSource final : public RecordSource {
 public:
  explicit DatumFileSource(DatumFile file) : file_(std::move(file)) {}
  const std::string& path() const override { return file_.path(); }
  Result<std::optional<RecordView>> next() override;
  Status seek(std::uint64_t position) override;
  Result<std::uint64_t> count() override;
  Status prepare_random_access() override;

 private:
  Status find_all();
  DatumFile file_;
  std::uint64_t offset_ = 0, number_ = 0;
  std::vector<std::uint64_t> offsets_;  // empty, or of all records
  bool random_ = false;
};

Result<std::optional<RecordView>> DatumFileSource::next() {
  if (random_) {
    if (number_ >= offsets_.size()) return std::optional<RecordView>();
    offset_ = offsets_[number_];
  }
  if (offset_ == file_.size()) return std::optional<RecordView>();
  Result<RecordView> record = file_.read(offset_, number_, !random_);
  if (!record.ok()) return record.error();
  offset_ += 12 + record.value().key.size() + record.value().value.size();
  ++number_;
  return std::optional(record.value());
}

Status DatumFileSource::seek(std::uint64_t position) {
  if (!offsets_.empty()) {
    number_ = position % offsets_.size();
    offset_ = offsets_[number_];
    return {};
  }
  if (position < number_) offset_ = 0, number_ = 0;
  while (number_ < position || offset_ == file_.size()) {
    if (offset_ == file_.size()) {
      position %= number_;
      offset_ = 0;
      number_ = 0;
      continue;
    }
    Result<std::uint64_t> step = file_.extent(offset_, number_);
    if (!step.ok()) return step.error();
    offset_ += step.value();
    ++number_;
  }
  return {};
}

Status DatumFileSource::find_all() {
  if (offsets_.empty()) offsets_ = load_datumfile_index(file_);
  if (!offsets_.empty()) return {};
  Result<std::vector<std::uint64_t>> found = file_.scan();
  if (!found.ok()) return found.error();
  offsets_ = std::move(found).value();
  return {};
}

Result<std::uint64_t> DatumFileSource::count() {
  if (Status found = find_all(); !found.ok()) return found.error();
  return std::uint64_t{offsets_.size()};
}

Status DatumFileSource::prepare_random_access() {
  random_ = true;
  if (offsets_.empty()) offsets_ = load_datumfile_index(file_);
  if (!offsets_.empty()) return {};
  if (Status found = find_all(); !found.ok()) return found;
  // Spares the next run the scan; a read-only folder is no fault.
  const Status saved = save_datumfile_index(file_, offsets_);
  if (!saved.ok())
    VLOG(1) << "the index of " << path() << " stays in memory: " << saved.error().message;
  return {};
}

class DatumFileWriter final : public RecordWriter {
 public:
  DatumFileWriter(std::string path, WriteMode mode, AtomicFile file)
      : path_(std::move(path)), mode_(mode), file_(std::move(file)) {}
  Status copy_old();  // for kAppend
  Status put(std::string_view key, std::string_view value) override;
  Status commit() override { return {}; }  // AtomicFile's buffer is bounded already
  Status finish() override;

 private:
  std::string path_;
  WriteMode mode_;
  AtomicFile file_;
  std::uint64_t written_ = 0;
};

Status DatumFileWriter::put(std::string_view key, std::string_view value) {
  if (Status fine = check_record_size(path_, key, value); !fine.ok()) return fine;
  std::string head;
  put_le(head, static_cast<std::uint32_t>(key.size() + value.size() + 8));
  put_le(head, static_cast<std::uint32_t>(key.size()));
  head += key;
  put_le(head, static_cast<std::uint32_t>(value.size()));
  if (Status done = file_.write(head); !done.ok()) return done;
  if (Status done = file_.write(value); !done.ok()) return done;
  ++written_;
  return {};
}

Status DatumFileWriter::copy_old() {
  Result<DatumFile> old = DatumFile::open(path_);
  if (!old.ok()) return old.error();
  for (std::uint64_t offset = 0, number = 0; offset < old.value().size(); ++number) {
    // Reading all finds a torn old file before anything is added.
    Result<RecordView> record = old.value().read(offset, number, true);
    if (!record.ok()) return record.error();
    offset += 12 + record.value().key.size() + record.value().value.size();
    if (Status done = put(record.value().key, record.value().value); !done.ok()) return done;
  }
  return {};
}

Status DatumFileWriter::finish() {
  if (written_ == 0)
    return Error{Code::kData, str("no records were given for ", path_, "; nothing was written")};
  if (mode_ == WriteMode::kNew && file_exists(path_))
    return Error{Code::kData,
                 str(path_, " was made by another program in the meantime; it is unchanged")};
  return file_.commit();
}

}  // namespace

Result<std::unique_ptr<RecordSource>> open_datumfile(const std::string& path) {
  Result<DatumFile> file = DatumFile::open(path);
  if (!file.ok()) return Error{Code::kData, file.error().message + kind_hint(path)};
  if (file.value().size() == 0)
    return Error{Code::kData, str("datumfile ", path, " has no records (0 bytes)")};
  if (Result<std::uint64_t> first = file.value().extent(0, 0); !first.ok()) return first.error();
  return std::unique_ptr<RecordSource>(std::make_unique<DatumFileSource>(std::move(file).value()));
}

Result<std::unique_ptr<RecordWriter>> create_datumfile(const std::string& path, WriteMode mode) {
  if (mode == WriteMode::kNew && file_exists(path))
    return Error{Code::kData, str(path, " exists already; remove it or choose another name")};
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return Error{Code::kData, str("cannot write a datumfile to ", path,
                                  ": it exists and is not a regular file", kind_hint(path))};
  Result<AtomicFile> file = AtomicFile::create(path, Code::kData);
  if (!file.ok()) return file.error();
  auto writer = std::make_unique<DatumFileWriter>(path, mode, std::move(file).value());
  if (mode == WriteMode::kAppend) {
    if (Status copied = writer->copy_old(); !copied.ok()) return copied.error();
  }
  return std::unique_ptr<RecordWriter>(std::move(writer));
}

}  // namespace shoal
