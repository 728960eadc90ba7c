// Copies fields between messages, and knows which layers have which.
#pragma once

#include <google/protobuf/message.h>

namespace shoal {

class LayerParameter;

// Returns whether the layer reads the records that data_param names: Data, AnnotatedData.
bool reads_data_param(const LayerParameter& layer);

// Copies one field, set or not, into a field of the same kind of another message; repeated ones are
// appended, and a single value is appended to a repeated field. Enums travel by number; a negative
// number becomes 0 where the target has no sign.
void copy_field(const google::protobuf::Message& from,
                const google::protobuf::FieldDescriptor& from_field, google::protobuf::Message& to,
                const google::protobuf::FieldDescriptor& to_field);

}  // namespace shoal
