#include "shoal/parallel/replica_numbers.h"

#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/ops/device_sums.h"
#include "shoal/ops/vector.h"
#include "shoal/solver/net_params.h"

namespace shoal::parallel {
namespace {

using Tensors = std::vector<Tensor*>;

Tensors params_of(const Net& net, int layer) {
  Tensors params;
  for (const auto& blob : net.layers()[layer]->params()) params.push_back(&blob->data);
  return params;
}

Tensors running_sums_of(const Net& net) {
  Tensors sums;
  for_each_running_sum(net, [&](Tensor& sum) { sums.push_back(&sum); });
  return sums;
}

bool on_host(Net& net) { return net.context().device().is_host(); }

// Tensors of the host alone, through which two threads pass numbers on.
class Copies {
 public:
  explicit Copies(const Tensors& of) {
    for (const Tensor* tensor : of) all_.emplace_back(tensor->shape());
  }
  void take_from(const Tensors& from) {
    for (std::size_t i = 0; i < all_.size(); ++i)
      std::ranges::copy(from[i]->host(), all_[i].host_out().begin());
  }
  // Copies to a device have been done, so that another thread may take_from().
  void settle() {
    for (Tensor& tensor : all_) tensor.host_mut();
  }
  void give_to(const Tensors& to) const {
    for (std::size_t i = 0; i < all_.size(); ++i)
      std::ranges::copy(all_[i].host(), to[i]->host_out().begin());
  }
  Tensors tensors() {
    Tensors pointers;
    for (Tensor& tensor : all_) pointers.push_back(&tensor);
    return pointers;
  }

 private:
  std::vector<Tensor> all_;
};

class ThroughHost final : public ReplicaNumbers {
 public:
  explicit ThroughHost(const std::vector<Net*>& nets) : nets_(nets), offered_(nets.size()) {
    for (std::size_t r = 1; r < nets.size(); ++r) share_params(*nets[r]);
    for (int layer = 0; layer < static_cast<int>(nets[0]->layers().size()); ++layer) {
      sent_.emplace_back(apart(0, layer));
      for (std::size_t r = 1; r < nets.size(); ++r)
        if (!on_host(*nets[r])) offered_[r].emplace_back(gradients_of(*nets[r], layer));
    }
  }

  void begin() override {
    for (auto& of_replica : offered_)
      for (Copies& gradients : of_replica) gradients.settle();
  }
  void send(int layer) override { sent_[layer].take_from(apart(0, layer)); }
  void take(int replica, int layer) override {
    sent_[layer].give_to(apart(static_cast<std::size_t>(replica), layer));
  }
  void offer(int replica, int layer) override {
    const auto r = static_cast<std::size_t>(replica);
    if (!on_host(*nets_[r])) offered_[r][layer].take_from(gradients_of(*nets_[r], layer));
  }
  void sum(int layer) override {
    for (std::size_t r = 1; r < nets_.size(); ++r)
      add(on_host(*nets_[r]) ? gradients_of(*nets_[r], layer) : offered_[r][layer].tensors(),
          gradients_of(*nets_[0], layer));
  }
  void sum_running() override {
    for (std::size_t r = 1; r < nets_.size(); ++r) {
      Copies sums(running_sums_of(*nets_[r]));
      sums.take_from(running_sums_of(*nets_[r]));
      add(sums.tensors(), running_sums_of(*nets_[0]));
    }
  }

 private:
  // All but running sums, which each pass of a net changes.
  void share_params(Net& net) {
    if (!on_host(net) || !on_host(*nets_[0])) return;
    for (std::size_t layer = 0; layer < net.layers().size(); ++layer)
      for (std::size_t i = 0; i < net.layers()[layer]->params().size(); ++i)
        if (!is_running_sum(net, layer, i))
          net.layers()[layer]->params()[i]->data.share(
              nets_[0]->layers()[layer]->params()[i]->data);
  }
  // The layer's params in a net, without those that all nets share.
  Tensors apart(std::size_t of, int layer) const {
    const Tensors first = params_of(*nets_[0], layer), second = params_of(*nets_[1], layer);
    Tensors all = params_of(*nets_[of], layer), kept;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!first[i]->shares_with(*second[i])) kept.push_back(all[i]);
    return kept;
  }
  void add(const Tensors& terms, const Tensors& sums) {
    for (std::size_t i = 0; i < sums.size(); ++i)
      ops::axpy(nets_[0]->context(), 1, *terms[i], *sums[i]);
  }

  const std::vector<Net*> nets_;
  std::vector<Copies> sent_;                  // by layer
  std::vector<std::vector<Copies>> offered_;  // by replica and layer, of those not on the host
};

// The slots: of each layer the gradients, of each layer the params, the running sums.
class ByDevices final : public ReplicaNumbers {
 public:
  ByDevices(const std::vector<Net*>& nets, std::unique_ptr<ops::DeviceSums> sums)
      : nets_(nets), sums_(std::move(sums)), layers_(static_cast<int>(nets[0]->layers().size())) {}
  static int slots(const Net& net) { return 2 * static_cast<int>(net.layers().size()) + 1; }

  void begin() override {
    for (int r = 1; r < count(); ++r) {
      if (last_ >= 0) sums_->take(r, last_);
      for (int layer = 0; layer < layers_; ++layer)
        if (has_params(layer)) sums_->offer(r, params(layer), Use::kCopy, params_of(net(r), layer));
    }
  }
  void send(int layer) override {
    if (!has_params(layer)) return;
    sums_->offer(0, params(layer), Use::kCopy, params_of(net(0), layer));
    start(params(layer));
    // the forward pass changes running sums, and must not before they were copied
    if (has_running_sums(layer)) sums_->take(0, params(layer));
  }
  void take(int replica, int layer) override {
    if (has_params(layer)) sums_->take(replica, params(layer));
  }
  void offer(int replica, int layer) override {
    if (has_params(layer))
      sums_->offer(replica, layer, Use::kSum, gradients_of(net(replica), layer));
  }
  void sum(int layer) override {
    offer(0, layer);
    if (has_params(layer)) start(layer);
  }
  void throw_if_failed() override { sums_->throw_if_failed(); }
  bool summed(int layer) override { return !has_params(layer) || sums_->done(layer); }
  void finish(int layer) override {
    if (has_params(layer)) sums_->take(0, layer);
  }
  void sum_running() override {
    if (running_sums_of(net(0)).empty()) return;
    for (int r = 0; r < count(); ++r)
      sums_->offer(r, 2 * layers_, Use::kSum, running_sums_of(net(r)));
    start(2 * layers_);
    sums_->take(0, 2 * layers_);
  }

 private:
  using Use = ops::DeviceSums::Use;
  int count() const { return static_cast<int>(nets_.size()); }
  Net& net(int r) const { return *nets_[r]; }
  int params(int layer) const { return layers_ + layer; }
  bool has_params(int layer) const { return !nets_[0]->layers()[layer]->params().empty(); }
  bool has_running_sums(int layer) const {
    const auto of = static_cast<std::size_t>(layer);
    for (std::size_t i = 0; i < nets_[0]->layers()[of]->params().size(); ++i)
      if (is_running_sum(*nets_[0], of, i)) return true;
    return false;
  }
  void start(int slot) {
    sums_->start(slot);
    last_ = slot;
  }

  const std::vector<Net*> nets_;
  const std::unique_ptr<ops::DeviceSums> sums_;
  const int layers_;
  int last_ = -1;  // of the slots that were started
};

}  // namespace

std::unique_ptr<ReplicaNumbers> make_replica_numbers(const std::vector<Net*>& nets) {
  if (on_host(*nets[0])) return std::make_unique<ThroughHost>(nets);
  std::vector<Context*> contexts;
  for (Net* net : nets) contexts.push_back(&net->context());
  ops::Why why;
  if (auto sums = ops::make_device_sums(contexts, ByDevices::slots(*nets[0]), why)) {
    LOG(INFO) << nets.size() << " replicas sum their gradients by NCCL";
    return std::make_unique<ByDevices>(nets, std::move(sums));
  }
  LOG(WARNING) << nets.size()
               << " replicas sum their gradients through the host, which is slower: " << why;
  return std::make_unique<ThroughHost>(nets);
}

}  // namespace shoal::parallel
