#include "common/net_facts.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "shoal/base/error.h"
#include "shoal/base/text.h"
#include "shoal/net/net.h"
#include "shoal/proto/layers.pb.h"
#include "shoal/proto/net.pb.h"

namespace shoal {
namespace {

std::string words_of(const Shape& shape) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : shape.dims()) sizes.push_back(std::to_string(size));
  return sizes.empty() ? "one number" : join(sizes, " x ");
}

// Holds a size for each of two axes.
struct Sizes {
  std::uint32_t h, w;
};
template <class List>
Sizes sizes_of(const List& list, std::uint32_t h, std::uint32_t w) {
  if (!list.empty()) return {list[0], list[list.size() > 1 ? 1 : 0]};
  return {h, w};
}
Sizes sizes_of(std::uint32_t both, std::uint32_t h, std::uint32_t w) {
  return {h > 0 ? h : both, w > 0 ? w : both};
}

// "20 of 5 x 5, stride 2, pad 1 x 0"; a stride of 1 and a pad of 0 go without saying.
std::string window_words(const std::string& what, Sizes kernel, Sizes stride, Sizes pad) {
  const auto of = [](const char* name, Sizes sizes, std::uint32_t usual) {
    if (std::max(sizes.h, sizes.w) <= usual) return std::string();
    return str(", ", name, " ", sizes.h, sizes.h == sizes.w ? "" : str(" x ", sizes.w));
  };
  return str(what, kernel.h == 0 ? "all" : str(kernel.h, " x ", kernel.w), of("stride", stride, 1),
             of("pad", pad, 0));
}

std::string kernel_words(const LayerParameter& layer) {
  if (layer.has_inner_product_param())
    return str(layer.inner_product_param().num_output(), " outputs");
  if (layer.has_convolution_param()) {
    const ConvolutionParameter& conv = layer.convolution_param();
    return window_words(str(conv.num_output(), " of "),
                        sizes_of(conv.kernel_size(), conv.kernel_h(), conv.kernel_w()),
                        sizes_of(conv.stride(), conv.stride_h(), conv.stride_w()),
                        sizes_of(conv.pad(), conv.pad_h(), conv.pad_w())) +
           (conv.group() > 1 ? str(", group ", conv.group()) : "");
  }
  if (layer.has_pooling_param()) {
    const PoolingParameter& pool = layer.pooling_param();
    return window_words(PoolingParameter::PoolMethod_Name(pool.pool()) + " of ",
                        sizes_of(pool.kernel_size(), pool.kernel_h(), pool.kernel_w()),
                        sizes_of(pool.stride(), pool.stride_h(), pool.stride_w()),
                        sizes_of(pool.pad(), pool.pad_h(), pool.pad_w()));
  }
  return "";
}

// Returns the layer that owns what `blob` looks at, if `layer` does not.
std::string other_owner(const Net& net, const Layer& layer, const Blob& blob) {
  for (const NetParam& param : net.params()) {
    const Layer& owner = *net.layers()[static_cast<std::size_t>(param.layer)];
    if (&owner != &layer && owner.name() != layer.name() && param.blob->data.shares_with(blob.data))
      return owner.name();
  }
  return "";
}

// Returns the number with thousands apart: "12,345,678".
std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

// Returns |D| / |W| with three digits; "-" for a layer without params.
std::string ratio(std::int64_t data, std::int64_t params) {
  if (params == 0) return "-";
  char words[32];
  std::snprintf(words, sizeof words, "%.3g",
                static_cast<double>(data) / static_cast<double>(params));
  return words;
}

std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find_first_of("\"\\", at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return "\"" + text + "\"";
}

std::string megabytes(std::size_t bytes) {
  char words[32];
  std::snprintf(words, sizeof words, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return words;
}

std::string milliseconds(double seconds) {
  char words[32];
  std::snprintf(words, sizeof words, "%.3f", 1e3 * seconds);
  return words;
}

// Columns of equal width, the first three to the left.
std::string table_of(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines[0].size());
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string text;
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string blanks(widths[i] - line[i].size(), ' ');
      text += (i < 3 ? line[i] + blanks : blanks + line[i]) + (i + 1 < line.size() ? "  " : "\n");
    }
  return text;
}

std::string words_of(const std::vector<LeastTime>& least, const DeviceRates& rates) {
  LeastTime all;
  for (const LeastTime& layer : least) {
    all.forward += layer.forward;
    all.backward += layer.backward;
  }
  return str("least time at ", rates.flops / 1e12, " TFLOP/s and ", rates.bytes / 1e9,
             " GB/s: forward ", milliseconds(all.forward), " ms, backward ",
             milliseconds(all.backward), " ms, together ", milliseconds(all.forward + all.backward),
             " ms\n");
}

// Returns one figure of the drawing, with several lines of text.
std::string figure(const std::string& id, const std::vector<std::string>& lines,
                   const std::string& look) {
  std::string label = quoted(join(lines, "\n"));
  for (std::size_t at = 0; (at = label.find('\n', at)) != std::string::npos; at += 2)
    label.replace(at, 1, "\\n");
  return "  " + quoted(id) + " [label=" + label + ", " + look + "];\n";
}

}  // namespace

std::vector<LayerFacts> facts_of(const Net& net) {
  int next = 0;  // splits stand between the layers of the definition
  std::vector<LayerFacts> all;
  for (std::size_t i = 0; i < net.layers().size(); ++i) {
    const Layer& layer = *net.layers()[i];
    if (next == net.definition().layer_size()) break;
    const LayerParameter& param = net.definition().layer(next);
    if (param.name() != layer.name() || param.type() != layer.type()) continue;
    ++next;
    LayerFacts& facts = all.emplace_back();
    facts.index = static_cast<int>(i);
    facts.name = layer.name();
    facts.type = layer.type();
    facts.bottoms = {param.bottom().begin(), param.bottom().end()};
    facts.tops = {param.top().begin(), param.top().end()};
    for (const Blob* top : net.tops(static_cast<int>(i))) {
      facts.shapes.push_back(words_of(top->shape()));
      if (std::ranges::count(net.bottoms(static_cast<int>(i)), top) == 0)
        facts.data += top->shape().count();  // a layer in place makes no more
    }
    facts.kernel = kernel_words(param);
    facts.multiply_adds = layer.multiply_adds();
    for (const auto& blob : layer.params()) {
      const std::string owner = other_owner(net, layer, *blob);
      if (owner.empty()) facts.params += blob->shape().count();
      if (!owner.empty()) facts.shares_with = owner;
    }
  }
  return all;
}

std::string summary_of(const Net& net, const std::optional<DeviceRates>& rates) {
  const std::vector<LayerFacts> layers = facts_of(net);
  std::vector<std::vector<std::string>> lines{
      {"layer", "type", "tops", "|D|", "params |W|", "D/W", "multiply-adds"}};
  if (rates) lines[0].insert(lines[0].end(), {"least ms forward", "backward"});
  const std::vector<LeastTime> least = rates ? least_times(net, *rates) : std::vector<LeastTime>();
  std::int64_t products = 0, numbers = 0, data = 0, batch = 0;
  for (const LayerFacts& layer : layers) {
    lines.push_back({layer.name, layer.type + (layer.kernel.empty() ? "" : ", " + layer.kernel),
                     join(layer.shapes, "; "), grouped(layer.data),
                     (layer.shares_with.empty() ? "" : "of " + layer.shares_with + " and ") +
                         grouped(layer.params),
                     ratio(layer.data, layer.params), grouped(layer.multiply_adds)});
    if (rates)
      for (const double seconds : {least[static_cast<std::size_t>(layer.index)].forward,
                                   least[static_cast<std::size_t>(layer.index)].backward})
        lines.back().push_back(milliseconds(seconds));
    products += layer.multiply_adds;
    numbers += layer.params;
    data += layer.data;
  }
  if (!layers.empty() && !net.tops(0).empty() && net.tops(0)[0]->shape().axes() > 0)
    batch = net.tops(0)[0]->shape()[0];
  const NetMemory memory = net.memory();
  std::string text = table_of(lines);
  text += str("params: ", grouped(numbers), " numbers, ", megabytes(memory.params),
              net.training() ? " with their gradients" : "", "\nD/W: ", grouped(data),
              " numbers of tops, ", grouped(numbers), " of params, ",
              numbers > 0 ? ratio(data, numbers) : "no params",
              "\nmultiply-adds of a forward pass: ", grouped(products));
  if (batch > 0) text += str(", ", grouped(products / batch), " for each of ", batch, " items");
  text += str("\nmemory of blobs: ", megabytes(memory.blobs), " (",
              megabytes(memory.blobs_unshared), " if none shared it)\n");
  return rates ? text + words_of(least, *rates) : text;
}

std::string dot_of(const Net& net) {
  const std::vector<LayerFacts> layers = facts_of(net);
  std::string nodes, edges;
  std::map<std::string, std::string> maker;  // the box that wrote a blob last
  std::map<std::string, std::vector<std::string>> boxes;
  std::vector<std::string> order;
  for (const LayerFacts& layer : layers) {
    const bool in_place =
        layer.bottoms.size() == 1 && layer.tops == layer.bottoms && maker.contains(layer.tops[0]);
    std::string box = in_place ? maker[layer.tops[0]] : layer.name;
    while (!in_place && boxes.contains(box)) box += "'";  // another layer has this name
    std::vector<std::string>& lines = boxes[box];
    if (!in_place) order.push_back(box);
    lines.push_back(layer.name + ": " + layer.type);
    if (!layer.kernel.empty()) lines.push_back(layer.kernel);
    if (!layer.shares_with.empty()) lines.push_back("params of " + layer.shares_with);
    if (layer.params > 0) lines.push_back(grouped(layer.params) + " params");
    if (in_place) continue;
    for (const std::string& bottom : layer.bottoms)
      edges += "  " + quoted("blob " + bottom) + " -> " + quoted("layer " + box) + ";\n";
    for (std::size_t i = 0; i < layer.tops.size(); ++i) {
      maker[layer.tops[i]] = box;
      nodes += figure("blob " + layer.tops[i], {layer.tops[i], layer.shapes[i]}, "shape=ellipse");
      edges += "  " + quoted("layer " + box) + " -> " + quoted("blob " + layer.tops[i]) + ";\n";
    }
    if (!layer.shares_with.empty())
      edges += "  " + quoted("layer " + layer.shares_with) + " -> " + quoted("layer " + box) +
               " [style=dashed, dir=none];\n";
  }
  for (const std::string& box : order)
    nodes += figure("layer " + box, boxes[box], "shape=box, style=filled, fillcolor=lightgrey");
  return "digraph " + quoted(net.name()) + " {\n" + nodes + edges + "}\n";
}

}  // namespace shoal
