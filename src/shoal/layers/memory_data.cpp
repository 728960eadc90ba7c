// MemoryData layer: batches from the caller's arrays.
#include "shoal/layers/memory_data.h"

#include <algorithm>

#include "shoal/base/bytes.h"
#include "shoal/base/log.h"
#include "shoal/proto/blob.pb.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

void MemoryData::setup(Context& ctx, Bottoms, Tops tops) {
  const MemoryDataParameter& sizes = param().memory_data_param();
  if (sizes.batch_size() == 0 || sizes.channels() == 0 || sizes.height() == 0 || sizes.width() == 0)
    throw config_error(param(),
                       "memory_data_param must give batch_size, channels, height and width, each "
                       "at least 1; it gives ",
                       sizes.batch_size(), ", ", sizes.channels(), ", ", sizes.height(), ", ",
                       sizes.width());
  Result<Transform> transform = Transform::create(param().transform_param(), training());
  if (!transform.ok())
    throw config_error(transform.error().code, param(), transform.error().message);
  transform_ = std::move(transform).value();
  const Random::State order = ctx.common().fork("data of " + name()).state();
  random_.emplace(SequenceOptions{.seed = order.seed,
                                  .stream = order.stream,
                                  .first = static_cast<std::uint64_t>(ctx.share().index()),
                                  .step = static_cast<std::uint64_t>(ctx.share().count())});
  size_ = {static_cast<int>(sizes.channels()), static_cast<int>(sizes.height()),
           static_cast<int>(sizes.width())};
  try {
    tops[0]->reshape(Shape{sizes.batch_size(), sizes.channels(), sizes.height(), sizes.width()});
  } catch (const ConfigError& error) {
    throw config_error(param(), error.what());
  }
  tops[1]->reshape(Shape{sizes.batch_size()});
  batch_size_ = sizes.batch_size();
  item_count_ = tops[0]->shape().count(1);
}

Status MemoryData::set_data(std::span<const float> data, std::span<const float> labels) {
  if (param().has_transform_param())
    LOG(WARNING) << layer_place(param())
                 << ": transform_param does not apply to set_data; set_images and set_datums do it";
  return take({data.begin(), data.end()}, {labels.begin(), labels.end()});
}

Status MemoryData::take(std::vector<float> data, std::vector<float> labels) {
  const auto items = static_cast<std::int64_t>(labels.size());
  if (items == 0 || static_cast<std::int64_t>(data.size()) != items * item_count_)
    return Error{Code::kData, str("layer '", name(), "': ", data.size(), " numbers for ", items,
                                  " labels; an item has ", item_count_)};
  if (items % batch_size_ != 0)
    return Error{Code::kData, str("layer '", name(), "': ", items,
                                  " items are no multiple of the batch size ", batch_size_)};
  data_ = std::move(data);
  labels_ = std::move(labels);
  next_ = 0;
  return {};
}

// Writes a transformed picture.
Status MemoryData::put(const Pixels& picture, std::size_t item, std::span<float> out) {
  const Result<ImageSize> size = transform_->output_size(picture.size);
  const auto wrong = [&](const std::string& what) {
    return Error{Code::kData, str("layer '", name(), "': item ", item, ": ", what)};
  };
  if (!size.ok()) return wrong(size.error().message);
  if (size.value() != size_)
    return wrong(
        str("it is ", to_string(size.value()), " where memory_data_param says ", to_string(size_)));
  transform_->apply(picture, random_->random(transformed_++), out);
  return {};
}

Status MemoryData::set_images(std::span<const Pixels> pictures, std::span<const float> labels) {
  if (pictures.size() != labels.size())
    return Error{Code::kData, str("layer '", name(), "': ", pictures.size(), " pictures for ",
                                  labels.size(), " labels")};
  const auto count = static_cast<std::size_t>(item_count_);
  std::vector<float> data(count * pictures.size());
  for (std::size_t i = 0; i < pictures.size(); ++i)
    if (Status status = put(pictures[i], i, std::span(data).subspan(i * count, count));
        !status.ok())
      return status;
  return take(std::move(data), {labels.begin(), labels.end()});
}

Status MemoryData::set_datums(std::span<const Datum> datums) {
  std::vector<DatumPixels> decoded;
  std::vector<Pixels> pictures;
  std::vector<float> labels;
  for (const Datum& datum : datums) {
    Result<DatumPixels> pixels = pixels_of(datum, transform_->colour());
    if (!pixels.ok())
      return Error{Code::kData, str("layer '", name(), "': item ", decoded.size(), ": ",
                                    pixels.error().message)};
    decoded.push_back(std::move(pixels).value());
    pictures.push_back(decoded.back().pixels);
    labels.push_back(static_cast<float>(datum.label()));
  }
  return set_images(pictures, labels);
}

void MemoryData::forward(Context& ctx, Bottoms, Tops tops) {
  if (labels_.empty())
    return ctx.fail(Error{
        Code::kData, str("layer '", name(),
                         "' was given no data: a C++ program gives it by set_data "
                         "(examples/cpp_classification); files are read by Data or ImageData")});
  const auto at = static_cast<std::ptrdiff_t>(next_);
  std::copy_n(data_.begin() + at * item_count_, batch_size_ * item_count_, tops[0]->data.out());
  std::copy_n(labels_.begin() + at, batch_size_, tops[1]->data.out());
  next_ = (next_ + static_cast<std::uint64_t>(batch_size_)) % labels_.size();
}

std::string MemoryData::save_state() const {
  std::string state;
  put_le(state, next_);
  return state;
}

Status MemoryData::load_state(std::string_view state) {
  const std::uint64_t next = state.size() == 8 ? get_le<std::uint64_t>(state) : 1;
  if (next % static_cast<std::uint64_t>(batch_size_) != 0 ||
      next >= std::max<std::uint64_t>(labels_.size(), 1))
    return Error{Code::kConfig,
                 str("layer '", name(),
                     "': the saved position does not fit the data; set_data comes first")};
  next_ = next;
  return {};
}

std::string MemoryData::record_name(std::int64_t item) const {
  if (labels_.empty() || item < 0 || item >= batch_size_) return {};
  const std::uint64_t first =
      (next_ + labels_.size() - static_cast<std::uint64_t>(batch_size_)) % labels_.size();
  return str("item ", first + static_cast<std::uint64_t>(item), " of set_data");
}

std::unique_ptr<Layer> make_MemoryData(const LayerParameter& param) {
  return std::make_unique<MemoryData>(param);
}

}  // namespace shoal
