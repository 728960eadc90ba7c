#include "common/listed.h"

#include <charconv>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/data/image_list.h"

namespace shoal {
namespace {

class ListedSource final : public RecordSource {
 public:
  ListedSource(std::string path, std::vector<ListedImage> images)
      : path_(std::move(path)), images_(std::move(images)) {}
  const std::string& path() const override { return path_; }
  Result<std::optional<RecordView>> next() override {
    if (position_ >= images_.size()) return std::optional<RecordView>();
    const ListedImage& image = images_[position_++];
    label_ = std::to_string(image.label);
    return std::optional(RecordView{image.path, label_});
  }
  Status seek(std::uint64_t position) override {
    position_ = position % images_.size();
    return {};
  }
  Result<std::uint64_t> count() override { return std::uint64_t{images_.size()}; }
  Status prepare_random_access() override { return {}; }

 private:
  std::string path_, label_;
  std::vector<ListedImage> images_;
  std::uint64_t position_ = 0;
};

class ListedWriter final : public RecordWriter {
 public:
  explicit ListedWriter(AtomicFile file) : file_(std::move(file)) {}
  Status put(std::string_view key, std::string_view value) override {
    return file_.write(str(key, " ", value, "\n"));
  }
  Status commit() override { return {}; }
  Status finish() override { return file_.commit(); }

 private:
  AtomicFile file_;
};

}  // namespace

Result<std::unique_ptr<RecordSource>> open_listed(const std::string& path) {
  Result<std::vector<ListedImage>> images = read_image_list(path);
  if (!images.ok()) return images.error();
  return std::unique_ptr<RecordSource>(
      std::make_unique<ListedSource>(path, std::move(images).value()));
}

Result<std::unique_ptr<RecordWriter>> create_listed(const std::string& path) {
  Result<AtomicFile> file = AtomicFile::create(path, Code::kData);
  if (!file.ok()) return file.error();
  return std::unique_ptr<RecordWriter>(std::make_unique<ListedWriter>(std::move(file).value()));
}

int listed_label(const RecordView& record) {
  int label = 0;
  const auto [end, bad] =
      std::from_chars(record.value.data(), record.value.data() + record.value.size(), label);
  CHECK(bad == std::errc() && end == record.value.data() + record.value.size()) << record.value;
  return label;
}

}  // namespace shoal
