// Copies numbers between tensors and BlobProto messages.
#include "shoal/layers/blob_proto.h"

#include <algorithm>

#include "shoal/base/log.h"

namespace shoal {

Shape shape_of(const BlobProto& proto) {
  if (proto.has_shape())
    return Shape(std::vector<std::int64_t>(proto.shape().dim().begin(), proto.shape().dim().end()));
  return Shape{proto.num(), proto.channels(), proto.height(), proto.width()};
}

bool same_shape(const BlobProto& proto, const Shape& want) {
  if (proto.has_shape()) return shape_of(proto) == want;
  if (want.axes() > 4) return false;
  std::vector<std::int64_t> dims(static_cast<std::size_t>(4 - want.axes()), 1);
  dims.insert(dims.end(), want.dims().begin(), want.dims().end());
  return shape_of(proto) == Shape(dims);
}

std::int64_t number_count(const BlobProto& proto) {
  return proto.double_data_size() > 0 ? proto.double_data_size() : proto.data_size();
}

void copy_numbers(const BlobProto& proto, Tensor& tensor) {
  CHECK(number_count(proto) == tensor.count())
      << number_count(proto) << " numbers for the shape " << tensor.shape().str();
  const auto out = tensor.host_out().begin();
  if (proto.double_data_size() > 0)
    std::ranges::transform(proto.double_data(), out,
                           [](double x) { return static_cast<float>(x); });
  else
    std::ranges::copy(proto.data(), out);
}

void put_tensor(const Tensor& tensor, BlobProto& proto) {
  proto.Clear();
  for (const std::int64_t dim : tensor.shape().dims()) proto.mutable_shape()->add_dim(dim);
  const std::span<const float> numbers = tensor.host();
  proto.mutable_data()->Add(numbers.begin(), numbers.end());
}

}  // namespace shoal
