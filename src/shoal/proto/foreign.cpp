// Normalizes models that other Caffe forks wrote.
#include "shoal/proto/foreign.h"

#include <google/protobuf/unknown_field_set.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string_view>

#include "shoal/base/bytes.h"
#include "shoal/base/error.h"
#include "shoal/base/log.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

namespace shoal {
namespace {

using google::protobuf::RepeatedField;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

constexpr int kPoseidonBlobMode = 7, kPoseidonGlobalId = 8;
constexpr int kFirstParam = 8;               // of a layer, behind its blobs
constexpr int kRawType = 10, kRawData = 12;  // NVIDIA's
enum RawType : std::uint64_t { kDouble = 0, kFloat = 1, kHalf = 2 };

bool is_poseidons(const BlobProto& blob) {
  const auto& unknown = blob.unknown_fields();
  for (int i = 0; i < unknown.field_count(); ++i) {
    const UnknownField& field = unknown.field(i);
    const bool number = field.number() == kPoseidonBlobMode || field.number() == kPoseidonGlobalId;
    if (number && field.type() == UnknownField::TYPE_VARINT) return true;
  }
  return false;
}

float half_to_float(std::uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const float sign = half >> 15 ? -1.0f : 1.0f;
  if (exponent == 31)
    return fraction ? std::numeric_limits<float>::quiet_NaN()
                    : sign * std::numeric_limits<float>::infinity();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

template <class Unsigned, class Convert>
void unpack(std::string_view bytes, RepeatedField<float>& out, Convert convert) {
  out.Reserve(static_cast<int>(bytes.size() / sizeof(Unsigned)));
  for (; bytes.size() >= sizeof(Unsigned); bytes.remove_prefix(sizeof(Unsigned)))
    out.Add(convert(get_le<Unsigned>(bytes)));
}

void read_raw(BlobProto& blob, std::uint64_t type, std::string_view bytes,
              const std::string& where) {
  RepeatedField<float>& out = *blob.mutable_data();
  if (type == kFloat)
    unpack<std::uint32_t>(bytes, out, [](std::uint32_t v) { return std::bit_cast<float>(v); });
  else if (type == kHalf)
    unpack<std::uint16_t>(bytes, out, half_to_float);
  else if (type == kDouble)
    unpack<std::uint64_t>(
        bytes, out, [](std::uint64_t v) { return static_cast<float>(std::bit_cast<double>(v)); });
  else
    throw ConfigError(Code::kConfig, where, ": holds whole numbers (raw_data_type ", type,
                      " of NVIDIA's fork), which are not read");
}

// NVIDIA's raw_data, if data and double_data are empty.
void settle_raw(BlobProto& blob, const std::string& where) {
  if (blob.unknown_fields().empty() || blob.data_size() || blob.double_data_size()) return;
  std::uint64_t type = kDouble;
  const std::string* bytes = nullptr;
  const auto& unknown = blob.unknown_fields();
  for (int i = 0; i < unknown.field_count(); ++i) {
    const UnknownField& field = unknown.field(i);
    if (field.number() == kRawType && field.type() == UnknownField::TYPE_VARINT)
      type = field.varint();
    if (field.number() == kRawData && field.type() == UnknownField::TYPE_LENGTH_DELIMITED)
      bytes = &field.length_delimited();
  }
  if (bytes) read_raw(blob, type, *bytes, where);
}

void to_float(RepeatedField<double>& from, RepeatedField<float>& to) {
  if (from.empty() || !to.empty()) return;
  to.Reserve(from.size());
  for (const double value : from) to.Add(static_cast<float>(value));
}

// Adds one field of a message that may be another's. Returns whether it can be read.
template <class Message>
bool merge_field(const UnknownField& field, Message& message) {
  UnknownFieldSet alone;
  alone.AddField(field);
  std::string bytes;
  Message one;
  if (!alone.SerializeToString(&bytes) || !one.ParsePartialFromString(bytes)) return false;
  message.MergeFrom(one);
  return true;
}

// Adds the numbers of fields that cannot be read to `left_out`. Returns false for a damaged layer.
template <class Message>
bool read_fork_layer(const std::string& bytes, Message& layer, std::set<int>& left_out) {
  if (layer.ParsePartialFromString(bytes)) return true;
  layer.Clear();
  UnknownFieldSet fields;
  if (!fields.ParseFromString(bytes)) return false;
  for (int i = 0; i < fields.field_count(); ++i) {
    const int number = fields.field(i).number();
    if (merge_field(fields.field(i), layer)) continue;
    if (number < kFirstParam) return false;  // its name or its blobs
    left_out.insert(number);
  }
  return true;
}

std::string dims_in_words(const std::vector<std::int64_t>& dims) {
  std::string words;
  for (const std::int64_t dim : dims) words += str(words.empty() ? "" : " x ", dim);
  return words.empty() ? "one number" : words;
}

// Returns the number of values of a shape; throws for a negative size or a product past 2^31.
std::int64_t count_of(const std::vector<std::int64_t>& dims, const std::string& where) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) {
    if (dim < 0 || dim > std::numeric_limits<std::int32_t>::max() ||
        (count *= dim) > std::numeric_limits<std::int32_t>::max())
      throw ConfigError(Code::kConfig, where, ": the shape ", dims_in_words(dims),
                        " is negative or too large");
  }
  return count;
}

}  // namespace

void adopt_poseidon(NetParameter& net, const std::string& name) {
  bool found = false;
  for (const V1LayerParameter& layer : net.layers())
    for (const BlobProto& blob : layer.blobs()) found = found || is_poseidons(blob);
  if (!found) return;
  LOG(INFO) << name << ": written by Poseidon";
  for (V1LayerParameter& layer : *net.mutable_layers()) {
    if (layer.data_param().has_force_encoded_color()) {
      DataParameter& param = *layer.mutable_data_param();
      param.set_shared_file_system(param.force_encoded_color());
      param.clear_force_encoded_color();
    }
    if (layer.image_data_param().has_is_color()) {
      ImageDataParameter& param = *layer.mutable_image_data_param();
      param.set_shared_file_system(param.is_color());
      param.clear_is_color();
    }
  }
}

bool read_fork_model(const std::string& bytes, const std::string& name, NetParameter& net) {
  UnknownFieldSet fields;
  if (!fields.ParseFromString(bytes)) return false;
  net.Clear();
  std::set<int> left_out;
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    const bool holds_bytes = field.type() == UnknownField::TYPE_LENGTH_DELIMITED;
    bool read = true;
    if (holds_bytes && field.number() == NetParameter::kLayerFieldNumber)
      read = read_fork_layer(field.length_delimited(), *net.add_layer(), left_out);
    else if (holds_bytes && field.number() == NetParameter::kLayersFieldNumber)
      read = read_fork_layer(field.length_delimited(), *net.add_layers(), left_out);
    else
      merge_field(field, net);
    if (!read) return false;
  }
  std::string numbers;
  for (const int number : left_out) numbers += str(numbers.empty() ? "" : ", ", number);
  LOG(INFO) << name << ": written by a fork of Caffe; left out of its layers, since they are other "
            << "fields here: number " << numbers;
  return true;
}

void drop_colliding_params(NetParameter& net) {
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (layer.type() != "Swish") layer.clear_swish_param();
    if (layer.type() != "Clip") layer.clear_clip_param();
  }
}

void settle_blob(BlobProto& blob, const std::string& where) {
  settle_raw(blob, where);
  to_float(*blob.mutable_double_data(), *blob.mutable_data());
  to_float(*blob.mutable_double_diff(), *blob.mutable_diff());
  blob.clear_double_data();
  blob.clear_double_diff();
  blob.DiscardUnknownFields();
  const std::vector<std::int64_t> dims = blob_dims(blob);
  const std::int64_t count = count_of(dims, where);
  if (count != blob.data_size() || (blob.diff_size() && count != blob.diff_size()))
    throw ConfigError(Code::kConfig, where, ": the shape ", dims_in_words(dims), " wants ", count,
                      " values, but there are ",
                      count != blob.data_size() ? blob.data_size() : blob.diff_size(),
                      "; the file is damaged");
}

}  // namespace shoal
