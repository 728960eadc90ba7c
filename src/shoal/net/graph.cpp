#include "shoal/net/graph.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "shoal/base/text.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

using TopId = std::pair<int, int>;  // layer, top

bool has_stage(const NetState& state, const std::string& stage) {
  return std::ranges::find(state.stage(), stage) != state.stage().end();
}

// The top that each bottom refers to, and how many takers each top has: splits follow from that.
struct Uses {
  std::map<TopId, TopId> source;  // of a bottom (layer, bottom)
  // Counts the takers of a top; its loss weight is one if something else takes it, too.
  std::map<TopId, int> count;
  std::map<TopId, float> loss_weight;
};

std::string in_state(const NetState& state) {
  const std::vector<std::string> stages(state.stage().begin(), state.stage().end());
  return str("phase ", Phase_Name(state.phase()), ", level ", state.level(), ", stages '",
             join(stages), "'");
}

// Returns the stages that the state lacks for the layer to be in it, or nothing if stages alone
// do not help.
std::vector<std::string> lacking_stages(const LayerParameter& layer, const NetState& state) {
  for (const NetStateRule& rule : layer.include()) {
    NetState with(state);
    std::vector<std::string> lacking;
    for (const std::string& stage : rule.stage())
      if (!has_stage(state, stage)) {
        lacking.push_back(stage);
        with.add_stage(stage);
      }
    if (!lacking.empty() && rule_matches(rule, with)) return lacking;
  }
  return {};
}

// "; layer 'data' (a.prototxt:3) makes it, but ...", or "".
std::string made_elsewhere(const std::string& blob, const NetParameter& net,
                           const NetParameter& whole) {
  const auto makes = [&](const LayerParameter& layer) {
    return std::ranges::count(layer.top(), blob) > 0;
  };
  const auto maker = std::ranges::find_if(whole.layer(), makes);
  if (maker == whole.layer().end() || std::ranges::any_of(net.layer(), makes)) return "";
  std::string words = str("; ", layer_place(*maker), " makes it, but its rules leave it out of ",
                          in_state(net.state()));
  for (const LayerParameter& layer : whole.layer()) {
    if (!makes(layer)) continue;
    const std::vector<std::string> stages = lacking_stages(layer, net.state());
    if (!stages.empty())
      return str(words, "; with the stage ", join(stages), " ", layer_place(layer),
                 " makes it: --stage=", join(stages, ","), " of a tool, ",
                 net.state().phase() == TEST ? "test_state" : "train_state", " { stage: '",
                 join(stages, "' stage: '"), "' } in a solver");
  }
  return words;
}

// Returns the loss weight of a top: Layer::default_loss_weight where the prototxt gives none.
float loss_weight(const LayerParameter& layer, int top) {
  if (layer.loss_weight_size() == 0) return top == 0 && layer.type().ends_with("Loss") ? 1 : 0;
  return top < layer.loss_weight_size() ? layer.loss_weight(top) : 0;
}

Uses find_uses(const NetParameter& net, const NetParameter& whole) {
  Uses uses;
  // The latest maker of each blob: an in-place layer becomes the maker of its top.
  std::map<std::string, TopId> made;
  for (int i = 0; i < net.layer_size(); ++i) {
    const LayerParameter& layer = net.layer(i);
    for (int j = 0; j < layer.bottom_size(); ++j) {
      const auto maker = made.find(layer.bottom(j));
      if (maker == made.end()) {
        std::vector<std::string> names;
        for (const auto& [name, top] : made) names.push_back(name);
        const std::string elsewhere = made_elsewhere(layer.bottom(j), net, whole);
        throw config_error(layer, "bottom '", layer.bottom(j),
                           "' is made by no layer before this one",
                           elsewhere.empty() ? did_you_mean(layer.bottom(j), names) : elsewhere);
      }
      uses.source[{i, j}] = maker->second;
      ++uses.count[maker->second];
    }
    for (int j = 0; j < layer.top_size(); ++j) {
      made[layer.top(j)] = {i, j};
      if (const float weight = loss_weight(layer, j); weight != 0)
        uses.loss_weight[{i, j}] = weight;
    }
  }
  for (const auto& [top, weight] : uses.loss_weight)
    if (const auto count = uses.count.find(top); count != uses.count.end()) ++count->second;
  return uses;
}

std::string split_name(const NetParameter& net, TopId top) {
  const LayerParameter& layer = net.layer(top.first);
  return str(layer.top(top.second), "_", layer.name(), "_", top.second, "_split");
}

// Returns whether the phases are those that a program wrote, which gives one to each layer of a
// model: they say in which phase the net was built, and nothing about a layer.
bool phases_were_written(const NetParameter& net) {
  return net.layer_size() > 1 && std::ranges::all_of(net.layer(), [&](const LayerParameter& layer) {
           return layer.has_phase() && layer.phase() == net.layer(0).phase();
         });
}

// Returns whether the phase of its own changes what a layer of this kind computes.
bool minds_phase(const LayerParameter& layer) {
  const bool pools = layer.pooling_param().pool() == PoolingParameter::STOCHASTIC ||
                     layer.spp_param().pool() == SPPParameter::STOCHASTIC;
  return layer.bottom_size() == 0 || layer.type() == "Dropout" || layer.type() == "Python" || pools;
}

// Gives a layer its own phase where that matters. Other layers take the net's, which says whether
// a backward pass follows.
void give_phase(LayerParameter& layer, Phase own, Phase of_net) {
  BatchNormParameter* norm =
      layer.type() == "BatchNorm" && own != of_net ? layer.mutable_batch_norm_param() : nullptr;
  if (norm && !norm->has_use_global_stats()) norm->set_use_global_stats(own == TEST);
  layer.set_phase(minds_phase(layer) ? own : of_net);
}

}  // namespace

bool rule_matches(const NetStateRule& rule, const NetState& state) {
  if (rule.has_phase() && rule.phase() != state.phase()) return false;
  if (rule.has_min_level() && state.level() < rule.min_level()) return false;
  if (rule.has_max_level() && state.level() > rule.max_level()) return false;
  return std::ranges::all_of(rule.stage(),
                             [&](const std::string& s) { return has_stage(state, s); }) &&
         std::ranges::none_of(rule.not_stage(),
                              [&](const std::string& s) { return has_stage(state, s); });
}

NetParameter filter_net(const NetParameter& net) {
  NetParameter filtered(net);
  filtered.clear_layer();
  const bool written = phases_were_written(net);
  for (const LayerParameter& layer : net.layer()) {
    if (layer.include_size() > 0 && layer.exclude_size() > 0)
      throw config_error(layer, "has both include and exclude rules; give one kind");
    const auto matches = [&](const NetStateRule& rule) { return rule_matches(rule, net.state()); };
    const bool in = layer.include_size() > 0 ? std::ranges::any_of(layer.include(), matches)
                                             : std::ranges::none_of(layer.exclude(), matches);
    if (!in) continue;
    LayerParameter* kept = filtered.add_layer();
    *kept = layer;
    const bool own = layer.has_phase() && !written;
    give_phase(*kept, own ? layer.phase() : net.state().phase(), net.state().phase());
  }
  return filtered;
}

std::string misspelt_stage(const NetParameter& net) {
  std::vector<std::string> known;
  for (const LayerParameter& layer : net.layer())
    for (const auto* rules : {&layer.include(), &layer.exclude()})
      for (const NetStateRule& rule : *rules) {
        known.insert(known.end(), rule.stage().begin(), rule.stage().end());
        known.insert(known.end(), rule.not_stage().begin(), rule.not_stage().end());
      }
  for (const std::string& stage : net.state().stage()) {
    if (std::ranges::count(known, stage) > 0) continue;
    if (const std::string hint = did_you_mean(stage, known); !hint.empty())
      return str("stage '", stage, "' is in no rule of net '", net.name(), "'", hint);
  }
  return "";
}

NetParameter insert_splits(const NetParameter& net, const NetParameter& whole) {
  const Uses uses = find_uses(net, whole);
  std::map<TopId, int> taken;
  NetParameter result(net);
  result.clear_layer();
  for (int i = 0; i < net.layer_size(); ++i) {
    LayerParameter* layer = result.add_layer();
    *layer = net.layer(i);
    for (int j = 0; j < layer->bottom_size(); ++j) {
      const TopId top = uses.source.at({i, j});
      if (uses.count.at(top) > 1)
        layer->set_bottom(j, str(split_name(net, top), "_", taken[top]++));
    }
    for (int j = 0; j < net.layer(i).top_size(); ++j) {
      const TopId top{i, j};
      const auto count = uses.count.find(top);
      if (count == uses.count.end() || count->second < 2) continue;
      LayerParameter* split = result.add_layer();
      split->set_name(split_name(net, top));
      split->set_type("Split");
      split->set_phase(net.layer(i).phase());
      split->set_origin(net.layer(i).origin());
      split->add_bottom(net.layer(i).top(j));
      for (int k = 0; k < count->second; ++k) split->add_top(str(split->name(), "_", k));
      if (const auto weight = uses.loss_weight.find(top); weight != uses.loss_weight.end()) {
        for (int k = 0; k < count->second; ++k)
          split->add_loss_weight(k == 0 ? weight->second : 0.0f);
        ++taken[top];
        if (layer->loss_weight_size() == 0)
          layer->mutable_loss_weight()->Resize(layer->top_size(), 0);
        layer->set_loss_weight(j, 0);
      }
    }
  }
  return result;
}

bool is_inserted_split(const LayerParameter& layer) {
  return layer.type() == "Split" && layer.name().ends_with("_split") && layer.top_size() > 0 &&
         layer.top(0) == layer.name() + "_0";
}

}  // namespace shoal
