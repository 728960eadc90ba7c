#include "common/merge_features.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/interrupt.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/regular_file.h"
#include "shoal/data/record.h"
#include "shoal/report/progress.h"

namespace shoal {
namespace {

constexpr std::size_t kDigits = 10;
constexpr int kMostParts = 10'000;

// Lines "key label values" as records whose value is the rest of the line.
class TextSource final : public RecordSource {
 public:
  explicit TextSource(std::string path) : path_(std::move(path)), file_(path_) {}
  bool open() const { return file_.is_open(); }
  const std::string& path() const override { return path_; }
  Result<std::optional<RecordView>> next() override {
    if (!std::getline(file_, line_)) {
      if (file_.bad())
        return Error{Code::kData, str("cannot read ", path_, ": ", system_reason(errno))};
      return std::optional<RecordView>();
    }
    if (file_.eof())
      return Error{Code::kData, str(path_, " is cut short: its last line does not end")};
    const std::size_t blank = std::min(line_.find(' '), line_.size());
    return std::optional(RecordView{std::string_view(line_).substr(0, blank),
                                    std::string_view(line_).substr(blank)});
  }
  Status seek(std::uint64_t) override {
    return Error{Code::kData, "a text is read from its beginning to its end"};
  }
  Result<std::uint64_t> count() override { return Error{Code::kData, "lines are not counted"}; }
  Status prepare_random_access() override { return {}; }

 private:
  std::string path_, line_;
  std::ifstream file_;
};

class TextWriter final : public RecordWriter {
 public:
  explicit TextWriter(AtomicFile file) : file_(std::move(file)) {}
  Status put(std::string_view key, std::string_view value) override {
    return file_.write(str(key, value, "\n"));
  }
  Status commit() override { return {}; }
  Status finish() override { return file_.commit(); }

 private:
  AtomicFile file_;
};

std::unique_ptr<RecordSource> open_part(const std::string& backend, const std::string& path) {
  if (backend != "text") return or_throw(open_source(backend, path));
  or_throw(check_regular(path, Code::kData));
  auto source = std::make_unique<TextSource>(path);
  if (!source->open())
    throw ConfigError(Code::kData, "cannot open ", path, ": ", why_not_opened(path, errno));
  return source;
}

std::unique_ptr<RecordWriter> create_whole(const std::string& backend, const std::string& path) {
  if (file_exists(path)) throw ConfigError(Code::kData, path, " exists already");
  if (backend != "text") return or_throw(create_writer(backend, path));
  return std::make_unique<TextWriter>(or_throw(AtomicFile::create(path, Code::kData)));
}

// A part and its first record that is not yet in the whole.
class Part {
 public:
  explicit Part(std::unique_ptr<RecordSource> source) : source_(std::move(source)) { step(); }
  const std::string& path() const { return source_->path(); }
  const std::optional<RecordView>& record() const { return record_; }
  std::string_view key() const { return record_->key; }
  void step() {
    const std::string before = record_ ? std::string(record_->key) : "";
    record_ = or_throw(source_->next());
    if (!record_) return;
    const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
    if (key().size() != kDigits || !std::ranges::all_of(key(), digit))
      throw ConfigError(Code::kData, "the record ", key().substr(0, 80), " of ", path(),
                        ": its key is no number of ten digits, so its place is not known");
    if (key() <= before)
      throw ConfigError(Code::kData, "the record ", key(), " of ", path(), " comes after ", before,
                        "; keys must rise");
  }

 private:
  std::unique_ptr<RecordSource> source_;
  std::optional<RecordView> record_;
};

}  // namespace

void merge_features(const std::string& backend, const std::string& name, int parts,
                    const Interrupt& interrupt) {
  if (parts < 1 || parts > kMostParts)
    throw ConfigError(Code::kUsage, "--merge_parts is ", parts, "; it is from 1 to ", kMostParts);
  std::vector<std::unique_ptr<Part>> open;
  for (int k = 0; k < parts; ++k)
    open.push_back(std::make_unique<Part>(open_part(backend, str(name, "_", k))));
  const std::unique_ptr<RecordWriter> whole = create_whole(backend, name);
  Progress progress("extract_features (merge)", "records", 0);
  std::string last;
  std::uint64_t done = 0;
  // Orders a heap whose top is the first key.
  const auto later = [](const auto& a, const auto& b) { return a->key() > b->key(); };
  std::erase_if(open, [](const auto& part) { return !part->record(); });
  for (std::ranges::make_heap(open, later); !open.empty();) {
    std::ranges::pop_heap(open, later);
    Part& part = *open.back();
    if (part.key() == last)
      throw ConfigError(Code::kData, "the record ", last, " is in two parts, one of them ",
                        part.path());
    last = part.key();
    or_throw(whole->put(part.record()->key, part.record()->value));
    if (++done % kRecordsPerCommit == 0) or_throw(whole->commit());
    part.step();
    if (part.record())
      std::ranges::push_heap(open, later);
    else
      open.pop_back();
    progress.update(done);
    interrupt.check(str("nothing was written to ", name));
  }
  if (!last.empty() && std::stoull(last) + 1 != done)
    LOG(WARNING) << "the last record of " << name << " has the number " << last
                 << ", but there are " << done
                 << ": some part does not hold all that its client should have read";
  or_throw(whole->finish());
  LOG(INFO) << "Wrote " << done << " records to " << name << " (" << backend << ").";
}

}  // namespace shoal
