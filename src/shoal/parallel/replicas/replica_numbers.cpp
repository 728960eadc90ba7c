#include "shoal/parallel/replicas/replica_numbers.h"

#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/ops/device_sums.h"
#include "shoal/ops/vector.h"
#include "shoal/solver/net_params.h"

namespace shoal::parallel {
namespace {

using Tensors = std::vector<Tensor*>;

enum class Pick { kAll, kLearned };  // with running sums, or without
Tensors params_of(const Net& net, const LayerRange& range, Pick pick = Pick::kAll) {
  Tensors params;
  for (int layer = range.first; layer <= range.last; ++layer)
    for (std::size_t i = 0; i < net.layers()[layer]->params().size(); ++i)
      if (pick == Pick::kAll || !is_running_sum(net, static_cast<std::size_t>(layer), i))
        params.push_back(&net.layers()[layer]->params()[i]->data);
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
  // Waits until copies to a device have been done, so that another thread may take_from().
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
  ThroughHost(const std::vector<Net*>& nets, const std::vector<LayerRange>& ranges)
      : nets_(nets), ranges_(ranges), offered_(nets.size()) {
    for (std::size_t r = 1; r < nets.size(); ++r) share_params(*nets[r]);
    for (const LayerRange& range : ranges) {
      sent_.emplace_back(apart(0, range));
      for (std::size_t r = 1; r < nets.size(); ++r)
        if (!on_host(*nets[r])) offered_[r].emplace_back(gradients_of(*nets[r], range.summed));
    }
  }

  void begin() override {
    for (auto& of_replica : offered_)
      for (Copies& gradients : of_replica) gradients.settle();
  }
  void send(int range) override { sent_[range].take_from(apart(0, ranges_[range])); }
  void take(int replica, int range) override {
    sent_[range].give_to(apart(static_cast<std::size_t>(replica), ranges_[range]));
  }
  void offer(int replica, int range) override {
    const auto r = static_cast<std::size_t>(replica);
    if (!on_host(*nets_[r]))
      offered_[r][range].take_from(gradients_of(*nets_[r], ranges_[range].summed));
  }
  void sum(int range) override {
    const std::vector<int>& summed = ranges_[range].summed;
    for (std::size_t r = 1; r < nets_.size(); ++r)
      add(on_host(*nets_[r]) ? gradients_of(*nets_[r], summed) : offered_[r][range].tensors(),
          gradients_of(*nets_[0], summed));
  }
  void sum_running() override {
    for (std::size_t r = 1; r < nets_.size(); ++r) {
      Copies sums(running_sums_of(*nets_[r]));
      sums.take_from(running_sums_of(*nets_[r]));
      add(sums.tensors(), running_sums_of(*nets_[0]));
    }
  }

 private:
  // Shares all params but running sums, which each pass of a net changes.
  void share_params(Net& net) {
    if (!on_host(net) || !on_host(*nets_[0])) return;
    for (std::size_t layer = 0; layer < net.layers().size(); ++layer)
      for (std::size_t i = 0; i < net.layers()[layer]->params().size(); ++i)
        if (!is_running_sum(net, layer, i))
          net.layers()[layer]->params()[i]->data.share(
              nets_[0]->layers()[layer]->params()[i]->data);
  }
  // Returns the range's params in a net, without those that all nets share.
  Tensors apart(std::size_t of, const LayerRange& range) const {
    const Tensors first = params_of(*nets_[0], range), second = params_of(*nets_[1], range);
    Tensors all = params_of(*nets_[of], range), kept;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!first[i]->shares_with(*second[i])) kept.push_back(all[i]);
    return kept;
  }
  void add(const Tensors& terms, const Tensors& sums) {
    for (std::size_t i = 0; i < sums.size(); ++i)
      ops::axpy(nets_[0]->context(), 1, *terms[i], *sums[i]);
  }

  const std::vector<Net*> nets_;
  const std::vector<LayerRange> ranges_;
  std::vector<Copies> sent_;                  // by range
  std::vector<std::vector<Copies>> offered_;  // by replica and range, of those not on the host
};

// Passes numbers on by the devices' own way. The slots: of each range the gradients, of each range
// the params, the running sums.
class ByDevices final : public ReplicaNumbers {
 public:
  ByDevices(const std::vector<Net*>& nets, const std::vector<LayerRange>& ranges, bool ready,
            std::unique_ptr<ops::DeviceSums> sums)
      : nets_(nets), ranges_(ranges), ready_(ready), sums_(std::move(sums)) {}
  static int slots(const std::vector<LayerRange>& ranges) {
    return 2 * static_cast<int>(ranges.size()) + 1;
  }

  // Sends running sums first and alone, since nets[0]'s forward pass changes them, and must not
  // before they were copied. If all ranges are sent here, transfers go on beside the forward pass.
  void begin() override {
    for (int r = 1; r < count(); ++r) {
      if (last_ >= 0) sums_->take(r, last_);
      for (int range = 0; range < params(0); ++range)
        if (has_params(range)) sums_->offer(r, params(range), Use::kCopy, params_in(r, range));
    }
    if (!ready_) return;
    if (!running_sums_of(net(0)).empty()) {
      offer_running_sums(Use::kCopy);
      for (int r = 0; r < count(); ++r) sums_->take(r, running_sums());
    }
    for (int range = 0; range < params(0); ++range) send(range);
  }
  bool sends_all() const override { return ready_; }
  void send(int range) override {
    if (!has_params(range)) return;
    sums_->offer(0, params(range), Use::kCopy, params_in(0, range));
    start(params(range));
    if (!ready_ && has_running_sums(range)) sums_->take(0, params(range));
  }
  void take(int replica, int range) override {
    if (has_params(range)) sums_->take(replica, params(range));
  }
  void offer(int replica, int range) override {
    if (sums_any(range)) sums_->offer(replica, range, Use::kSum, gradients_in(replica, range));
  }
  void sum(int range) override {
    offer(0, range);
    if (sums_any(range)) start(range);
  }
  void throw_if_failed() override { sums_->throw_if_failed(); }
  bool summed(int range) override { return !sums_any(range) || sums_->done(range); }
  void finish(int range) override {
    if (sums_any(range)) sums_->take(0, range);
  }
  void sum_running() override {
    if (running_sums_of(net(0)).empty()) return;
    offer_running_sums(Use::kSum);
    sums_->take(0, running_sums());
  }

 private:
  using Use = ops::DeviceSums::Use;
  int count() const { return static_cast<int>(nets_.size()); }
  Net& net(int r) const { return *nets_[r]; }
  int params(int range) const { return static_cast<int>(ranges_.size()) + range; }
  int running_sums() const { return 2 * static_cast<int>(ranges_.size()); }
  Tensors params_in(int r, int range) const {
    return params_of(net(r), ranges_[range], ready_ ? Pick::kLearned : Pick::kAll);
  }
  Tensors gradients_in(int r, int range) const {
    return gradients_of(net(r), ranges_[range].summed);
  }
  bool has_params(int range) const { return !params_in(0, range).empty(); }
  bool sums_any(int range) const { return !gradients_in(0, range).empty(); }
  bool has_running_sums(int range) const {
    return params_of(net(0), ranges_[range], Pick::kLearned).size() != params_in(0, range).size();
  }
  void offer_running_sums(Use use) {
    for (int r = 0; r < count(); ++r) sums_->offer(r, running_sums(), use, running_sums_of(net(r)));
    start(running_sums());
  }
  void start(int slot) {
    sums_->start(slot);
    last_ = slot;
  }

  const std::vector<Net*> nets_;
  const std::vector<LayerRange> ranges_;
  const bool ready_;
  const std::unique_ptr<ops::DeviceSums> sums_;
  int last_ = -1;  // of the slots that were started
};

}  // namespace

std::unique_ptr<ReplicaNumbers> make_replica_numbers(const std::vector<Net*>& nets,
                                                     const std::vector<LayerRange>& ranges,
                                                     bool ready) {
  if (on_host(*nets[0])) return std::make_unique<ThroughHost>(nets, ranges);
  std::vector<Context*> contexts;
  for (Net* net : nets) contexts.push_back(&net->context());
  ops::Why why;
  if (auto sums = ops::make_device_sums(contexts, ByDevices::slots(ranges), why)) {
    LOG(INFO) << nets.size() << " replicas sum their gradients by NCCL";
    return std::make_unique<ByDevices>(nets, ranges, ready, std::move(sums));
  }
  LOG(WARNING) << nets.size()
               << " replicas sum their gradients through the host, which is slower: " << why;
  return std::make_unique<ThroughHost>(nets, ranges);
}

}  // namespace shoal::parallel
