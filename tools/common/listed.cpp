#include "common/listed.h"

#include <charconv>
#include <limits>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/base/list_file.h"
#include "shoal/base/log.h"
#include "shoal/data/image_list.h"
#include "shoal/data/window_file.h"

namespace shoal {
namespace {

using ListedRecords = std::vector<std::pair<std::string, std::string>>;

class ListedSource final : public RecordSource {
 public:
  ListedSource(std::string path, ListedRecords records)
      : path_(std::move(path)), records_(std::move(records)) {}
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
  ListedRecords records_;
  std::uint64_t position_ = 0;
};

class ListedWriter final : public RecordWriter {
 public:
  ListedWriter(AtomicFile file, bool keys) : file_(std::move(file)), keys_(keys) {}
  Status put(std::string_view key, std::string_view value) override {
    return keys_ ? file_.write(str(key, " ", value, "\n")) : file_.write(value);
  }
  Status commit() override { return {}; }
  Status finish() override { return file_.commit(); }

 private:
  AtomicFile file_;
  bool keys_;  // a record is a line of key and value
};

Result<ListedRecords> read_images(const std::string& path) {
  const Result<std::vector<ListedImage>> images = read_image_list(path);
  if (!images.ok()) return images.error();
  ListedRecords records;
  for (const ListedImage& image : images.value())
    records.emplace_back(image.path, std::to_string(image.label));
  return records;
}

// Returns the first `lines` lines of `text`, which goes on behind them.
std::string take_lines(std::string_view& text, std::uint64_t lines) {
  std::size_t end = 0;
  for (; lines > 0 && end < text.size(); --lines)
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  std::string taken(text.substr(0, end));
  text.remove_prefix(end);
  return taken;
}

Result<ListedRecords> read_windows(const std::string& path) {
  // No threshold matters to what a file says, nor the labels that go with one.
  constexpr float kNever = std::numeric_limits<float>::infinity();
  const Result<WindowFile> windows = read_window_file(path, {kNever, -kNever});
  if (!windows.ok()) return windows.error();
  const Result<std::string> text = read_list(path, Code::kData);
  if (!text.ok()) return text.error();
  std::string_view rest = text.value();
  const std::vector<WindowPicture>& pictures = windows.value().pictures;
  ListedRecords records;
  take_lines(rest, pictures.front().line - 1);  // blank ones
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    const std::uint64_t line = pictures[i].line;
    if (const std::size_t word = rest.find_first_not_of(" \t\r\n");
        word == std::string_view::npos || rest[word] != '#')
      return Error{Code::kData, str(path, ":", line,
                                    ": a picture begins in the middle of a line; to cut this file "
                                    "up, begin each on its own line")};
    const bool last = i + 1 == pictures.size();
    std::string lines = take_lines(
        rest, last ? std::numeric_limits<std::uint64_t>::max() : pictures[i + 1].line - line);
    if (!lines.ends_with('\n')) lines += '\n';
    records.emplace_back(pictures[i].path, std::move(lines));
  }
  return records;
}

}  // namespace

std::string listed_kind(const std::string& path) {
  const Result<std::string> text = read_list(path, Code::kData);
  const std::size_t word =
      text.ok() ? text.value().find_first_not_of(" \t\r\n") : std::string::npos;
  if (word == std::string::npos || text.value()[word] != '#') return kImageList;
  const std::size_t end = text.value().find_first_of(" \t\r\n", word);
  return end == word + 1 ? kWindowFile : kImageList;
}

Result<std::unique_ptr<RecordSource>> open_listed(const std::string& kind,
                                                  const std::string& path) {
  Result<ListedRecords> records = kind == kWindowFile ? read_windows(path) : read_images(path);
  if (!records.ok()) return records.error();
  return std::unique_ptr<RecordSource>(
      std::make_unique<ListedSource>(path, std::move(records).value()));
}

Result<std::unique_ptr<RecordWriter>> create_listed(const std::string& kind,
                                                    const std::string& path) {
  Result<AtomicFile> file = AtomicFile::create(path, Code::kData);
  if (!file.ok()) return file.error();
  return std::unique_ptr<RecordWriter>(
      std::make_unique<ListedWriter>(std::move(file).value(), kind == kImageList));
}

int listed_label(const RecordView& record) {
  int label = 0;
  const auto [end, bad] =
      std::from_chars(record.value.data(), record.value.data() + record.value.size(), label);
  CHECK(bad == std::errc() && end == record.value.data() + record.value.size()) << record.value;
  return label;
}

}  // namespace shoal
