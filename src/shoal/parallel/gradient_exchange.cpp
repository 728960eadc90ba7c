// The exchange of schemes whose tasks are gradients. Each leaves as soon as its layer has it: for
// the servers, which apply the rule, or for the other workers, each of which does so.
#include <functional>
#include <utility>

#include "shoal/net/net.h"
#include "shoal/ops/update.h"
#include "shoal/ops/vector.h"
#include "shoal/parallel/exchange_choice.h"
#include "shoal/parallel/factor_layers.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/net_params.h"
#include "shoal/table/scheme.h"

namespace shoal::parallel {
namespace {

using table::Part;
using table::RowId;

// The layers that each worker updates itself, by what carries their gradients.
using Replicated = std::vector<std::unique_ptr<ReplicatedLayers>>;

Replicated replicated_of(const TableSetup& setup) {
  Layers factors;
  for (const Way way : setup.ways) factors.push_back(way == Way::kFactors);
  Replicated all;
  all.push_back(std::make_unique<FactorLayers>(setup, factors));
  all.push_back(make_collective_layers(setup));
  return all;
}

std::vector<Tensor*> histories_of(const Replicated& replicated) {
  std::vector<Tensor*> all;
  for (const auto& one : replicated) add_histories(one->histories(), all);
  return all;
}

class GradientExchange final : public TableExchange {
 public:
  GradientExchange(const TableSetup& setup, Replicated replicated)
      : TableExchange(setup, {.histories = histories_of(replicated),
                              .stays = is_alone(setup.table.roster()),
                              .layers = setup.layers,
                              .replicated = replicated_by(setup.ways)}),
        layers_(setup.layers),
        replicated_(std::move(replicated)),
        on_host_(net_.context().device().is_host()),
        spends_(is_alone(setup.table.roster()) && on_host_ && !setup.param.snapshot_diff() &&
                !setup.param.debug_info()) {
    table_.share_out(std::bind_front(ops::share_out, net_.context().threads()));
  }

  Status begin(std::int64_t iteration, float rate) override {
    if (Status status = begin_task(iteration, rate); !status.ok()) return status;
    finite_ = true;
    skipped_ = false;
    spent_ = std::exchange(spending_, false);
    held_.clear();
    held_layers_.clear();
    histories_.clear();
    fix_histories({});
    for (const auto& one : replicated_) one->begin(iteration, rate);
    if (!on_host_) clear_gradients([](int) { return true; });
    pacer_.task_begins();
    return {};
  }

  Status before_forward(int layer) override {
    progress();
    if (recipe_.clip >= 0)
      if (Status status = update_replicated(); !status.ok()) return status;
    if (Status status = receive(map_.needed_by(layer)); !status.ok()) return status;
    if (ReplicatedLayers* const own = replicated(layer)) return own->before_forward(layer, waits_);
    if (on_host_) clear_gradients([layer](int of) { return of == layer; });
    return {};
  }

  Status after_backward(std::span<const int> layers) override {
    progress();
    finite_ = finite_ && are_finite(layers);
    for (const int layer : layers) {
      if (replicated(layer)) held_layers_.push_back(layer);
      if (!by_rows(layer)) continue;
      for (const RowId row : map_.owned_by(layer))
        if (map_.rows()[row].learns) held_.push_back(row);
    }
    if (early_ && finite_) push_held();
    return {};
  }

  // The servers clip, by the norm of all workers' gradients together; or every worker does.
  Gradients gradients() override { return {.finite = finite_}; }

  Status end_step(bool update, double) override {
    skipped_ = !update;
    if (skipped_) held_.clear(), held_layers_.clear();
    if (!task_.judged) push_outcome();
    return {};
  }

  Result<bool> another_step() override {
    step_done();
    if (!task_.judged) return false;
    const Result<table::Verdict> verdict = pacer_.judge(iteration_);
    if (!verdict.ok()) return verdict.error();
    skipped_ = skipped_ || verdict.value() == table::Verdict::kDrop;
    push_outcome();
    return false;
  }

  Status prepare_save() override {
    if (!is_chief()) return {};
    make_histories();
    constexpr Part kParts[] = {Part::kHistory, Part::kHistory2};
    static_assert(std::size(kParts) == optim::kMaxHistories);
    for (const RowId row : learning_)
      for (int h = 0; h < optim::histories(recipe_.rule.rule); ++h)
        table_.get(row, next(), kParts[h]);
    return waits_.wait(learning_);
  }

  std::vector<Tensor*> histories() override {
    if (histories_.empty()) make_histories();
    std::vector<Tensor*> all = pointers();
    add_histories(histories_of(replicated_), all);
    return all;
  }

 private:
  bool owns(int layer) const { return layers_[layer]; }
  // Null: its gradients go to the servers.
  ReplicatedLayers* replicated(int layer) const {
    const auto found =
        std::ranges::find_if(replicated_, [layer](const auto& one) { return one->owns(layer); });
    return found == replicated_.end() ? nullptr : found->get();
  }
  bool by_rows(int layer) const { return owns(layer) && !replicated(layer); }
  void progress() {
    for (const auto& one : replicated_) one->progress();
  }
  // Of the layers for which picks(layer), unless the server has. On a CPU the table may read a
  // layer's until it has sent the params.
  template <class Picks>
  void clear_gradients(Picks picks) {
    std::vector<Tensor*> unclear;
    for (const NetParam& param : net_.params())
      if (by_rows(param.layer) && picks(param.layer) && !(spent_ && param.lr_mult != 0))
        unclear.push_back(&param.blob->grad);
    ops::fill_all(net_.context(), 0, unclear);
  }
  // Whether what these layers have to send is finite. The device is waited for once: it looks at
  // all their gradients together, when those that leave through the host are there.
  bool are_finite(std::span<const int> layers) {
    bool finite = true;
    std::vector<const Tensor*> gradients;
    for (const int layer : layers) {
      const ReplicatedLayers* const own = replicated(layer);
      if (own) finite = own->prepare(layer, gradients) && finite;
      if (!by_rows(layer)) continue;
      for (const Tensor* const gradient : gradients_of(net_, layer)) {
        gradient->begin_download();
        gradients.push_back(gradient);
      }
    }
    return finite && ops::all_finite(net_.context(), gradients);
  }

  Status first_read(const table::Plan&) override {
    for (const RowId row : all_)
      if (resumed_ || !map_.is_history(row)) get(row, start_);  // else it is as the chief's: zeros
    return {};
  }
  Status reread() override { return read(next()); }
  Status receive_all() override {
    if (Status status = receive(all_); !status.ok()) return status;
    return update_replicated();
  }
  // The sums of all layers come first, whose norm every worker then knows, for a clip.
  Status update_replicated() {
    for (bool are_left = true; are_left;) {
      double squares = 0;
      for (const auto& one : replicated_) {
        const Result<double> part = one->gather_all(waits_);
        if (!part.ok()) return part.error();
        squares += part.value();
      }
      are_left = false;
      for (const auto& one : replicated_) are_left = one->update_all(squares) || are_left;
    }
    return {};
  }
  std::vector<table::Row> more_rows(RowId first) override {
    std::vector<table::Row> rows;
    firsts_.clear();
    for (const auto& one : replicated_) {
      firsts_.push_back(first + static_cast<RowId>(rows.size()));
      const std::vector<table::Row> own = one->rows(firsts_.back());
      rows.insert(rows.end(), own.begin(), own.end());
    }
    return rows;
  }
  // Under a scheme that is not lockstep the rows that arrived may lack what others pushed since.
  Status refresh() override { return lockstep_ ? Status() : read(next()); }
  table::Destination destination(RowId row) override {
    if (row < all_.size()) return staging_.weights(row);
    const auto after = std::ranges::upper_bound(firsts_, row);
    return replicated_[static_cast<std::size_t>(after - firsts_.begin()) - 1]->destination(row);
  }

  void make_histories() {
    histories_.clear();
    for (int h = 0; h < optim::histories(recipe_.rule.rule); ++h)
      for (const NetParam& param : net_.params())
        histories_.push_back(by_rows(param.layer) ? std::make_unique<Tensor>(param.blob->shape())
                                                  : nullptr);
    fix_histories(pointers());
  }

  std::vector<Tensor*> pointers() {
    std::vector<Tensor*> all;
    for (const auto& history : histories_) all.push_back(history.get());
    return all;
  }

  void push_held() {
    pushes_.clear();
    spending_ = spends_;
    for (const RowId row : held_) {
      const std::span<float> gradient = map_.gradient(row);
      pushes_.push_back({.row = row,
                         .clock = iteration_,
                         .weight = options_.weight,
                         .rate = rate_,
                         .payload = table::as_payload({gradient}),
                         .finite = finite_,
                         .clear_after = spends_ ? gradient : std::span<float>()});
    }
    push(pushes_);
    held_.clear();
    for (const int layer : held_layers_) replicated(layer)->send(layer, options_.weight);
    held_layers_.clear();
  }

  // Pushes the rest of the task. Other workers wait for this worker's part, so it says if there is
  // none.
  void push_outcome() {
    if (!skipped_) return push_held();
    spending_ = false;
    pushes_.clear();
    for (const RowId row : learning_)
      pushes_.push_back({.row = row, .clock = iteration_, .weight = 0, .rate = rate_});
    for (const table::Push& one : pushes_) push(std::span(&one, 1));
    for (const auto& one : replicated_) one->send_nothing();
  }

  const Layers layers_;
  const Replicated replicated_;
  const bool on_host_;
  std::vector<RowId> firsts_;  // of their rows, in their order
  // the only server is in this process: it clears gradients as it takes them
  const bool spends_;
  bool finite_ = true;    // this iteration's gradients, so far
  bool skipped_ = false;  // this iteration has no update
  // the server clears this iteration's gradients; it has cleared those of the last
  bool spending_ = false, spent_ = false;
  std::vector<RowId> held_;          // whose gradients are complete and were not pushed
  std::vector<int> held_layers_;     // that other workers get, likewise
  std::vector<table::Push> pushes_;  // of them, while they are pushed
  // of the rule's history h and param i at h * params + i: from a restore until the first
  // iteration, and for a save; null where that is not by rows
  std::vector<std::unique_ptr<Tensor>> histories_;
};

}  // namespace

std::unique_ptr<Exchange> make_gradient_exchange(const TableSetup& setup) {
  return std::make_unique<GradientExchange>(setup, replicated_of(setup));
}

}  // namespace shoal::parallel
