// Whole numbers of layers that are far too large, or nought: each is refused with the layer's place
// or the net runs, in memory that fits its small bottoms.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <unistd.h>
#include <algorithm>
#include <cctype>
#include <fstream>
#include <functional>
#include <limits>
#include <new>

#include "shoal/data/image.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/data_files.h"
#include "support/layer_cases.h"

namespace shoal::test::layer_numbers_test {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr std::int64_t kNumbers[] = {std::numeric_limits<std::int64_t>::min(),
                                     std::numeric_limits<std::int32_t>::min(),
                                     -1,
                                     0,
                                     1,
                                     65535,
                                     65536,
                                     600'000'000,
                                     2'147'483'647,
                                     2'147'483'648,
                                     4'294'967'295,
                                     std::numeric_limits<std::int64_t>::max()};

// Lets the process take so many bytes more, while it lives.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::uint64_t more) {
    ::getrlimit(RLIMIT_AS, &before_);
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + more;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    ::setrlimit(RLIMIT_AS, &limit);
#endif
  }
  MemoryLimit(const MemoryLimit&) = delete;
  ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_;
};

bool takes(const FieldDescriptor& field, std::int64_t number) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return std::in_range<std::int32_t>(number);
    case FieldDescriptor::CPPTYPE_UINT32: return std::in_range<std::uint32_t>(number);
    case FieldDescriptor::CPPTYPE_INT64: return true;
    default: return false;
  }
}

// Replaces the field's value, or the first of its values.
void put(Message& message, const FieldDescriptor& field, std::int64_t number) {
  const google::protobuf::Reflection& put = *message.GetReflection();
  const bool all = field.is_repeated(), fresh = all && put.FieldSize(message, &field) == 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      const auto value = static_cast<std::int32_t>(number);
      if (!all) return put.SetInt32(&message, &field, value);
      return fresh ? put.AddInt32(&message, &field, value)
                   : put.SetRepeatedInt32(&message, &field, 0, value);
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      const auto value = static_cast<std::uint32_t>(number);
      if (!all) return put.SetUInt32(&message, &field, value);
      return fresh ? put.AddUInt32(&message, &field, value)
                   : put.SetRepeatedUInt32(&message, &field, 0, value);
    }
    default:
      if (!all) return put.SetInt64(&message, &field, number);
      return fresh ? put.AddInt64(&message, &field, number)
                   : put.SetRepeatedInt64(&message, &field, 0, number);
  }
}

// Calls visit(field's name, number) with each number in each field in turn, in place.
void each_number(Message& message, const std::string& path,
                 const std::function<void(const std::string&, std::int64_t)>& visit) {
  const auto& descriptor = *message.GetDescriptor();
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    const std::string name = path + field.name();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (field.is_repeated() && reflection.FieldSize(message, &field) > 0)
        each_number(*reflection.MutableRepeatedMessage(&message, &field, 0), name + ".", visit);
      if (!field.is_repeated() && reflection.HasField(message, &field))
        each_number(*reflection.MutableMessage(&message, &field), name + ".", visit);
      continue;
    }
    const std::unique_ptr<Message> before(message.New());
    before->CopyFrom(message);
    for (const std::int64_t number : kNumbers) {
      if (!takes(field, number)) continue;
      put(message, field, number);
      visit(name, number);
      message.CopyFrom(*before);
    }
  }
}

// The layer's own param, set or not: "inner_product_param" of an InnerProduct.
Message* own_param(LayerParameter& layer) {
  std::string type = layer.type();
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto& descriptor = *layer.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    std::string name = descriptor.field(i)->name();
    std::erase(name, '_');
    if (name == type + "param")
      return layer.GetReflection()->MutableMessage(&layer, descriptor.field(i));
  }
  return nullptr;
}

class LayerNumbers : public testing::Test {
 protected:
  // Builds the net of the layer above its bottoms, and passes once each way.
  static void pass(const LayerParameter& layer, Phase phase, const std::vector<Shape>& shapes,
                   const std::vector<Numbers>& bottoms) {
    NetParameter param;
    param.mutable_state()->set_phase(phase);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      LayerParameter& input = *param.add_layer();
      input.set_name(str("input", i));
      input.set_type("Input");
      input.add_top(str("b", i));
      BlobShape& shape = *input.mutable_input_param()->add_shape();
      for (const std::int64_t dim : shapes[i].dims()) shape.add_dim(dim);
    }
    *param.add_layer() = layer;
    Context context({.threads = 1, .seed = 1});
    Net net(param, context);
    for (std::size_t i = 0; i < bottoms.size(); ++i)
      test::put(bottoms[i], net.blob(str("b", i))->data);
    or_throw(Status(net.forward()));
    if (phase == TRAIN) or_throw(net.backward());
  }

  // Expects no other end than a refusal that names the layer. No memory is one only where the
  // number is a size of a blob, which the user has asked for (`field`).
  static void expect_handled(const LayerParameter& layer, Phase phase,
                             const std::vector<Shape>& shapes, const std::vector<Numbers>& bottoms,
                             const std::string& field = "") {
    try {
      pass(layer, phase, shapes, bottoms);
    } catch (const ConfigError& error) {
      const Code code = error.error().code;
      EXPECT_TRUE(code == Code::kConfig || code == Code::kData) << error.what();
      EXPECT_HAS(error.what(), "layer 'x' (" + layer.type() + ")");
    } catch (const std::bad_alloc&) {
      EXPECT_TRUE(field.ends_with("shape.dim") || field.ends_with("input_dim"))
          << "no memory: " << layer.ShortDebugString();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << "\n" << layer.ShortDebugString();
    }
  }

  // Tries all numbers in all fields of the layer.
  static void try_all(LayerParameter layer, Phase phase, const std::vector<Shape>& shapes,
                      const std::vector<Numbers>& bottoms) {
    own_param(layer);  // is there from now on
    layer.set_name("x");
    LayerParameter tried = layer;
    const auto& descriptor = *layer.GetDescriptor();
    for (int i = 0; i < descriptor.field_count(); ++i) {
      const FieldDescriptor& field = *descriptor.field(i);
      if (!field.name().ends_with("_param") || field.is_repeated() ||
          !layer.GetReflection()->HasField(layer, &field))
        continue;
      Message& fields = *tried.GetReflection()->MutableMessage(&tried, &field);
      each_number(fields, field.name() + ".", [&](const std::string& name, std::int64_t number) {
        SCOPED_TRACE(str(name, ": ", number));
        expect_handled(tried, phase, shapes, bottoms, name);
      });
    }
  }

  const MemoryLimit limit_{std::uint64_t{1} << 30};
};

TEST_F(LayerNumbers, OfEveryCase) {
  for (const LayerCase& c : every_layer_case()) {
    SCOPED_TRACE(c.name);
    const std::unique_ptr<LayerRig> rig = make_rig(c, {});
    std::vector<Numbers> bottoms;
    for (int i = 0; i < rig->bottoms(); ++i) bottoms.push_back(rig->input(i));
    try_all(layer_of(c), c.phase, bottom_shapes(c), bottoms);
  }
}

// Numbers of one window that are large together.
TEST_F(LayerNumbers, OfWindows) {
  const auto try_window = [](const std::string& type, const std::string& fields) {
    SCOPED_TRACE(type + ": " + fields);
    const bool pools = type == "Pooling", learns = type != "Im2col" && !pools;
    LayerParameter layer = parse_layer("layer { name: 'x' bottom: 'b0' top: 't' type: '" + type +
                                       "' " + (pools ? "pooling" : "convolution") + "_param { " +
                                       fields + (learns ? " num_output: 2" : "") + " } }");
    expect_handled(layer, TRAIN, {{1, 1, 5, 5}}, {Numbers(25, 0.5f)});
  };
  for (const char* kernel : {"1", "3", "65537", "2147483647"})
    for (const char* pad : {"0", "1", "65536", "2147483646"})
      for (const char* stride : {"1", "65536", "2147483647"}) {
        const std::string window = str("kernel_size: ", kernel, " pad: ", pad, " stride: ", stride);
        for (const char* pool : {"MAX", "AVE", "STOCHASTIC"})
          for (const char* round : {"CEIL", "FLOOR"})
            try_window("Pooling", str(window, " pool: ", pool, " round_mode: ", round));
        for (const char* dilation : {"1", "65536", "2147483647"})
          for (const char* type : {"Convolution", "Deconvolution", "Im2col"})
            try_window(type, str(window, " dilation: ", dilation));
      }
}

TEST_F(LayerNumbers, OfLayersThatReadRecords) {
  const std::string folder = fresh_directory("numbers");
  ASSERT_OK(write_records("datumfile", folder + "/set", small_records(16)));
  put_file(folder + "/a.png", or_throw(encode_image({{1, 2, 2}, {1, 2, 3, 4}}, "png")));
  put_file(folder + "/list", folder + "/a.png 0\n" + folder + "/a.png 1\n");
  put_file(folder + "/windows",
           "# 0\n" + folder + "/a.png\n1\n2\n2\n2\n1 0.9 0 0 1 1\n0 0.1 0 0 1 1\n");
  for (const std::string text : {
           "type: 'Data' data_param { source: '@/set' backend: DATUMFILE batch_size: 2 } "
           "transform_param { crop_size: 2 }",
           "type: 'ImageData' top: 'l' image_data_param { source: '@/list' batch_size: 1 "
           "is_color: false new_height: 3 new_width: 3 } transform_param { crop_size: 2 }",
           "type: 'WindowData' top: 'l' window_data_param { source: '@/windows' batch_size: 4 "
           "crop_size: 2 context_pad: 0 } transform_param { crop_size: 2 }",
           "type: 'MemoryData' top: 'l' memory_data_param { batch_size: 2 channels: 1 height: 2 "
           "width: 2 }",
           "type: 'Input' input_param { shape { dim: 2 dim: 3 } }",
       }) {
    std::string own = text;
    for (std::size_t at; (at = own.find('@')) != std::string::npos;) own.replace(at, 1, folder);
    SCOPED_TRACE(own);
    try_all(parse_layer("layer { top: 't' " + own + " }"), TEST, {}, {});
  }
}

}  // namespace
}  // namespace shoal::test::layer_numbers_test
