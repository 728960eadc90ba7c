// Writes text and binary files.
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <climits>
#include <memory>

#include "shoal/base/file.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {
namespace {

using google::protobuf::Message;
namespace io = google::protobuf::io;

class FileSink final : public io::CopyingOutputStream {
 public:
  explicit FileSink(AtomicFile& file) : file_(file) {}
  bool Write(const void* bytes, int size) override {
    status_ = file_.write({static_cast<const char*>(bytes), static_cast<std::size_t>(size)});
    return status_.ok();
  }
  const Status& status() const { return status_; }

 private:
  AtomicFile& file_;
  Status status_;
};

void clear_net(NetParameter& net) {
  for (LayerParameter& layer : *net.mutable_layer()) layer.clear_origin();
}

bool has_origins(const NetParameter& net) {
  for (const LayerParameter& layer : net.layer())
    if (layer.has_origin()) return true;
  return false;
}

bool has_origins(const Message& message) {
  if (const auto* layer = dynamic_cast<const LayerParameter*>(&message)) return layer->has_origin();
  if (const auto* net = dynamic_cast<const NetParameter*>(&message)) return has_origins(*net);
  return dynamic_cast<const SolverParameter*>(&message) != nullptr;  // small: not worth a look
}

// Returns a copy of `message` without origins, or null if it has none.
std::unique_ptr<Message> cleared(const Message& message) {
  if (!has_origins(message)) return nullptr;
  std::unique_ptr<Message> copy(message.New());
  copy->CopyFrom(message);
  clear_origins(*copy);
  return copy;
}

Status write_to(AtomicFile& file, const Message& message, const std::string& path, Code code) {
  FileSink sink(file);
  io::CopyingOutputStreamAdaptor stream(&sink);
  const bool written = message.SerializePartialToZeroCopyStream(&stream) && stream.Flush();
  if (written) return file.commit();
  return sink.status().ok() ? Status(Error{code, str("cannot write ", path)}) : sink.status();
}

}  // namespace

void clear_origins(Message& message) {
  if (auto* layer = dynamic_cast<LayerParameter*>(&message)) layer->clear_origin();
  if (auto* net = dynamic_cast<NetParameter*>(&message)) clear_net(*net);
  if (auto* solver = dynamic_cast<SolverParameter*>(&message)) {
    if (solver->has_net_param()) clear_net(*solver->mutable_net_param());
    if (solver->has_train_net_param()) clear_net(*solver->mutable_train_net_param());
    for (NetParameter& net : *solver->mutable_test_net_param()) clear_net(net);
  }
}

std::string to_text(const Message& message) {
  const std::unique_ptr<Message> copy = cleared(message);
  std::string text;
  google::protobuf::TextFormat::PrintToString(copy ? *copy : message, &text);
  return text;
}

Status write_text(const Message& message, const std::string& path, Code code) {
  return write_file(path, to_text(message), code);
}

Status write_binary(const Message& message, const std::string& path, Code code) {
  const std::unique_ptr<Message> copy = cleared(message);
  const Message& plain = copy ? *copy : message;
  const std::size_t size = plain.ByteSizeLong();
  if (size > INT_MAX)
    return Error{code, str("cannot write ", path, ": ", size,
                           " bytes, and a protobuf file holds less than 2 GiB")};
  Result<AtomicFile> file = AtomicFile::create(path, code);
  if (!file.ok()) return file.error();
  return write_to(file.value(), plain, path, code);
}

}  // namespace shoal
