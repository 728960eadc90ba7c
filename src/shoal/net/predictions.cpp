#include "shoal/net/predictions.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/net/graph.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

using Names = std::set<std::string>;

constexpr std::string_view kLearners[] = {"BatchNorm",    "Bias",      "BN",   "Embed",
                                          "InnerProduct", "LSTM",      "RNN",  "PReLU",
                                          "Parameter",    "Recurrent", "Scale"};
// Losses whose first bottom is the prediction; others treat their bottoms alike.
constexpr std::string_view kScoreLosses[] = {"FocalLoss",
                                             "HingeLoss",
                                             "InfogainLoss",
                                             "MultinomialLogisticLoss",
                                             "SigmoidCrossEntropyLoss",
                                             "SoftmaxFocalLoss",
                                             "SoftmaxWithLoss"};

bool has_type(std::string_view type, std::span<const std::string_view> types) {
  return std::ranges::find(types, type) != types.end();
}

bool is_measure(const LayerParameter& layer) {
  return layer.type().ends_with("Accuracy") || layer.type().ends_with("Evaluate");
}

// A layer of any other type is a loss where its prototxt weighs a top.
bool is_loss(const LayerParameter& layer) {
  static constexpr std::string_view kOthers[] = {"SmoothL1LossOHEM", "SoftmaxWithLossOHEM",
                                                 "Yolov3"};
  if (layer.type().ends_with("Loss") || has_type(layer.type(), kOthers)) return true;
  return !is_measure(layer) && layer.bottom_size() > 0 &&
         std::ranges::any_of(layer.loss_weight(), [](float weight) { return weight != 0; });
}

// Returns whether the layer only takes: Silence, HDF5Output.
bool is_sink(const LayerParameter& layer) {
  return layer.type() == "Silence" || layer.type() == "HDF5Output";
}

bool learns(const LayerParameter& layer) {
  return layer.param_size() > 0 || has_type(layer.type(), kLearners) ||
         layer.type().find("onvolution") != std::string::npos;
}

// Returns the type that shows what a loss was computed from; "" for losses of what is shown as it
// is.
std::string shown_as(const LayerParameter& layer) {
  if (layer.type() == "InfogainLoss" || layer.type().starts_with("SoftmaxWithLoss") ||
      layer.type().ends_with("FocalLoss"))
    return "Softmax";
  return layer.type() == "SigmoidCrossEntropyLoss" ? "Sigmoid" : "";
}

float loss_weight(const LayerParameter& layer) {
  return layer.loss_weight_size() ? layer.loss_weight(0) : 1.0f;
}

bool takes(const LayerParameter& layer, const std::string& blob) {
  return std::ranges::find(layer.bottom(), blob) != layer.bottom().end();
}
bool makes(const LayerParameter& layer, const std::string& blob) {
  return std::ranges::find(layer.top(), blob) != layer.top().end();
}

bool has_layer_of(const NetParameter& net, const std::string& type, const std::string& bottom) {
  return std::ranges::any_of(net.layer(), [&](const LayerParameter& layer) {
    return layer.type() == type && layer.bottom_size() && layer.bottom(0) == bottom;
  });
}

bool has_name(const NetParameter& net, const std::string& name) {
  return std::ranges::any_of(net.layer(), [&](const LayerParameter& layer) {
    return layer.name() == name || makes(layer, name);
  });
}

// Says of the blobs of a net where they come from and where they go.
class BlobUses {
 public:
  explicit BlobUses(const NetParameter& net) : net_(net) {
    for (int i = 0; i < net.layer_size(); ++i) {
      const LayerParameter& layer = net.layer(i);
      any_learns_ = any_learns_ || learns(layer);
      if (learns(layer) || std::ranges::any_of(layer.bottom(), in(learned_)))
        learned_.insert(layer.top().begin(), layer.top().end());
      for (const std::string& top : layer.top()) last_maker_[top] = i;
    }
    for (int i = net.layer_size() - 1; i >= 0; --i) {  // what leads to learned blobs is input
      const LayerParameter& layer = net.layer(i);
      if (!learns(layer) && std::ranges::none_of(layer.top(), in(input_))) continue;
      if (is_loss(layer) || is_measure(layer)) continue;
      input_.insert(layer.bottom().begin(), layer.bottom().end());
    }
    for (const LayerParameter& layer : net.layer())
      if (std::ranges::any_of(layer.bottom(), in(input_)))
        input_.insert(layer.top().begin(), layer.top().end());
  }

  bool made(const std::string& blob) const { return last_maker_.contains(blob); }
  bool any_learns() const { return any_learns_; }
  // Returns whether layers that learn lead to the blob.
  bool learned(const std::string& blob) const { return learned_.contains(blob); }
  // Returns whether the blob comes from labels alone.
  bool is_label(const std::string& blob) const {
    return any_learns_ && !learned(blob) && !input_.contains(blob);
  }
  const LayerParameter& maker(const std::string& blob) const {
    return net_.layer(last_maker_.at(blob));
  }
  // Returns the layers that take the blob as its last maker leaves it.
  std::vector<const LayerParameter*> takers(const std::string& blob) const {
    std::vector<const LayerParameter*> found;
    for (int i = last_maker_.at(blob) + 1; i < net_.layer_size(); ++i)
      if (takes(net_.layer(i), blob)) found.push_back(&net_.layer(i));
    return found;
  }
  // Follows the blob back through layers of one bottom and one top that do not learn.
  std::string root(std::string blob) const {
    for (int i = net_.layer_size() - 1; i >= 0; --i) {
      const LayerParameter& layer = net_.layer(i);
      if (!makes(layer, blob) || layer.bottom_size() != 1 || layer.top_size() != 1) continue;
      if (!learns(layer)) blob = layer.bottom(0);
    }
    return blob;
  }

 private:
  static std::function<bool(const std::string&)> in(const Names& names) {
    return [&names](const std::string& name) { return names.contains(name); };
  }
  const NetParameter& net_;
  bool any_learns_ = false;
  Names learned_, input_;
  std::map<std::string, int> last_maker_;
};

class PredictionSearch {
 public:
  PredictionSearch(const NetParameter& tested, const NetParameter& net, bool auxiliary)
      : with_losses_(with_losses_of_training(tested, net)),
        uses_(with_losses_),
        auxiliary_(auxiliary) {
    for (const LayerParameter& layer : with_losses_.layer())
      if (is_loss(layer)) largest_ = std::max(largest_, loss_weight(layer));
  }

  Predictions run() {
    found_.net = with_losses_;
    found_.net.clear_layer();
    for (const LayerParameter& layer : with_losses_.layer()) {
      const bool of_loss = std::ranges::any_of(
          layer.bottom(), [&](const std::string& bottom) { return dead_.contains(bottom); });
      if (is_loss(layer)) {
        replace(layer);
      } else if (is_measure(layer) || is_sink(layer) || of_loss) {
        dead_.insert(layer.top().begin(), layer.top().end());
      } else {
        *found_.net.add_layer() = layer;
      }
    }
    for (const LayerParameter& layer : found_.net.layer())
      for (const std::string& top : layer.top())
        if (!is_data(layer) && layer.type() != "Input" && uses_.made(top) && is_output(top))
          found_.wanted.insert(top);
    return std::move(found_);
  }

 private:
  // Nets may leave their loss to phase TRAIN, and test Accuracy alone.
  static NetParameter with_losses_of_training(const NetParameter& tested, const NetParameter& net) {
    NetParameter training(net), result(tested);
    *training.mutable_state() = tested.state();
    training.mutable_state()->set_phase(TRAIN);
    training = filter_net(training);
    for (const LayerParameter& layer : training.layer()) {
      if (!is_loss(layer) || layer.bottom_size() == 0) continue;
      const bool known = std::ranges::any_of(tested.layer(), [&](const LayerParameter& other) {
        return is_loss(other) && (other.name() == layer.name() ||
                                  (other.bottom_size() && takes(layer, other.bottom(0))));
      });
      const BlobUses uses(tested);
      const std::vector<std::string> shown = predictions_of(layer, uses);
      if (!known &&
          std::ranges::all_of(shown, [&](const std::string& blob) { return uses.made(blob); }))
        *result.add_layer() = layer;
    }
    return result;
  }

  // Adds the blob, or, if it was made of labels too, what it was made of beside them.
  static void add_without_labels(const std::string& blob, const BlobUses& uses,
                                 std::vector<std::string>& found) {
    const LayerParameter* const maker = uses.made(blob) ? &uses.maker(blob) : nullptr;
    const auto is_label = [&](const std::string& bottom) { return uses.is_label(bottom); };
    if (!maker || takes(*maker, blob) || learns(*maker) ||
        std::ranges::none_of(maker->bottom(), is_label)) {
      if (std::ranges::count(found, blob) == 0) found.push_back(blob);
      return;
    }
    for (const std::string& bottom : maker->bottom())
      if (uses.learned(bottom)) add_without_labels(bottom, uses, found);
  }

  static std::vector<std::string> predictions_of(const LayerParameter& loss, const BlobUses& uses) {
    std::vector<std::string> found;
    for (const std::string& bottom : loss.bottom())
      if (uses.learned(bottom)) add_without_labels(bottom, uses, found);
    if (found.empty()) {
      const bool second = loss.bottom_size() > 1 && uses.made(loss.bottom(0)) &&
                          is_data(uses.maker(loss.bottom(0))) && uses.made(loss.bottom(1)) &&
                          !is_data(uses.maker(loss.bottom(1)));
      found.push_back(loss.bottom(second ? 1 : 0));
    }
    if (has_type(loss.type(), kScoreLosses) || !shown_as(loss).empty()) found.resize(1);
    return found;
  }

  std::string label_of(const LayerParameter& loss) const {
    const std::vector<std::string> shown = predictions_of(loss, uses_);
    for (const std::string& bottom : loss.bottom())
      if (std::ranges::count(shown, bottom) == 0) return uses_.root(bottom);
    return "";
  }

  // Returns whether another loss with the same label weighs most, and this one less. Losses with
  // labels of their own are tasks of their own.
  bool is_auxiliary(const LayerParameter& loss) const {
    if (auxiliary_ || loss_weight(loss) >= largest_) return false;
    const std::string label = label_of(loss);
    return loss_weight(loss) == 0 ||
           std::ranges::any_of(with_losses_.layer(), [&](const LayerParameter& other) {
             return is_loss(other) && loss_weight(other) > loss_weight(loss) && !label.empty() &&
                    label_of(other) == label;
           });
  }

  void replace(const LayerParameter& loss) {
    if (loss.bottom_size() == 0) throw config_error(loss, "has no bottom");
    dead_.insert(loss.top().begin(), loss.top().end());
    const std::vector<std::string> shown = predictions_of(loss, uses_);
    if (is_auxiliary(loss)) {
      LOG(INFO) << layer_place(loss)
                << ": left out, with the layers that only it uses: its loss_weight is "
                << loss_weight(loss) << ", another loss has more; --auxiliary keeps it";
      cut_.insert(shown.begin(), shown.end());
      return;
    }
    found_.wanted.insert(shown.begin(), shown.end());
    const std::string type = shown_as(loss);
    if (type.empty() || has_layer_of(with_losses_, type, shown[0]) ||
        has_layer_of(found_.net, type, shown[0]))
      return;
    add_head(loss, type, shown[0]);
  }

  void add_head(const LayerParameter& loss, const std::string& type, const std::string& bottom) {
    LayerParameter head;
    const std::string name =
        has_name(found_.net, "prob") || has_name(with_losses_, "prob") ? loss.name() : "prob";
    head.set_name(name);
    head.set_type(type);
    head.set_origin(loss.origin());
    head.add_bottom(bottom);
    head.add_top(loss.top_size() > 1 ? loss.top(1) : name);
    if (loss.has_softmax_param()) *head.mutable_softmax_param() = loss.softmax_param();
    if (loss.infogain_loss_param().has_axis())
      head.mutable_softmax_param()->set_axis(loss.infogain_loss_param().axis());
    dead_.erase(head.top(0));
    found_.wanted.insert(head.top(0));
    *found_.net.add_layer() = std::move(head);
  }

  // Says it of a top of a layer that stays.
  bool is_output(const std::string& top) const {
    const std::vector<const LayerParameter*> takers = uses_.takers(top);
    if (takers.empty()) return !uses_.is_label(top);
    for (const LayerParameter* taker : takers) {
      const bool stays = std::ranges::any_of(found_.net.layer(), [&](const LayerParameter& kept) {
        return kept.name() == taker->name();
      });
      if (is_loss(*taker) || (stays && !is_measure(*taker) && !is_sink(*taker))) return false;
    }
    // A Softmax beside an auxiliary loss is measured alone, and goes with it.
    const LayerParameter& maker = uses_.maker(top);
    if (maker.bottom_size() == 1 && cut_.contains(maker.bottom(0))) return false;
    return uses_.learned(top) || (!uses_.any_learns() && !is_label_like(top));
  }

  // Without layers that learn, what a data layer brings after its first top is a label.
  bool is_label_like(const std::string& top) const {
    const std::string root = uses_.root(top);
    if (!uses_.made(root)) return false;
    const LayerParameter& maker = uses_.maker(root);
    return is_data(maker) && maker.top_size() > 0 && maker.top(0) != root;
  }

  const NetParameter with_losses_;
  const BlobUses uses_;
  const bool auxiliary_;
  float largest_ = 0;
  Names dead_;  // blobs of losses and measures, and what comes of them
  Names cut_;   // bottoms of auxiliary losses
  Predictions found_;
};

}  // namespace

bool is_data(const LayerParameter& layer) {
  return layer.bottom_size() == 0 && (layer.type().ends_with("Data") || layer.type() == "Python");
}

Predictions find_predictions(const NetParameter& tested, const NetParameter& net, bool auxiliary) {
  return PredictionSearch(tested, net, auxiliary).run();
}

}  // namespace shoal
