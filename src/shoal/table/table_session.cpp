#include "shoal/table/table_session.h"

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

Status TableSession::begin(const Plan& plan, int worker) {
  if (const std::string wrong = validate(plan); !wrong.empty()) return wrong_plan(wrong);
  const auto scheme = maker_(plan.scheme);
  if (!scheme.ok()) return scheme.error();
  generation_ = plan.generation;
  first_ = first_unpushed_ = plan.start_of(worker);
  paced_ = scheme.value()->task().paced;
  bounded_ = scheme.value()->bounded();
  waited_for_ = scheme.value()->waits_for_others();
  return {};
}

Status TableSession::create(const Plan& plan, bool compares, Table& table,
                            const TableActions& actions) {
  if (Status status = begin(plan, table.worker()); !status.ok()) return status;
  if (Status status = actions.settle(); !status.ok()) return status;
  const bool is_chief = table.worker() == 0;
  const std::string mine = compares ? describe(plan) : "";
  const auto chiefs =
      table.ask(Topic::kBarrier, all_drained(plan.generation), is_chief ? mine : "");
  if (!chiefs.ok()) return chiefs.error();
  if (compares && chiefs.value() != mine)
    return wrong_plan(
        difference(str("worker ", table.worker()), mine, "worker 0", chiefs.value(), "plans"));
  actions.open();
  if (is_chief) {
    // before the last round: so before any worker asks for a task
    table.tell(Topic::kScheme, plan.generation, plan.scheme);
    if (Status status = actions.install(); !status.ok()) return status;
  }
  const auto exist = table.ask(Topic::kBarrier, rows_exist(plan.generation), "");
  return exist.ok() ? Status() : Status(exist.error());
}

std::optional<Retire> TableSession::retires_before(const Ask& question) const {
  const bool leaves = question.topic == Topic::kDone || question.topic == Topic::kLeave;
  bool meets = false;
  if (question.topic == Topic::kMeet)
    meets = waited_for_ || decode_meeting(question.body) != Meeting::kPause;
  if (!generation_ || !(leaves || meets)) return std::nullopt;
  return Retire{.clock = first_unpushed_, .generation = *generation_};
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

}  // namespace shoal::table
