// This file alone asks whether the build has ONNX's schema, and writes its messages.
#include "shoal/base/file.h"
#include "shoal/base/version.h"
#include "shoal/onnx/export.h"

#if SHOAL_ONNX

#include "onnx/onnx.pb.h"

namespace shoal::onnx {
namespace {

namespace schema = ::onnx;

constexpr std::uint64_t kMostInline = (std::uint64_t{19} << 30) / 10;  // 1.9 GiB
constexpr std::size_t kLeastExternal = 1024;
constexpr std::uint64_t kAlign = 4096;

std::string_view bytes_of(const Constant& constant) {
  return constant.is_integer
             ? std::string_view(reinterpret_cast<const char*>(constant.integers.data()),
                                constant.bytes())
             : std::string_view(reinterpret_cast<const char*>(constant.floats().data()),
                                constant.bytes());
}

// The file beside the model; each constant that goes there begins at a multiple of kAlign.
class DataFile {
 public:
  explicit DataFile(const std::string& path)
      : location_(path.substr(path.rfind('/') + 1)), path_(path) {}

  Status add(std::string_view bytes, schema::TensorProto& tensor) {
    if (!file_) {
      Result<AtomicFile> made = AtomicFile::create(path_, Code::kConfig);
      if (!made.ok()) return made.error();
      file_.emplace(std::move(made.value()));
    }
    const std::uint64_t gap = (kAlign - at_ % kAlign) % kAlign;
    if (Status written = file_->write(std::string(gap, '\0')); !written.ok()) return written;
    if (Status written = file_->write(bytes); !written.ok()) return written;
    tensor.set_data_location(schema::TensorProto::EXTERNAL);
    const auto entry = [&](const char* key, const std::string& value) {
      schema::StringStringEntryProto& one = *tensor.add_external_data();
      one.set_key(key);
      one.set_value(value);
    };
    entry("location", location_);
    entry("offset", std::to_string(at_ + gap));
    entry("length", std::to_string(bytes.size()));
    at_ += gap + bytes.size();
    return {};
  }
  Status commit() { return file_ ? file_->commit() : Status(); }

 private:
  std::string location_, path_;
  std::optional<AtomicFile> file_;
  std::uint64_t at_ = 0;
};

void put(const Value& value, schema::ValueInfoProto& to) {
  to.set_name(value.name);
  schema::TypeProto::Tensor& type = *to.mutable_type()->mutable_tensor_type();
  type.set_elem_type(schema::TensorProto::FLOAT);
  for (const Dim& dim : value.dims) {
    schema::TensorShapeProto::Dimension& one = *type.mutable_shape()->add_dim();
    if (dim.kind == Dim::Kind::kFixed) one.set_dim_value(dim.size);
    if (dim.kind == Dim::Kind::kBatch)
      one.set_dim_param(dim.size == 1 ? "N" : std::to_string(dim.size) + "N");
  }
  type.mutable_shape();  // a scalar has a shape, too
}

void put(const Graph& graph, schema::GraphProto& to);

struct PutAttribute {
  void operator()(std::int64_t value) {
    to.set_type(schema::AttributeProto::INT);
    to.set_i(value);
  }
  void operator()(float value) {
    to.set_type(schema::AttributeProto::FLOAT);
    to.set_f(value);
  }
  void operator()(const std::string& value) {
    to.set_type(schema::AttributeProto::STRING);
    to.set_s(value);
  }
  void operator()(const std::vector<std::int64_t>& values) {
    to.set_type(schema::AttributeProto::INTS);
    to.mutable_ints()->Add(values.begin(), values.end());
  }
  void operator()(const std::shared_ptr<const Graph>& body) {
    to.set_type(schema::AttributeProto::GRAPH);
    put(*body, *to.mutable_g());
  }
  schema::AttributeProto& to;
};

// Writes all but the constants.
void put(const Graph& graph, schema::GraphProto& to) {
  to.set_name(graph.name.empty() ? "net" : graph.name);
  for (const Operation& operation : graph.operations) {
    schema::NodeProto& one = *to.add_node();
    one.set_op_type(operation.op);
    one.set_name(operation.name);
    one.mutable_input()->Add(operation.inputs.begin(), operation.inputs.end());
    one.mutable_output()->Add(operation.outputs.begin(), operation.outputs.end());
    for (const auto& [name, value] : operation.attributes) {
      schema::AttributeProto& attribute = *one.add_attribute();
      attribute.set_name(name);
      std::visit(PutAttribute{attribute}, value);
    }
  }
  for (const Value& input : graph.inputs) put(input, *to.add_input());
  for (const Value& output : graph.outputs) put(output, *to.add_output());
}

}  // namespace

std::string why_no_onnx() { return {}; }

Status write_model(const Graph& graph, const std::string& path, const FileOptions& options) {
  std::uint64_t all = 0;
  for (const Constant& constant : graph.constants) all += constant.bytes();
  const bool external = options.external_data || all > kMostInline;
  schema::ModelProto model;
  model.set_ir_version(schema::IR_VERSION_2020_5_8);
  model.set_producer_name("shoal");
  model.set_producer_version(kVersion);
  model.add_opset_import()->set_version(kOpset);
  put(graph, *model.mutable_graph());
  DataFile data(path + ".data");
  for (const Constant& constant : graph.constants) {
    schema::TensorProto& tensor = *model.mutable_graph()->add_initializer();
    tensor.set_name(constant.name);
    tensor.set_data_type(constant.is_integer ? schema::TensorProto::INT64
                                             : schema::TensorProto::FLOAT);
    for (const std::int64_t dim : constant.dims) tensor.add_dims(dim);
    const std::string_view bytes = bytes_of(constant);
    if (!external || bytes.size() < kLeastExternal) {
      tensor.set_raw_data(bytes.data(), bytes.size());
      continue;
    }
    if (Status added = data.add(bytes, tensor); !added.ok()) return added;
  }
  if (Status written = data.commit(); !written.ok()) return written;
  return write_file(path, model.SerializeAsString(), Code::kConfig);
}

}  // namespace shoal::onnx

#else

namespace shoal::onnx {

std::string why_no_onnx() {
  return "this build has no schema of ONNX: install it (libonnx-dev) and build with make ONNX=1";
}
Status write_model(const Graph&, const std::string& path, const FileOptions&) {
  return Error{Code::kConfig, path + ": " + why_no_onnx()};
}

}  // namespace shoal::onnx

#endif
