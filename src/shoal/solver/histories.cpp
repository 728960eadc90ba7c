#include "shoal/solver/histories.h"

#include "shoal/net/net.h"
#include "shoal/proto/io.h"

namespace shoal {
namespace {

// Checks count and shape. Caffe of 2014 wrote four axes for every blob: as many numbers are the
// same history.
void check_history(const BlobProto& history, const NetParam& param, const Net& net,
                   const std::string& file) {
  if (history.data_size() != param.blob->data.count())
    throw ConfigError(Code::kConfig, file, ": the history of param ", param.index, " of layer '",
                      net.layers()[static_cast<std::size_t>(param.layer)]->name(), "' has shape ",
                      Shape(blob_dims(history)).str(), ", and the param ",
                      param.blob->shape().str(), ": the file is from another net");
}

}  // namespace

void put_history(const Shape& shape, std::span<const float> numbers, SolverState& state) {
  BlobProto* blob = state.add_history();
  for (const std::int64_t dim : shape.dims()) blob->mutable_shape()->add_dim(dim);
  blob->mutable_data()->Add(numbers.begin(), numbers.end());
}

void take_histories(
    const SolverState& state, const std::string& file, Net& net, optim::Rule rule,
    const std::function<void(std::size_t h, std::size_t i, std::span<const float> numbers)>& take) {
  const std::size_t params = net.params().size();
  const auto histories = static_cast<std::size_t>(optim::histories(rule));
  if (state.history_size() != static_cast<int>(histories * params))
    throw ConfigError(Code::kConfig, file, " holds ", state.history_size(),
                      " histories, and a solver of type ", optim::name_of(rule), " for the ",
                      params, " params of net '", net.name(), "' has ", histories * params,
                      ": the file is from another net or another type of solver");
  for (std::size_t h = 0; h < histories; ++h)
    for (std::size_t i = 0; i < params; ++i) {
      const BlobProto& history = state.history(static_cast<int>(h * params + i));
      check_history(history, net.params()[i], net, file);
      take(h, i, {history.data().data(), static_cast<std::size_t>(history.data_size())});
    }
}

}  // namespace shoal
