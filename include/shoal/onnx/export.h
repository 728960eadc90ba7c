// Turns a net into a graph of ONNX operators that computes the same.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/net/net.h"
#include "shoal/onnx/graph.h"
#include "shoal/onnx/preprocess.h"

namespace shoal::onnx {

struct ExportOptions {
  // Becomes the first operations, on the first of the inputs with the most axes.
  Preprocessing preprocessing{};
  bool free_batch = true;  // false: the batch that the net has
};

struct Export {
  Graph graph;
  // Why the batch is that of the net though it was to be free; "".
  std::string fixed_by;
  // The names in the graph of the tops of each layer, in the net's order; "": a top that is no
  // value of its own.
  std::vector<std::vector<std::string>> tops;
  // The values between the input with images and the net, each with what has been done up to it.
  std::vector<std::pair<std::string, Preprocessing>> preprocessed;
};

// Exports a net in phase TEST whose layers are what deploy_net leaves, built with share_memory:
// false and fuse: false. Blobs keep their names; the numbers that a layer in place overwrites are
// called <blob>/<layer>, and so are those that take an input's place; a layer's inner values are
// called <layer>/<operator>. Leaves shapes and params as
// they were, blobs' numbers not. Throws ConfigError by name for a layer that has no counterpart.
Export export_net(Net& net, const ExportOptions& options = {});

// Returns the inputs of a net, in order, and the one that preprocessing is for.
std::vector<Blob*> input_blobs(const Net& net);
Blob* image_input(const Net& net);
// Gives another batch to the inputs whose axis 0 is that of the first, and the net its shapes.
// Returns "", or why a layer cannot follow; the net is then as it was.
std::string set_batch(Net& net, std::int64_t batch);

// Returns the types that export_net takes, in alphabetical order.
std::vector<std::string> exported_types();

// Says how a graph's constants are kept.
struct FileOptions {
  // Constants of 1 KiB and more go to a file beside the model, <name of the model>.data, at
  // multiples of 4096 bytes. That is so for models of more than 1.9 GiB in any case: protobuf ends
  // at 2 GiB.
  bool external_data = false;
};
// Writes an ONNX file. An error (kConfig) is that of a build without the schema, or the system's.
Status write_model(const Graph& graph, const std::string& path, const FileOptions& options = {});
// Returns what to do about a build that cannot write ONNX files; "" for one that can.
std::string why_no_onnx();

}  // namespace shoal::onnx
