// The table of the forks' fields that are read by another name or passed over.
#include "shoal/proto/fork_fields.h"

#include <google/protobuf/descriptor.h>

#include <string>

namespace shoal {
namespace {

struct Row {
  std::string_view message, field;
  ForkReading reading;
};

constexpr std::string_view kNvidia = "NVIDIA's fork", kIntel = "Intel's fork";
constexpr std::string_view kTypes =
                               "the numbers of a layer are of 32 bits here, but for what the "
                               "solver's precision says",
                           kAlgorithms = "kernels are chosen here by shape, or measured",
                           kScale = "it is a field of the solver here, for precision: FLOAT16",
                           kReaders = "the number of threads that read is chosen here",
                           kMemory = "memory is planned here",
                           kShuffled = "all records are put in another order each epoch",
                           kInMemory = "the source is read once and kept",
                           kInt8 = "the layer computes in float32 here, not in integers";

constexpr Row kRows[] = {
    {"NetParameter", "default_forward_type", {"", "", kNvidia, kTypes}},
    {"NetParameter", "default_backward_type", {"", "", kNvidia, kTypes}},
    {"NetParameter", "default_forward_math", {"", "", kNvidia, kTypes}},
    {"NetParameter", "default_backward_math", {"", "", kNvidia, kTypes}},
    {"LayerParameter", "forward_type", {"", "", kNvidia, kTypes}},
    {"LayerParameter", "backward_type", {"", "", kNvidia, kTypes}},
    {"LayerParameter", "forward_math", {"", "", kNvidia, kTypes}},
    {"LayerParameter", "backward_math", {"", "", kNvidia, kTypes}},
    {"LayerParameter", "cudnn_math_override", {"", "", kNvidia, kAlgorithms}},
    {"NetParameter", "global_grad_scale", {"", "", kNvidia, kScale}},
    {"NetParameter", "global_grad_scale_adaptive", {"", "", kNvidia, kScale}},
    {"NetParameter", "default_conv_algos_override", {"", "", kNvidia, kAlgorithms}},
    {"NetParameter", "default_cudnn_math_override", {"", "", kNvidia, kAlgorithms}},
    {"NetParameter",
     "reduce_buckets",
     {"", "", kNvidia, "the solver's exchange field has the buckets here"}},
    {"NetParameter", "eltwise_mem_sharing", {"", "", kNvidia, kMemory}},
    {"ConvolutionParameter", "conv_algos_override", {"", "", kNvidia, kAlgorithms}},
    {"ConvolutionParameter", "cudnn_convolution_algo_seeker", {"", "", kNvidia, kAlgorithms}},
    {"DataParameter", "cache", {"in_memory", "", kNvidia, kInMemory}},
    {"DataParameter", "threads", {"", "", kNvidia, kReaders}},
    {"DataParameter", "parser_threads", {"", "", kNvidia, kReaders}},
    {"ImageDataParameter", "cache", {"", "", kNvidia, "images are read anew in each epoch"}},
    {"ImageDataParameter", "threads", {"", "", kNvidia, kReaders}},
    {"TransformationParameter",
     "use_gpu_transform",
     {"", "", kNvidia, "images are made ready on the device where that is faster"}},
    {"NetParameter",
     "bn_stats_batch_size",
     {"", "", kIntel, "a BatchNorm takes the statistics of its whole batch"}},
    {"NetParameter", "engine", {"", "", kIntel, kAlgorithms}},
    {"V1LayerParameter", "engine", {"", "", kIntel, kAlgorithms}},
    {"NetParameter",
     "multinode",
     {"", "", kIntel, "the flags of train say which processes train together"}},
    {"ConvolutionParameter", "conv_algorithm", {"", "", kIntel, kAlgorithms}},
    {"LayerParameter", "quantization_param", {"", "", kIntel, kInt8}},
    {"ConvolutionParameter",
     "filter_group",
     {"", "", "C3D's fork", "it only bounds the memory of that program"}},
    {"DataParameter", "shuffle_pool_size", {"shuffle", "true", "forks", kShuffled}},
    {"ImageDataParameter", "shuffle_pool_size", {"shuffle", "true", "forks", kShuffled}},
    {"DataParameter", "show_data", {"", "", "forks", "pictures are not shown"}},
    {"ImageDataParameter", "show_data", {"", "", "forks", "pictures are not shown"}},
    {"TransformationParameter", "show_data", {"", "", "forks", "pictures are not shown"}},
};

// The value may have quotes around it. A layer's own engine is BVLC's in capitals there.
bool is_intels(std::string_view engine, bool of_layer) {
  const std::size_t begin = engine.find_first_not_of("'\"");
  if (begin == std::string_view::npos) return false;
  const std::string_view name = engine.substr(begin);
  return name.starts_with("MKL") ||
         (of_layer && (name.starts_with("CAFFE") || name.starts_with("CUDNN")));
}

}  // namespace

std::optional<ForkReading> reading_of(const google::protobuf::Descriptor* message,
                                      std::string_view name, std::string_view value) {
  if (message == nullptr) return std::nullopt;
  // A message's enum of kernels: MKL2017 and MKLDNN, and any where BVLC has no such enum.
  const bool is_passed_over = is_intels(value, message->name() == "LayerParameter") ||
                              message->FindFieldByName("engine") == nullptr;
  if (name == "engine" && is_passed_over &&
      std::string_view(message->name()).ends_with("Parameter"))
    return ForkReading{"", "", kIntel, kAlgorithms};
  for (const Row& row : kRows) {
    if (row.field != name || row.message != message->name()) continue;
    if (row.reading.as == "shuffle" && (value == "0" || value == "1"))
      return ForkReading{"", "", row.reading.fork, "a pool of one batch puts nothing elsewhere"};
    return row.reading;
  }
  return std::nullopt;
}

}  // namespace shoal
