// HDF5Data layer: batches of rows of arrays in HDF5 files that a list names.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <new>
#include <numeric>
#include <optional>

#include "shoal/base/file.h"
#include "shoal/base/list_file.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/base/timer.h"
#include "shoal/layers/source_place.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/hdf5.h"
#include "shoal/proto/io.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

struct ListedFile {
  std::string path;
  std::uint64_t line = 0;
  std::uint64_t rows = 0;
};

// Finds which row of which file is a net's n-th. Without shuffling the files follow each other, and
// their rows; with it the files have another order in every epoch, and so have the rows of each. So
// one file after the other is needed. Pure but for the orders it keeps.
class RowOrder {
 public:
  struct Row {
    std::size_t file = 0;
    std::uint64_t row = 0;
  };
  RowOrder(const SequenceOptions& options, const std::vector<ListedFile>& files)
      : options_(options), sequence_(options) {
    for (const ListedFile& file : files) rows_.push_back(file.rows);
    total_ = std::accumulate(rows_.begin(), rows_.end(), std::uint64_t{0});
  }
  std::uint64_t total() const { return total_; }
  Row at(std::uint64_t n) {
    const std::uint64_t place = sequence_.place(n, total_);
    order_files(place / total_);
    const std::uint64_t in_epoch = place % total_;
    const auto next = std::ranges::upper_bound(begins_, in_epoch);
    const auto turn = static_cast<std::size_t>(next - begins_.begin()) - 1;
    const std::size_t file = files_[turn];
    const std::uint64_t row = in_epoch - begins_[turn];
    if (!options_.shuffle) return {file, row};
    if (!ordered_ || *ordered_ != file) {
      row_order_ = permuted(str("rows of file ", file), rows_[file]);
      ordered_ = file;
    }
    return {file, row_order_[row]};
  }

 private:
  std::vector<std::uint64_t> permuted(const std::string& what, std::uint64_t count) const {
    const Random::State stream = Random(options_.seed, options_.stream).fork(what).state();
    return permutation(stream.seed, stream.stream, *epoch_, count);
  }
  void order_files(std::uint64_t epoch) {
    if (epoch_ == epoch) return;
    epoch_ = epoch;
    ordered_.reset();
    files_.resize(rows_.size());
    std::iota(files_.begin(), files_.end(), std::size_t{0});
    if (options_.shuffle) {
      const std::vector<std::uint64_t> order = permuted("files", files_.size());
      std::ranges::copy(order, files_.begin());
    }
    begins_.clear();
    std::uint64_t begin = 0;
    for (const std::size_t file : files_) {
      begins_.push_back(begin);
      begin += rows_[file];
    }
  }
  SequenceOptions options_;
  Sequence sequence_;
  std::vector<std::uint64_t> rows_;  // of each file
  std::uint64_t total_ = 0;
  std::optional<std::uint64_t> epoch_;  // of the next two
  std::vector<std::size_t> files_;      // in their order
  std::vector<std::uint64_t> begins_;   // the first row of each of them
  std::optional<std::size_t> ordered_;  // the file of row_order_
  std::vector<std::uint64_t> row_order_;
};

// Rows of the arrays that have the tops' names, in the files that the list names one a line, with
// paths from the current folder.
//   top[i] (N, ...), N = batch_size, then the shape of a row of the array, which has any number of
//   axes from 1, and as many rows as the file's other arrays
// Numbers of other types become float32. One file at a time is in memory. setup looks at all files:
// their rows must have one shape. Throws ConfigError with the list's line. A batch goes on in the
// next file, and after the last in the first. Source: BVLC Caffe 1.0's HDF5Data layer; there only
// the shapes of the first file are looked at.
class HDF5Data final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override {
    return {.min_bottoms = 0, .max_bottoms = 0, .max_tops = Arity::kAny};
  }
  Replays replays() const override { return {.forward = false}; }

  void setup(Context& ctx, Bottoms, Tops tops) override {
    if (!why_no_hdf5().empty()) throw config_error(param(), why_no_hdf5());
    if (param().has_transform_param())
      throw config_error(param(),
                         "transform_param does not apply to HDF5Data, whose numbers are taken as "
                         "they are: scale them when the file is written, or by a Power layer");
    const HDF5DataParameter& data = param().hdf5_data_param();
    SourcePlace::Source source;
    source.path = data.source();
    source.shared = data.shared_file_system();
    source.how_to_cut = str("divide the lines of ", data.source(), " among lists of that name");
    source.batch_size = data.batch_size();
    source.shuffle = data.shuffle();
    place_.begin(*this, ctx, source);
    list_ = place_.path();
    read_list();
    for (ListedFile& file : files_) look_at(file);
    order_.emplace(place_.sequence(), files_);
    for (std::size_t i = 0; i < tops.size(); ++i) reshape_top(*tops[i], row_dims_[i]);
    warn_if_small(ctx.share().count());
  }
  void reshape(Context&, Bottoms, Tops) override {}

  void forward(Context& ctx, Bottoms, Tops tops) override {
    const auto batch = static_cast<std::size_t>(tops[0]->shape()[0]);
    std::vector<float*> to;
    for (Blob* top : tops) to.push_back(top->data.out());
    used_.clear();
    for (std::size_t item = 0; item < batch; ++item) {
      const RowOrder::Row row = order_->at(place_.n() + item);
      if (Status status = load(row.file); !status.ok()) return ctx.fail(status.error());
      for (std::size_t i = 0; i < tops.size(); ++i) {
        const std::size_t count = numbers_[i].size() / files_[row.file].rows;
        to[i] = std::copy_n(numbers_[i].begin() + static_cast<std::ptrdiff_t>(row.row * count),
                            count, to[i]);
      }
      used_.push_back(row);
    }
    place_.use_until(place_.n() + batch);
  }
  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}

  std::string save_state() const override { return place_.save(); }
  Status load_state(std::string_view state) override { return go_on(place_.load(state)); }
  Status load_states(std::string_view own, const std::vector<std::string_view>& all) override {
    return go_on(place_.load_all(own, all));
  }
  std::string record_name(std::int64_t item) const override {
    if (item < 0 || item >= static_cast<std::int64_t>(used_.size())) return {};
    const RowOrder::Row& row = used_[static_cast<std::size_t>(item)];
    return str("row ", row.row, " of ", files_[row.file].path);
  }
  double seconds_waited() const override { return seconds_loading_; }

 private:
  using Dims = Hdf5File::Dims;

  // "list:line: "
  std::string at(const ListedFile& file) const { return str(list_, ":", file.line, ": "); }

  void read_list() {
    if (kind_of_file(list_) == FileKind::kHdf5)
      throw config_error(Code::kData, param(), list_,
                         " is an HDF5 file; source is a text file that names such files, one a "
                         "line");
    const Result<std::string> text = shoal::read_list(list_, Code::kData);
    if (!text.ok()) throw config_error(Code::kData, param(), text.error().message);
    std::string_view rest = text.value();
    for (std::uint64_t line = 1; !rest.empty(); ++line) {
      const std::size_t end = rest.find('\n');
      std::string_view name = rest.substr(0, end);
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
      constexpr const char* kBlanks = " \t\r";
      name.remove_prefix(std::min(name.find_first_not_of(kBlanks), name.size()));
      name = name.substr(0, name.find_last_not_of(kBlanks) + 1);
      if (!name.empty()) files_.push_back({std::string(name), line});
    }
    if (files_.empty())
      throw config_error(Code::kData, param(), "the list ", list_, " names no files");
  }

  // Finds how many rows a file has, and that they have the shape of the first file's.
  void look_at(ListedFile& file) {
    const Result<Hdf5File> opened = Hdf5File::open(file.path, Hdf5File::Mode::kRead, Code::kData);
    if (!opened.ok())
      throw config_error(Code::kData, param(), at(file), opened.error().message, beside(file));
    for (int i = 0; i < param().top_size(); ++i) {
      Dims dims = dims_of(opened.value(), param().top(i), file);
      if (i > 0 && dims[0] != static_cast<std::int64_t>(file.rows))
        throw config_error(Code::kData, param(), at(file), file.path, ": the dataset '",
                           param().top(i), "' has ", dims[0], " rows, and '", param().top(0),
                           "' has ", file.rows);
      file.rows = static_cast<std::uint64_t>(dims[0]);
      dims.erase(dims.begin());
      const auto top = static_cast<std::size_t>(i);
      if (top == row_dims_.size()) row_dims_.push_back(dims);
      if (dims != row_dims_[top])
        throw config_error(Code::kData, param(), at(file), file.path, ": a row of the dataset '",
                           param().top(i), "' has the shape ", Shape(dims).str(), ", but in ",
                           files_[0].path, " (line ", files_[0].line, ") it has ",
                           Shape(row_dims_[top]).str());
    }
  }

  Dims dims_of(const Hdf5File& opened, const std::string& dataset, const ListedFile& file) const {
    if (!opened.has(dataset)) {
      const Result<std::vector<std::string>> all = opened.arrays("/");
      throw config_error(Code::kData, param(), at(file), file.path, " has no dataset '", dataset,
                         "', which a top is named after; it has ",
                         all.ok() && !all.value().empty() ? join(all.value()) : "none");
    }
    Result<Dims> dims = opened.dims(dataset);
    if (!dims.ok()) throw config_error(Code::kData, param(), at(file), dims.error().message);
    if (dims.value().empty())
      throw config_error(Code::kData, param(), at(file), file.path, ": the dataset '", dataset,
                         "' is a single number; its first axis should be the rows");
    if (dims.value()[0] == 0)
      throw config_error(Code::kData, param(), at(file), file.path, ": the dataset '", dataset,
                         "' has no rows");
    return std::move(dims).value();
  }

  // Says where a file that is not there may be.
  std::string beside(const ListedFile& file) const {
    const std::filesystem::path path(file.path),
        folder = std::filesystem::path(list_).parent_path();
    if (path.is_absolute() || file_exists(file.path) || !file_exists((folder / path).string()))
      return "";
    return str("; there is one beside the list, ", (folder / path).string(),
               ", but its names count from the current folder");
  }

  void reshape_top(Blob& top, const Dims& row) const {
    Dims dims = {param().hdf5_data_param().batch_size()};
    dims.insert(dims.end(), row.begin(), row.end());
    try {
      top.reshape(Shape(dims));
    } catch (const ConfigError& error) {
      throw config_error(param(), error.what());
    }
  }

  void warn_if_small(int nets) const {
    const std::uint32_t batch = param().hdf5_data_param().batch_size();
    if (order_->total() < std::uint64_t{batch} * static_cast<std::uint64_t>(nets))
      LOG(WARNING) << "layer '" << name() << "': a batch of " << batch
                   << (nets > 1 ? str(" on each of ", nets, " nets") : "")
                   << " is larger than the set " << list_ << " of " << order_->total()
                   << " rows: each batch holds some of them more than once";
  }

  // Brings the arrays of a file to memory, in place of another's.
  Status load(std::size_t file) {
    if (loaded_ == file) return {};
    loaded_.reset();
    const auto start = std::chrono::steady_clock::now();
    const Status status = read(files_[file]);
    seconds_loading_ += to_seconds(std::chrono::steady_clock::now() - start);
    if (!status.ok()) return Error{status.error().code, at(files_[file]) + status.error().message};
    loaded_ = file;
    return {};
  }

  Status read(const ListedFile& file) {
    const Result<Hdf5File> opened = Hdf5File::open(file.path, Hdf5File::Mode::kRead, Code::kData);
    if (!opened.ok()) return opened.error();
    numbers_.resize(row_dims_.size());
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      std::uint64_t count = file.rows;
      for (const std::int64_t dim : row_dims_[i]) count *= static_cast<std::uint64_t>(dim);
      try {
        numbers_[i].resize(count);
      } catch (const std::bad_alloc&) {
        return Error{Code::kData,
                     str(file.path, ": out of memory for its ", count,
                         " numbers: each file is read whole, so write several smaller files")};
      }
      const Status status = opened.value().read(param().top(static_cast<int>(i)), numbers_[i]);
      if (!status.ok()) return status;
    }
    return {};
  }

  Status go_on(const Result<bool>& in_another_order) {
    if (in_another_order.ok() && in_another_order.value())
      order_.emplace(place_.sequence(), files_);
    return in_another_order;
  }

  SourcePlace place_;
  std::string list_;
  std::vector<ListedFile> files_;
  std::vector<Dims> row_dims_;  // of a row, for each top
  std::optional<RowOrder> order_;
  std::optional<std::size_t> loaded_;  // the file of numbers_
  std::vector<std::vector<float>> numbers_;
  std::vector<RowOrder::Row> used_;  // of the last batch
  double seconds_loading_ = 0;
};

}  // namespace

std::unique_ptr<Layer> make_HDF5Data(const LayerParameter& param) {
  return std::make_unique<HDF5Data>(param);
}

}  // namespace shoal
