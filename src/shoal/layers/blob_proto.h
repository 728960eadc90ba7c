// Copies blobs into and out of protobuf messages.
#pragma once

#include "shoal/proto/blob.pb.h"
#include "shoal/tensor/tensor.h"

namespace shoal {

// Returns the shape as written: the present form, or the four sizes of old files.
Shape shape_of(const BlobProto& proto);
// Returns whether `proto` fits a blob of shape `want`; an old four-axis shape equals a shorter one
// with ones put in front.
bool same_shape(const BlobProto& proto, const Shape& want);
// number_count returns how many numbers `proto` holds; copy_numbers copies them, which must be
// tensor.count().
std::int64_t number_count(const BlobProto& proto);
void copy_numbers(const BlobProto& proto, Tensor& tensor);
// Overwrites `proto` with shape and data.
void put_tensor(const Tensor& tensor, BlobProto& proto);

}  // namespace shoal
