// Reads all records of a source once and serves them from memory.
#include <utility>

#include "shoal/data/record.h"

namespace shoal {
namespace {

class InMemorySource final : public RecordSource {
 public:
  explicit InMemorySource(std::string path) : path_(std::move(path)) {}
  void add(const RecordView& record) { records_.emplace_back(record.key, record.value); }
  const std::string& path() const override { return path_; }
  Result<std::optional<RecordView>> next() override {
    if (position_ >= records_.size()) return std::optional<RecordView>();
    const auto& [key, value] = records_[position_++];
    return std::optional(RecordView{key, value});
  }
  Status seek(std::uint64_t position) override {
    position_ = position % records_.size();
    return {};
  }
  Result<std::uint64_t> count() override { return std::uint64_t{records_.size()}; }
  Status prepare_random_access() override { return {}; }

 private:
  std::string path_;
  std::vector<std::pair<std::string, std::string>> records_;
  std::uint64_t position_ = 0;
};

}  // namespace

Result<std::unique_ptr<RecordSource>> load_source(std::unique_ptr<RecordSource> source) {
  auto memory = std::make_unique<InMemorySource>(source->path());
  if (Status started = source->seek(0); !started.ok()) return started.error();
  for (;;) {
    Result<std::optional<RecordView>> record = source->next();
    if (!record.ok()) return record.error();
    if (!record.value()) return std::unique_ptr<RecordSource>(std::move(memory));
    memory->add(*record.value());
  }
}

}  // namespace shoal
