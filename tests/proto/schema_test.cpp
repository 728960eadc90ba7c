// The schema: what it ever held, our numbers, the defaults of Caffe.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "support/places.h"

namespace shoal::proto_schema_test {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

std::string describe(const FieldDescriptor& field) {
  const std::string type = field.enum_type()      ? field.enum_type()->full_name()
                           : field.message_type() ? field.message_type()->full_name()
                                                  : field.type_name();
  const std::string label = field.is_required()   ? "required"
                            : field.is_repeated() ? field.is_packed() ? "packed" : "repeated"
                                                  : "optional";
  std::string line = field.containing_type()->name() + " " + std::to_string(field.number()) + " " +
                     field.name() + " " + label + " " + type;
  if (!field.has_default_value()) return line;
  if (field.enum_type()) return line + " = " + field.default_value_enum()->name();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return line + " = " + std::to_string(field.default_value_bool());
    case FieldDescriptor::CPPTYPE_INT32:
      return line + " = " + std::to_string(field.default_value_int32());
    case FieldDescriptor::CPPTYPE_INT64:
      return line + " = " + std::to_string(field.default_value_int64());
    case FieldDescriptor::CPPTYPE_UINT32:
      return line + " = " + std::to_string(field.default_value_uint32());
    case FieldDescriptor::CPPTYPE_FLOAT: return line + " = " + str(field.default_value_float());
    default: return line + " = \"" + field.default_value_string() + "\"";
  }
}

// All messages and enums that can be reached from a file's, by walking.
void collect(const google::protobuf::FileDescriptor& file, std::set<std::string>& lines) {
  const auto add_enum = [&](const google::protobuf::EnumDescriptor& type) {
    for (int v = 0; v < type.value_count(); ++v)
      lines.insert(type.full_name() + " " + type.value(v)->name() + " " +
                   std::to_string(type.value(v)->number()));
  };
  for (int e = 0; e < file.enum_type_count(); ++e) add_enum(*file.enum_type(e));
  for (int m = 0; m < file.message_type_count(); ++m) {
    const Descriptor& message = *file.message_type(m);
    for (int f = 0; f < message.field_count(); ++f) lines.insert(describe(*message.field(f)));
    for (int e = 0; e < message.enum_type_count(); ++e) add_enum(*message.enum_type(e));
  }
}

std::set<std::string> whole_schema() {
  std::set<std::string> lines;
  for (const Descriptor* message :
       {BlobProto::descriptor(), FillerParameter::descriptor(), AnnotatedDatum::descriptor(),
        PriorBoxParameter::descriptor(), BNParameter::descriptor(), LayerParameter::descriptor(),
        V1LayerParameter::descriptor(), NetParameter::descriptor(), SolverParameter::descriptor()})
    collect(*message->file(), lines);
  return lines;
}

// Files of users hold these names and numbers: a line of schema.txt is never changed nor taken
// away, only added.
TEST(ProtoSchema, HoldsWhatItEverHeld) {
  std::ifstream file(test::repository_root() / "tests/golden/schema.txt");
  ASSERT_TRUE(file) << "tests/golden/schema.txt is not there";
  std::set<std::string> kept;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') kept.insert(line);
  const std::set<std::string> now = whole_schema();
  for (const std::string& line : kept)
    EXPECT_TRUE(now.contains(line)) << "gone or changed: " << line;
  for (const std::string& line : now)
    EXPECT_TRUE(kept.contains(line)) << "add to tests/golden/schema.txt: " << line;
}

TEST(ProtoSchema, OurFieldsStartAtOneThousandAndNeedNotBeGiven) {
  std::set<std::string> ours;
  for (const Descriptor* root :
       {LayerParameter::descriptor(), NetParameter::descriptor(), SolverParameter::descriptor()}) {
    for (int m = 0; m < root->file()->message_type_count(); ++m) {
      const Descriptor& message = *root->file()->message_type(m);
      for (int f = 0; f < message.field_count(); ++f) {
        if (message.field(f)->number() < 1000) continue;
        EXPECT_FALSE(message.field(f)->is_required()) << message.field(f)->full_name();
        ours.insert(message.name() + "." + message.field(f)->name());
      }
    }
  }
  EXPECT_TRUE(ours.contains("LayerParameter.engine"));
  EXPECT_TRUE(ours.contains("SolverParameter.on_nan"));
  EXPECT_EQ(DataParameter::DATUMFILE, 2);
}

TEST(ProtoSchema, DefaultsAreCaffes) {
  EXPECT_EQ(SolverParameter().average_loss(), 1);
  EXPECT_EQ(SolverParameter().solver_mode(), SolverParameter::GPU);
  EXPECT_FLOAT_EQ(BatchNormParameter().moving_average_fraction(), 0.999f);
  EXPECT_FLOAT_EQ(MVNParameter().eps(), 1e-9f);
  EXPECT_EQ(LossParameter().normalization(), LossParameter::VALID);
  // Caffe writes five bytes a value.
  EXPECT_TRUE(Datum::descriptor()->FindFieldByName("float_data")->is_packed() == false);
}

// ---- Files

}  // namespace
}  // namespace shoal::proto_schema_test
