#include "support/lossy_job.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "shoal/base/random.h"
#include "shoal/net/net.h"
#include "shoal/parallel/job/job_spec.h"
#include "shoal/parallel/run.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/simulate/sim_thread.h"
#include "shoal/simulate/simulated_job.h"
#include "shoal/simulate/simulated_table.h"
#include "shoal/solver/updater.h"
#include "support/solver_rig.h"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;
using simulate::Instant;

constexpr int kOutputs[] = {400, 3, 420, 40, 380};
constexpr double kRate = 0.1;

// Each layer's gradient is that of the sum of its outputs: what the input holds, whatever the
// params are.
SolverParameter solver_of(const LossyCase& one) {
  std::string net =
      "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 50 } } }";
  for (const int outputs : kOutputs)
    net += str("layer { name: 'ip", outputs, "' type: 'InnerProduct' bottom: 'x' top: 'y", outputs,
               "' inner_product_param { num_output: ", outputs,
               " weight_filler { type: 'gaussian' std: 0.1 } } } layer { name: 'sum", outputs,
               "' type: 'Reduction' bottom: 'y", outputs, "' top: 'l", outputs,
               "' loss_weight: 0.5 } ");
  SolverParameter param =
      parse_solver(str("base_lr: ", kRate,
                       " lr_policy: 'fixed' display: 0 random_seed: 3 max_iter: ", one.iterations,
                       " snapshot_after_train: false ", one.rule, " scheme { ", one.scheme,
                       " } exchange { ", one.exchange, " } ", one.more),
                   "job");
  *param.mutable_net_param() = parse_net(net, "job.prototxt");
  return param;
}

float input_of(int worker, std::int64_t iteration) {
  return 0.25f + 0.5f * static_cast<float>(worker * worker) +
         0.125f * static_cast<float>((iteration * 5 + worker) % 7);
}

class LossyJob {
 public:
  explicit LossyJob(const LossyCase& one)
      : one_(one),
        spec_(parallel::read_job_spec(solver_of(one), "job")),
        random_(one.seed, 3),
        job_(cluster(), {.seed = one.seed, .scheme = {}}),
        slots_(1) {
    for (int number = 0; number < one.workers; ++number)
      workers_.push_back(std::make_unique<Worker>(*this, number));
  }

  LossyRun run() {
    for (const auto& worker : workers_) {
      Worker* const me = worker.get();
      job_.time().at({}, [me] { me->thread.resume(); });
      me->thread.start([me] { me->work(); });
    }
    plan_losses();
    const auto ended = [](const auto& worker) { return worker->thread.ended(); };
    while (!std::ranges::all_of(workers_, ended))
      if (!job_.time().step()) job_.fail({Code::kTimeout, "the workers wait for each other"});
    check();
    return std::move(run_);
  }

 private:
  struct Worker {
    Worker(LossyJob& of, int number)
        : of(of),
          number(number),
          random(of.one_.seed, 10 + static_cast<std::uint64_t>(number)),
          thread(of.slots_),
          table(of.job_, number, thread) {}

    void work() {
      parallel::RunOptions options;
      options.wrap = [this](Net& net, std::unique_ptr<Updater> updater, const SolverParameter&) {
        if (of.one_.as_it_leads && of.run_.was_lost && number == of.lost_at(1)) {
          thread.enter();
          of.lose_at(of.job_.time().now() + std::chrono::microseconds(random.below(2000)), number);
        }
        return std::make_unique<Known>(*this, net, std::move(updater));
      };
      try {
        const Result<Ending> ending = parallel::run(of.spec_, options, &table);
        if (!ending.ok()) outcome = ending.error();
        if (ending.ok() && ending.value() != Ending::kDone)
          outcome = Error{Code::kInternal, "not done"};
      } catch (const ConfigError& error) {
        outcome = error.error();
      }
      table.enter();
      if (!outcome.ok()) table.abort(outcome.error());
    }
    // Lets a part of the virtual time pass that this worker computes.
    void pass() {
      const auto most = static_cast<std::uint32_t>(number == of.slow_ ? 3000 : 600);
      thread.enter();
      of.job_.time().after(std::chrono::microseconds(1 + random.below(most)),
                           [this] { thread.resume(); });
      thread.suspend();
    }

    LossyJob& of;
    const int number;
    Random random;
    simulate::SimThread thread;
    simulate::SimulatedTable table;
    Status outcome;
    bool is_lost = false;
    std::vector<std::vector<float>> first, last;  // params: at the start, at the end
    std::vector<std::int64_t> stepped;            // iterations whose passes were made, in order
  };

  // Gives the net its input, and lets time pass between the layers.
  class Known final : public ForwardingUpdater {
   public:
    Known(Worker& worker, Net& net, std::unique_ptr<Updater> inner)
        : ForwardingUpdater(std::move(inner)), worker_(worker), net_(net) {}
    ~Known() override { worker_.of.run_.was_in_vain |= !has_begun_ && !worker_.is_lost; }
    Status begin(std::int64_t iteration, float rate) override {
      iteration_ = iteration;
      TRY(inner().begin(iteration, rate));
      has_begun_ = true;
      float input = input_of(worker_.of.number_of(worker_.number), iteration);
      if (worker_.number == 1 && iteration == worker_.of.one_.skipped) input = NAN;
      std::ranges::fill(net_.blob("x")->data.host_mut(), input);
      return {};
    }
    Status before_forward(int layer) override {
      worker_.pass();
      TRY(inner().before_forward(layer));
      if (worker_.first.empty() && static_cast<std::size_t>(layer) + 1 == net_.layers().size())
        worker_.first = params();
      return {};
    }
    Status after_backward(std::span<const int> layers) override {
      worker_.pass();
      return inner().after_backward(layers);
    }
    std::int64_t bytes_together() const override { return 0; }
    Result<StepOutcome> end_step(StepEnd how) override {
      worker_.stepped.push_back(iteration_);
      return inner().end_step(how);
    }
    Status settle(Settle how) override {
      TRY(inner().settle(how));
      worker_.last = params();
      return {};
    }

   private:
    std::vector<std::vector<float>> params() const {
      std::vector<std::vector<float>> all;
      for (const NetParam& param : net_.params()) {
        const std::span<const float> numbers = param.blob->data.host();
        all.emplace_back(numbers.begin(), numbers.end());
      }
      return all;
    }
    Worker& worker_;
    Net& net_;
    std::int64_t iteration_ = 0;
    bool has_begun_ = false;
  };

  // Returns the number of the worker among gradients: those that are lost first come last.
  int number_of(int worker) const { return one_.of_first ? one_.workers - 1 - worker : worker; }

  // Workers that may be lost are no servers, or the only ones.
  simulate::Cluster cluster() {
    simulate::Cluster cluster;
    for (int r = 0; r < one_.workers; ++r)
      cluster.processes.push_back(
          {.worker = true,
           .server = (number_of(r) < one_.workers - one_.losses) != one_.with_servers,
           .compute = {},
           .bandwidth = one_.bandwidth,
           .latency = std::chrono::microseconds(50 + random_.below(400))});
    if (loses_server())
      cluster.processes.push_back(
          {.worker = false, .server = true, .compute = {}, .bandwidth = one_.bandwidth});
    slow_ = static_cast<int>(random_.below(static_cast<std::uint32_t>(one_.workers)));
    return cluster;
  }

  // Returns whether a worker has come to its end that was not lost.
  bool has_ended() const {
    return std::ranges::any_of(
        workers_, [](const auto& one) { return one->thread.ended() && !one->is_lost; });
  }
  bool loses_server() const { return one_.with_servers && one_.losses == 0; }

  void plan_losses() {
    Instant at = std::chrono::microseconds(random_.below(one_.early ? 4'000 : 90'000));
    if (loses_server())
      job_.time().at(at, [this] {
        if (has_ended()) return;
        run_.was_lost = true;
        job_.lose(static_cast<table::Rank>(one_.workers),
                  std::chrono::microseconds(random_.below(8000)));
      });
    for (int loss = 0; loss < (one_.as_it_leads ? 1 : one_.losses); ++loss) {
      lose_at(at, lost_at(loss));
      at += std::chrono::microseconds(random_.below(12'000));
    }
  }

  // Returns the worker that is lost in this turn.
  int lost_at(int loss) const { return number_of(one_.workers - 1 - loss); }
  void lose_at(Instant at, int worker) {
    job_.time().at(at, [this, worker] {
      bool& is_lost = workers_[static_cast<std::size_t>(worker)]->is_lost;
      if (is_lost || has_ended()) return;
      run_.was_lost = is_lost = true;
      job_.lose(worker, std::chrono::microseconds(random_.below(8000)));
    });
  }

  // Returns the change of a param whose gradient in each iteration is that of so many workers,
  // divided by how many they are.
  double change_of(const std::vector<int>& counted) const {
    double change = 0, first = 0, second = 0;
    const bool adam = one_.rule.find("Adam") != std::string::npos;
    for (std::size_t i = 0; i < counted.size(); ++i) {
      double gradient = 0;
      int counts = 0;
      for (int w = 0; w < one_.workers; ++w) {
        if ((counted[i] >> w & 1) == 0) continue;
        if (w == 1 && static_cast<int>(i) == one_.skipped) continue;
        gradient += input_of(w, static_cast<std::int64_t>(i));
        ++counts;
      }
      if (counts == 0) continue;  // the update was lost with its server
      gradient /= counts;
      if (!adam) {
        first = 0.9 * first + kRate * one_.local_steps * gradient;
        if (one_.local_steps > 1 || one_.rule.find("0.9") == std::string::npos)
          first = kRate * one_.local_steps * gradient;
        change -= first;
        continue;
      }
      const double t = static_cast<double>(i) + 1;
      first = 0.9 * first + 0.1 * gradient;
      second = 0.999 * second + 0.001 * gradient * gradient;
      change -= kRate * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)) * first /
                (std::sqrt(second) + 1e-8);
    }
    return change;
  }

  // Returns, for each param, whose gradients each iteration may have counted, a bit for each
  // worker; empty: no history explains the param.
  std::vector<std::vector<int>> explain(double change) const {
    std::vector<std::vector<int>> found;
    const int everybody = (1 << one_.workers) - 1;
    std::vector<int> counted(static_cast<std::size_t>(one_.iterations), everybody);
    const auto extend = [&](const auto& self, std::size_t from, int workers) -> void {
      const auto explains = [&] {
        return std::abs(change_of(counted) - change) < 1e-5 * (1 + std::abs(change));
      };
      if (explains()) found.push_back(counted);
      const std::vector<int> all = counted;
      for (unsigned lost = 1; lost < 1u << all.size() && loses_updates(); ++lost) {
        for (std::size_t i = 0; i < all.size(); ++i) counted[i] = lost >> i & 1 ? 0 : all[i];
        if (explains()) found.push_back(counted);
      }
      counted = all;
      for (int lost = one_.workers - one_.losses; lost < one_.workers; ++lost)
        for (std::size_t at = from; at < counted.size() && (workers >> lost & 1) == 1; ++at) {
          const std::vector<int> before = counted;
          const int rest = workers & ~(1 << lost);
          std::fill(counted.begin() + static_cast<std::ptrdiff_t>(at), counted.end(), rest);
          self(self, at, rest);
          counted = before;
        }
    };
    extend(extend, 0, everybody);
    return found;
  }

  // Returns whether updates may be lost with the only server: those until all know of the loss.
  bool loses_updates() const {
    return one_.with_servers && one_.exchange.find("TABLE") != std::string::npos;
  }

  void fail(const std::string& words) {
    if (run_.wrong.empty()) run_.wrong = words;
  }

  void check() {
    const Worker& first = **std::ranges::find(workers_, false, &Worker::is_lost);
    for (int w = 0; w < one_.workers; ++w) {
      const Worker& worker = *workers_[static_cast<std::size_t>(w)];
      if (worker.is_lost) continue;
      if (!worker.outcome.ok()) {
        // Only the chief and the only server, which were one process, had the params.
        const std::string& why = worker.outcome.error().message;
        const bool was_read = why.find("was never read from server") == why.npos;
        return was_read || !one_.with_servers ? fail(str("worker ", w, ": ", why)) : void();
      }
      if (worker.last != first.last)
        fail(str("worker ", w, " has other params than worker ", first.number));
      for (std::size_t i = 1; i < worker.stepped.size(); ++i)
        run_.was_dropped = run_.was_dropped ||
                           worker.stepped[i] < worker.stepped[i - 1] + 1 - (one_.local_steps > 1);
    }
    if (!first.first.empty()) check_params(first);
  }

  // The gradient of a weight is the sum over the batch of inputs times the loss weight: the input
  // itself for a batch of 2 and a weight of 0.5; that of a bias is 1.
  void check_params(const Worker& chief) {
    std::vector<std::vector<std::vector<int>>> all;
    for (std::size_t p = 0; p < chief.last.size(); p += 2) {
      // The rows of a param that goes by servers may differ.
      std::optional<double> last;
      for (std::size_t i = 0; i < chief.last[p].size(); ++i) {
        const double change = double{chief.last[p][i]} - chief.first[p][i];
        if (last && std::abs(change - *last) < 1e-5 * (1 + std::abs(change))) continue;
        last = change;
        if (all.emplace_back(explain(change)).empty())
          return fail(str("param ", p, ", number ", i, ", changed by ", change,
                          ", which no history of updates explains"));
      }
    }
    if (loses_updates()) return;
    run_.was_mixed = !fit(all, 0);
    if (!fit(all, one_.losses))
      fail("layers count a lost worker up to iterations that are too far from each other");
  }

  // Returns whether histories of all params differ in so many iterations, or fewer.
  static bool fit(const std::vector<std::vector<std::vector<int>>>& all, int most) {
    for (const std::vector<int>& low : all[0])
      for (const auto& others : all)
        for (const std::vector<int>& high : others) {
          int differ = 0;
          for (std::size_t i = 0; i < low.size(); ++i)
            differ += std::popcount(static_cast<unsigned>(low[i] ^ high[i]));
          const auto lies_between = [&](const std::vector<int>& one) {
            for (std::size_t i = 0; i < one.size(); ++i)
              if ((one[i] & ~(low[i] | high[i])) != 0 || (low[i] & high[i] & ~one[i]) != 0)
                return false;
            return true;
          };
          if (differ <= most && std::ranges::all_of(all, [&](const auto& of) {
                return std::ranges::any_of(of, lies_between);
              }))
            return true;
        }
    return false;
  }

  const LossyCase one_;
  const parallel::JobSpec spec_;
  Random random_;
  int slow_ = 0;
  simulate::SimulatedJob job_;
  simulate::ComputeSlots slots_;
  std::vector<std::unique_ptr<Worker>> workers_;
  LossyRun run_;
};

}  // namespace

LossyRun run_lossy(const LossyCase& one) { return LossyJob(one).run(); }

}  // namespace shoal::test
