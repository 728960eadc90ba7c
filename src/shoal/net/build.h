// Makes the layers, blobs and wiring of a Net, step by step. Used by Net alone.
#pragma once

#include <map>
#include <set>
#include <string>

#include "shoal/net/fuse.h"
#include "shoal/net/net.h"
#include "shoal/proto/net.pb.h"

namespace shoal {

// Layer::reshape. Throws ConfigError with the layer's place, also if a top is left without
// elements by bottoms that have some.
void reshape_layer(Layer& layer, Context& ctx, Bottoms bottoms, Tops tops);

class NetBuilder {
 public:
  NetBuilder(Net& net, const NetParameter& with_splits) : net_(net), param_(with_splits) {}
  void build();
  // Lets layers take over the forward pass of the layers behind them where they can.
  void fuse();

 private:
  bool fuse(const Fusion& fusion);
  void add_layer(const LayerParameter& layer);
  void connect_bottoms(int layer);
  void connect_tops(int layer);
  bool may_overwrite(int layer, const Blob& bottom) const;
  void check_arity(int layer) const;
  void set_up(int layer);
  void set_loss_weights(int layer);
  void add_params(int layer);
  void share_param(int layer, int index, const std::string& name);
  void find_gradients();
  void want_gradients(int layer);
  void drop_gradients_without_loss();
  void find_missing_gradients();

  Net& net_;
  const NetParameter& param_;
  std::map<std::string, Blob*> latest_;  // each blob by name
  // Blobs that no layer has taken, in Caffe's (alphabetical) order.
  std::set<std::string> open_;
  std::map<std::string, const Layer*> learners_;  // layers with params, by name
  // Shared params by name: their index in net_.net_params_.
  std::map<std::string, std::size_t> owners_;
  // Blobs whose gradient a layer upstream is to be given, and those that do without one: no layer
  // that learns needs it.
  std::set<const Blob*> wanted_, without_;
};

}  // namespace shoal
