#include "shoal/table/table_session.h"

#include <utility>

#include "shoal/base/sha256.h"
#include "shoal/table/coordinator/difference.h"

namespace shoal::table {
namespace {

// A plan line by line, so that a difference can be shown.
std::string describe(const Plan& plan) {
  std::string rows;
  std::size_t floats = 0;
  for (const Row& row : plan.rows) {
    floats += row.length;
    rows += str(row.length, ' ', row.priority, ' ', row.server, ' ', row.learns, ' ', row.lr_mult,
                ' ', row.decay_mult, '\n');
  }
  Sha256 hash;
  hash.update(rows);
  const optim::RuleOptions& rule = plan.rule;
  return str(
      "generation: ", plan.generation, "\nworkers: ", plan.workers, "\nservers: ", plan.servers,
      "\nstart: ", plan.start, "\nrule: ", optim::name_of(rule.rule), "\nmomentum: ", rule.momentum,
      "\nmomentum2: ", rule.momentum2, "\nrms_decay: ", rule.rms_decay, "\ndelta: ", rule.delta,
      "\nregularization: ", plan.regularization == optim::Regularization::kL1 ? "L1" : "L2",
      "\nweight_decay: ", plan.weight_decay, "\nclip: ", plan.clip, "\niter_size: ", plan.iter_size,
      "\nscheme: ", plan.scheme, "\nrows: ", plan.rows.size(), "\nnumbers: ", floats,
      "\nrows' digest: ", hash.finish(), "\n");
}

Error wrong_plan(const std::string& words) {
  return {Code::kConfig,
          str(words, ": do all processes train the same net, with the same solver and flags?")};
}

}  // namespace

Status TableSession::begin(const Plan& plan, int worker, bool compares) {
  if (const std::string wrong = validate(plan); !wrong.empty()) return wrong_plan(wrong);
  const auto scheme = maker_(plan.scheme);
  if (!scheme.ok()) return scheme.error();
  worker_ = worker;
  description_ = compares ? describe(plan) : "";
  generation_ = plan.generation;
  first_ = plan.start_of(worker);
  paced_ = scheme.value()->task().paced;
  bounded_ = scheme.value()->bounded();
  waited_for_ = scheme.value()->waits_for_others();
  const auto barrier = [](Clock clock, std::string body) {
    return Step{Do::kAsk, {.topic = Topic::kBarrier, .clock = clock, .body = std::move(body)}};
  };
  steps_ = {{Do::kSettle}, barrier(all_drained(plan.generation), worker == 0 ? description_ : "")};
  steps_.push_back({Do::kOpen});
  if (worker == 0) {
    // before the last round: so before any worker asks for a task
    steps_.push_back(
        {Do::kTell, {.topic = Topic::kScheme, .clock = plan.generation, .body = plan.scheme}});
    steps_.push_back({Do::kInstall});
  }
  steps_.push_back(barrier(rows_exist(plan.generation), ""));
  return {};
}

TableSession::Step TableSession::next() {
  if (steps_.empty()) return {};
  Step step = std::move(steps_.front());
  steps_.pop_front();
  if (step.what == Do::kOpen) {
    begun_ = true;
    first_unpushed_ = first_;
  }
  return step;
}

Status TableSession::answered(std::string_view answer) {
  const std::string mine = std::exchange(description_, {});
  if (mine.empty() || answer == mine) return {};
  steps_.clear();
  return wrong_plan(difference(str("worker ", worker_), mine, "worker 0", answer, "plans"));
}

std::optional<Retire> TableSession::retires_before(const Ask& question) const {
  const bool leaves = question.topic == Topic::kDone || question.topic == Topic::kLeave;
  bool meets = false;
  if (question.topic == Topic::kMeet)
    meets = waited_for_ || decode_meeting(question.body) != Meeting::kPause;
  if (!begun_ || !(leaves || meets)) return std::nullopt;
  return Retire{.clock = first_unpushed_, .generation = generation_};
}

std::vector<std::vector<Message>> initial_of(const Plan& plan, const Table::Source& initial) {
  std::vector<std::vector<Message>> messages(plan.servers, {PlanMessage{plan}});
  constexpr Part kParts[] = {Part::kHistory, Part::kHistory2};
  for (RowId row = 0; row < plan.rows.size(); ++row) {
    std::vector<Message>& to = messages[plan.rows[row].server];
    const auto add = [&](Part part, std::span<const float> numbers) {
      to.push_back(Init{.row = row,
                        .part = part,
                        .payload = as_payload({numbers}),
                        .generation = plan.generation});
    };
    for (int part = 0; part < optim::histories(plan.rule.rule); ++part)
      if (const auto numbers = initial(row, kParts[part]); !numbers.empty())
        add(kParts[part], numbers);
    add(Part::kWeights, initial(row, Part::kWeights));
  }
  return messages;
}

Status create(TableSession& session, const Plan& plan, bool compares, Table& table,
              const TableActions& actions) {
  if (Status status = session.begin(plan, table.worker(), compares); !status.ok()) return status;
  for (;;) {
    TableSession::Step step = session.next();
    Status status;
    switch (step.what) {
      case TableSession::Do::kSettle: status = actions.settle(); break;
      case TableSession::Do::kAsk: {
        const auto answer = table.ask(step.ask.topic, step.ask.clock, std::move(step.ask.body));
        status = answer.ok() ? session.answered(answer.value()) : answer.error();
        break;
      }
      case TableSession::Do::kTell:
        table.tell(step.ask.topic, step.ask.clock, std::move(step.ask.body));
        break;
      case TableSession::Do::kOpen: actions.open(); break;
      case TableSession::Do::kInstall: status = actions.install(); break;
      case TableSession::Do::kDone: return {};
    }
    if (!status.ok()) return status;
  }
}

}  // namespace shoal::table
