// The exchange whose rule the servers apply, for schemes whose tasks are gradients. Each layer's
// gradients leave for the servers as soon as they are complete.
#include <functional>
#include <utility>

#include "shoal/base/try.h"
#include "shoal/net/net.h"
#include "shoal/ops/update.h"
#include "shoal/ops/vector.h"
#include "shoal/parallel/exchange/exchange_choice.h"
#include "shoal/parallel/exchange/exchanges.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/net_params.h"
#include "shoal/table/scheme.h"

namespace shoal::parallel {
namespace {

using table::Part;
using table::RowId;

// Other exchanges' params come by the table once, at the start of a segment: their rows do not
// learn.
class TableExchange final : public Exchange {
 public:
  TableExchange(const TableSetup& setup, std::shared_ptr<TableSide> side)
      : side_(std::move(side)),
        net_(side_->net),
        others_(replicated_by(setup.ways)),
        on_host_(net_.context().device().is_host()),
        clears_(is_alone(setup.table.roster()) && on_host_ && !setup.param.snapshot_diff() &&
                !setup.param.debug_info()) {
    side_->table.share_out(std::bind_front(ops::share_out, net_.context().threads()));
  }

  Result<Permission> wait_to_begin(std::int64_t iteration) override {
    return side_->wait_to_begin(iteration, *this);
  }

  Status begin(std::int64_t iteration, float rate) override {
    TRY(side_->begin(iteration, rate));
    finite_ = true;
    skipped_ = false;
    is_cleared_ = std::exchange(is_clearing_, false);
    held_.clear();
    histories_.clear();
    side_->fix_histories({});
    if (!on_host_) clear_gradients([](int) { return true; });
    side_->pacer.task_begins();
    return {};
  }

  Status before_forward(int layer) override {
    TRY(side_->receive(side_->map().needed_by(layer)));
    if (on_host_) clear_gradients([layer](int of) { return of == layer; });
    return {};
  }

  Status after_backward(std::span<const int> layers) override {
    finite_ = finite_ && are_finite(layers);
    for (const int layer : layers)
      for (const RowId row : side_->map().owned_by(layer))
        if (side_->map().rows()[row].learns) held_.push_back(row);
    if (side_->sends_early && finite_) push_held();
    return {};
  }

  // The servers clip, by the norm of all workers' gradients together.
  Gradients gradients() override { return {.finite = finite_}; }

  Result<double> hand_in(bool update) override {
    unit_.done = side_->next();
    skipped_ = !update;
    if (!side_->task.judged) push_rest();
    return 0;
  }
  Status apply(bool, double) override { return {}; }

  Result<bool> another_step() override {
    side_->step_done();
    if (!side_->task.judged) return false;
    const Result<table::Verdict> verdict = side_->pacer.judge(side_->iteration());
    TRY(verdict);
    skipped_ = skipped_ || verdict.value() == table::Verdict::kDrop;
    push_rest();
    return false;
  }

  // Settles. Under a scheme that is not lockstep the rows that arrived may lack others' later
  // pushes.
  Status settle(Settle how) override {
    TRY(side_->create());
    TRY(side_->receive(side_->all()));
    return how == Settle::kTeams && !side_->lockstep ? side_->read(side_->next()) : Status();
  }
  bool send_left_out() override { return side_->send_left_out(); }
  std::optional<double> seconds_waited() const override { return side_->waits.seconds(); }

  std::vector<StateRow> rows() override {
    std::vector<StateRow> rows = side_->state_rows();
    std::erase_if(rows, [this](const StateRow& row) {
      return others_[static_cast<std::size_t>(net_.params()[row.param].layer)];
    });
    return rows;
  }
  Status prepare_save() override {
    if (unit_.is_fetched) return {};
    TRY(fetch_histories());
    return side_->fetch_left_out();
  }
  std::vector<Tensor*> histories() override {
    if (histories_.empty()) make_histories();
    return pointers();
  }
  void start_at(std::int64_t iteration, const std::vector<std::int64_t>& all) override {
    unit_.done = iteration;
    side_->start_at(iteration, all);
  }

  std::shared_ptr<const OwnState> own_state() override { return side_->own_state(); }
  void take_own_state(std::shared_ptr<const OwnState> own) override {
    side_->take_own_state(own.get());
  }
  std::string own_bytes() override { return side_->own_bytes(); }
  Status take_own_bytes(std::string_view bytes) override { return side_->take_own_bytes(bytes); }

  // ---- after an interruption: all rows that learn are one unit ----
  Result<Standing> interrupt() override {
    Standing standing{.done = unit_.done};
    if (!side_->learning().empty()) standing.versions.push_back(unit_.version());
    return standing;
  }
  Status fetch_unit(std::size_t) override {
    if (unit_.is_fetched) return {};
    TRY(side_->receive(side_->learning()));
    return fetch_histories();
  }
  void give_unit(std::size_t, std::string& out) override {
    for (Tensor* const tensor : numbers()) put_numbers(tensor->host(), out);
  }
  Status take_unit(std::size_t, std::int64_t, std::string_view bytes) override {
    make_histories();
    for (Tensor* const tensor : numbers()) TRY(get_numbers(bytes, tensor->host_mut()));
    return {};
  }
  void go_on_from(std::int64_t iterations, bool leads) override {
    unit_.go_on_from(iterations, leads);
  }

 private:
  Status fetch_histories() {
    make_histories();
    constexpr Part kParts[] = {Part::kHistory, Part::kHistory2};
    static_assert(std::size(kParts) == optim::kMaxHistories);
    for (const RowId row : side_->learning())
      for (int h = 0; h < optim::histories(side_->recipe.rule.rule); ++h)
        side_->table.get(row, side_->next(), kParts[h]);
    return side_->waits.wait(side_->learning());
  }
  // Returns the params that learn by the table, and their histories.
  std::vector<Tensor*> numbers() {
    std::vector<std::size_t> learning;
    for (std::size_t p = 0; p < net_.params().size(); ++p)
      if (const NetParam& param = net_.params()[p]; owns(param.layer) && param.lr_mult != 0)
        learning.push_back(p);
    return with_histories(net_, learning, pointers());
  }

  bool owns(int layer) const { return !others_[static_cast<std::size_t>(layer)]; }
  // Clears the gradients of the layers for which picks(layer), unless the server has. On a CPU the
  // table may read a layer's until it has sent the params.
  template <class Picks>
  void clear_gradients(Picks picks) {
    std::vector<Tensor*> unclear;
    for (const NetParam& param : net_.params())
      if (owns(param.layer) && picks(param.layer) && !(is_cleared_ && param.lr_mult != 0))
        unclear.push_back(&param.blob->grad);
    ops::fill_all(net_.context(), 0, unclear);
  }
  // Waits for the device once, which examines all these gradients together.
  bool are_finite(std::span<const int> layers) {
    std::vector<const Tensor*> gradients;
    for (const int layer : layers) {
      if (!owns(layer)) continue;
      for (const Tensor* const gradient : gradients_of(net_, layer)) {
        gradient->begin_download();
        gradients.push_back(gradient);
      }
    }
    return ops::all_finite(net_.context(), gradients);
  }

  void make_histories() {
    histories_.clear();
    for (int h = 0; h < optim::histories(side_->recipe.rule.rule); ++h)
      for (const NetParam& param : net_.params())
        histories_.push_back(owns(param.layer) ? std::make_unique<Tensor>(param.blob->shape())
                                               : nullptr);
    side_->fix_histories(pointers());
  }

  std::vector<Tensor*> pointers() {
    std::vector<Tensor*> all;
    for (const auto& history : histories_) all.push_back(history.get());
    return all;
  }

  void push_held() {
    pushes_.clear();
    is_clearing_ = clears_;
    for (const RowId row : held_) {
      const std::span<float> gradient = side_->map().gradient(row);
      pushes_.push_back({.row = row,
                         .clock = side_->iteration(),
                         .weight = side_->options.weight,
                         .rate = side_->rate(),
                         .payload = table::as_payload({gradient}),
                         .whole = side_->whole(),
                         .finite = finite_,
                         .clear_after = clears_ ? gradient : std::span<float>()});
    }
    side_->push(pushes_);
    held_.clear();
  }

  // Pushes the rest of the task. Other workers wait for this worker's part, so it is sent even if
  // it is empty.
  void push_rest() {
    if (!skipped_) return push_held();
    is_clearing_ = false;
    held_.clear();
    pushes_.clear();
    for (const RowId row : side_->learning())
      pushes_.push_back(
          {.row = row, .clock = side_->iteration(), .weight = 0, .rate = side_->rate()});
    for (const table::Push& one : pushes_) side_->push(std::span(&one, 1));
  }

  const std::shared_ptr<TableSide> side_;
  Net& net_;
  const Layers others_;  // that other exchanges own
  const bool on_host_;
  // The only server is in this process: it clears gradients as it takes them.
  const bool clears_;
  RowsOnServers unit_;
  bool finite_ = true;    // this iteration's gradients, so far
  bool skipped_ = false;  // this iteration has no update
  // The server clears this iteration's gradients; it has cleared those of the last.
  bool is_clearing_ = false, is_cleared_ = false;
  std::vector<RowId> held_;          // whose gradients are complete and were not pushed
  std::vector<table::Push> pushes_;  // of them, while they are pushed
  // The tensor of the rule's history h and param i, at h * params + i: from a restore until the
  // first iteration, and for a save. Null where another exchange owns the param.
  std::vector<std::unique_ptr<Tensor>> histories_;
};

}  // namespace

std::unique_ptr<Exchange> make_table_exchange(const TableSetup& setup,
                                              std::shared_ptr<TableSide> side) {
  return std::make_unique<TableExchange>(setup, std::move(side));
}

}  // namespace shoal::parallel
