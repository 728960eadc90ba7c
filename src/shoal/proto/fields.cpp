// Copies fields between messages by name.
#include "shoal/proto/fields.h"

#include <google/protobuf/descriptor.h>

#include "shoal/base/log.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

bool reads_data_param(const LayerParameter& layer) {
  return layer.type() == "Data" || layer.type() == "AnnotatedData";
}

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

namespace {

std::uint32_t to_unsigned(std::int32_t value) {
  return value < 0 ? 0 : static_cast<std::uint32_t>(value);
}

// Sizes that V0 had with a sign.
bool narrows(const FieldDescriptor& from, const FieldDescriptor& to) {
  return from.cpp_type() == FieldDescriptor::CPPTYPE_INT32 &&
         to.cpp_type() == FieldDescriptor::CPPTYPE_UINT32 && !to.is_repeated();
}

// Puts item `index` of a field (-1: the only value) into `to`, set or appended.
#define COPY(Kind)                                                                          \
  do {                                                                                      \
    const auto value =                                                                      \
        index < 0 ? in.Get##Kind(from, &field) : in.GetRepeated##Kind(from, &field, index); \
    to_field.is_repeated() ? out.Add##Kind(&to, &to_field, value)                           \
                           : out.Set##Kind(&to, &to_field, value);                          \
  } while (false)

void copy_value(const Message& from, const FieldDescriptor& field, int index, Message& to,
                const FieldDescriptor& to_field) {
  const Reflection& in = *from.GetReflection();
  const Reflection& out = *to.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      if (to_field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32)
        out.SetUInt32(&to, &to_field, to_unsigned(in.GetInt32(from, &field)));
      else
        COPY(Int32);
      break;
    case FieldDescriptor::CPPTYPE_INT64: COPY(Int64); break;
    case FieldDescriptor::CPPTYPE_UINT32: COPY(UInt32); break;
    case FieldDescriptor::CPPTYPE_UINT64: COPY(UInt64); break;
    case FieldDescriptor::CPPTYPE_DOUBLE: COPY(Double); break;
    case FieldDescriptor::CPPTYPE_FLOAT: COPY(Float); break;
    case FieldDescriptor::CPPTYPE_BOOL: COPY(Bool); break;
    case FieldDescriptor::CPPTYPE_ENUM: COPY(EnumValue); break;
    case FieldDescriptor::CPPTYPE_STRING: COPY(String); break;
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      const Message& value =
          index < 0 ? in.GetMessage(from, &field) : in.GetRepeatedMessage(from, &field, index);
      (to_field.is_repeated() ? out.AddMessage(&to, &to_field) : out.MutableMessage(&to, &to_field))
          ->MergeFrom(value);
      break;
    }
  }
}
#undef COPY

}  // namespace

void copy_field(const Message& from, const FieldDescriptor& from_field, Message& to,
                const FieldDescriptor& to_field) {
  CHECK(from_field.cpp_type() == to_field.cpp_type() || narrows(from_field, to_field))
      << from_field.full_name() << " to " << to_field.full_name();
  if (!from_field.is_repeated()) {
    if (from.GetReflection()->HasField(from, &from_field))
      copy_value(from, from_field, -1, to, to_field);
    return;
  }
  const int count = from.GetReflection()->FieldSize(from, &from_field);
  for (int i = 0; i < count; ++i) copy_value(from, from_field, i, to, to_field);
}

}  // namespace shoal
