// Implements what is said of layer types that are not built.
#include "shoal/layers/known_types.h"

#include <algorithm>
#include <set>

#include "shoal/base/text.h"
#include "shoal/layers/layer.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/net.pb.h"

namespace shoal {
namespace {

constexpr std::size_t kMostErrors = 10;

struct ForkLayer {
  std::string_view type, family;
};

constexpr std::string_view kCascade = "MS-CNN's and Cascade R-CNN's forks",
                           kDetectNet = "NVIDIA's fork (DetectNet)", kOpenPose = "OpenPose's fork",
                           kFaces = "happynear's fork";

// Layers that public nets have and BVLC Caffe has not, so that the error can say whose they are and
// what computes the same.
constexpr ForkLayer kForkLayers[] = {
    {"BatchReduction", "yjxiong's fork (TSN)"},
    {"BboxAccuracy", kCascade},
    {"BoxGroupOutput", kCascade},
    {"BoxOutput", kCascade},
    {"CPMData", kOpenPose},
    {"ChannelScale", kFaces},
    {"DecodeBBox", kCascade},
    {"DetectNetTransformation", kDetectNet},
    {"DetectionAccuracy", kCascade},
    {"DetectionData", kCascade},
    {"DetectionLoss", kCascade},
    {"Gather", "yjxiong's fork, for MPI"},
    {"ImResize", kOpenPose},
    {"ImageGtData", kCascade},
    {"ImageLabelmapData", "HED's fork"},
    {"L1Loss", "NVIDIA's fork"},
    {"LabelSpecificAdd", kFaces},
    {"LabelSpecificMargin", kFaces},
    {"Lstm", "junhyukoh's fork; LSTM, of BVLC, has the time on axis 0 and a continuation bottom"},
    {"MarginInnerProduct", "SphereFace's fork"},
    {"MatRead", "DeepLab's fork"},
    {"MatWrite", "DeepLab's fork"},
    {"MultiStageMeanfield", "CRF-RNN's fork"},
    {"Nms", kOpenPose},
    {"ProposalTarget", kCascade},
    {"Scatter", "yjxiong's fork, for MPI"},
    {"SegAccuracy", "DeepLab's fork"},
    {"SpatialDropout", "forks"},
    {"VideoData", "yjxiong's fork (TSN)"},
};

}  // namespace

std::string why_unknown(const std::string& type) {
  const std::vector<std::string> types = layer_types();
  if (type.empty()) return str("no type is given; known: ", join(types));
  if (type == "Python")
    return str(
        "layers of type Python need an interpreter: use the net from Python, or tools built with "
        "PYTHON=1 (docs/python.md); known here: ",
        join(types));
  for (const ForkLayer& fork : kForkLayers)
    if (type == fork.type)
      return str("BVLC Caffe has no layer type '", type, "'; it belongs to ", fork.family);
  return str("unknown layer type '", type, "'", known_words(type, types));
}

void check_layer_types(const NetParameter& net) {
  const std::vector<std::string> types = layer_types();
  std::set<std::string> known(types.begin(), types.end());
  std::string words;
  std::size_t found = 0;
  for (const LayerParameter& layer : net.layer()) {
    if (!known.insert(layer.type()).second) continue;
    if (++found <= kMostErrors)
      words += str(words.empty() ? "" : "\n", layer_place(layer), ": ", why_unknown(layer.type()));
  }
  if (found > kMostErrors) words += str("\nand ", found - kMostErrors, " types more");
  if (found > 0) throw ConfigError(Code::kConfig, words);
}

}  // namespace shoal
