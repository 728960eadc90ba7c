#include "shoal/table/table_session.h"

#include <numeric>

#include "shoal/base/sha256.h"
#include "shoal/base/try.h"
#include "shoal/table/coordinator/difference.h"
#include "shoal/table/coordinator/members.h"

namespace shoal::table {
namespace {

// Describes a plan line by line, so that a difference can be shown.
std::string describe(const Plan& plan) {
  std::string rows;
  std::size_t floats = 0;
  for (const Row& row : plan.rows) {
    floats += row.length;
    rows += str(row.length, ' ', row.priority, ' ', row.server, ' ', row.learns, ' ', row.lr_mult,
                ' ', row.decay_mult, ' ', row.writer, ' ', row.reader, '\n');
  }
  Sha256 hash;
  hash.update(rows);
  const optim::RuleOptions& rule = plan.rule;
  return str(
      "generation: ", plan.generation, "\nworkers: ", plan.workers, "\nservers: ", plan.servers,
      "\ncopies: ", int{plan.copies}, "\nstart: ", plan.start,
      "\nrule: ", optim::name_of(rule.rule), "\nmomentum: ", rule.momentum,
      "\nmomentum2: ", rule.momentum2, "\nrms_decay: ", rule.rms_decay, "\ndelta: ", rule.delta,
      "\nregularization: ", plan.regularization == optim::Regularization::kL1 ? "L1" : "L2",
      "\nweight_decay: ", plan.weight_decay, "\nclip: ", plan.clip, "\niter_size: ", plan.iter_size,
      "\nscheme: ", plan.scheme.words(), "\nrows: ", plan.rows.size(), "\nnumbers: ", floats,
      "\nrows' digest: ", hash.finish(), "\n");
}

// Returns the losses that a plan bears. What workers write for each other has no second copy.
TolerancesBody tolerances_of(const Plan& plan) {
  const bool written =
      std::ranges::any_of(plan.rows, [](const Row& row) { return row.writer != kEveryWorker; });
  return {.copies = plan.copies,
          .servers = plan.clip < 0,
          .why_none =
              written ? "its workers sum gradients, or exchange factors, among themselves" : ""};
}

Error wrong_plan(const std::string& words) {
  return {Code::kConfig,
          str(words, ": do all processes train the same net, with the same solver and flags?")};
}

}  // namespace

Status TableSession::begin(const Plan& plan) {
  if (const std::string wrong = validate(plan); !wrong.empty()) return wrong_plan(wrong);
  const auto scheme = maker_(plan.scheme);
  TRY(scheme);
  start_ = {plan.start_of(worker()), scheme.value()->task.paced, scheme.value()->bounded()};
  retire_ = Retire{start_.first, plan.generation};
  waited_for_ = scheme.value()->waits_for_others;
  return {};
}

Status TableSession::create(const Plan& plan, const Source& initial,
                            const Destinations& destinations) {
  TRY(begin(plan));
  TRY(settle());
  const bool is_chief = worker() == 0;
  const std::string mine = compares_ ? describe(plan) : "";
  const auto chiefs = ask(Topic::kBarrier, all_drained(plan.generation), is_chief ? mine : "");
  TRY(chiefs);
  if (compares_ && chiefs.value() != mine)
    return wrong_plan(
        difference(str("worker ", worker()), mine, "worker 0", chiefs.value(), "plans"));
  open_rows(plan, destinations);
  if (is_chief) {
    // Sent before the last round, and so before any worker asks for a task.
    tell(Topic::kScheme, plan.generation, plan.scheme.words());
    tell(Topic::kTolerances, plan.generation, encode(tolerances_of(plan)));
    TRY(install(plan, initial, destinations));
  }
  return ask(Topic::kBarrier, rows_exist(plan.generation), "");
}

Result<bool> TableSession::regroup(const SegmentBody& end) {
  enter();
  TRY(settle());
  const Result<std::string> answer = ask(Topic::kRegroup, roster().generation + 1, encode(end));
  TRY(answer);
  Result<RosterBody> next = decode<RosterBody>(answer.value());
  TRY(next);
  know(std::move(next).value());
  return true;
}

Status TableSession::finish(Clock clock) {
  enter();
  TRY(settle());
  end(clock);
  return ask(Topic::kDone, clock, {});
}

Status TableSession::settle() {
  std::vector<RowId> all(rows_);
  std::iota(all.begin(), all.end(), RowId{0});
  return wait(all);
}

Result<std::string> TableSession::ask(Topic topic, Clock clock, std::string body) {
  enter();
  TRY(this->status());
  if (body.size() > kMaxBodyBytes)
    return Error{Code::kInternal, str(name_of(topic), " ", clock, " has a body of ", body.size(),
                                      " bytes; at most ", kMaxBodyBytes, " can be sent")};
  // The worker pushes nothing more, or not until it is back. No other one is to wait for its
  // pushes.
  const bool ends =
      topic == Topic::kDone || topic == Topic::kLeave ||
      (topic == Topic::kMeet && (waited_for_ || decode_meeting(body) != Meeting::kPause));
  if (retire_ && ends) retire(*retire_);
  const std::uint32_t part = part_of(topic, body);
  say({.topic = topic, .clock = clock, .body = std::move(body)});
  std::optional<std::string> answer;
  const auto answered = [&](PendingAnswers& heard) {
    return (answer = heard.take_answer(topic, clock, part)).has_value();
  };
  const Status status = wait_to_hear(answered, "for the other workers for", "");
  TRY(status);
  return *std::move(answer);
}

Result<Want> TableSession::start(Clock clock) {
  enter();
  std::optional<Want> want;
  const auto may_start = [&](PendingAnswers& heard) {
    return (want = heard.start(clock)).has_value();
  };
  const Status status = wait_to_hear(may_start, "for", ", for all workers to agree on a pause");
  TRY(status);
  return *want;
}

std::vector<std::vector<Message>> initial_of(const Plan& plan, const Table::Source& initial) {
  std::vector<std::vector<Message>> messages(plan.servers, {PlanMessage{plan}});
  const int parts = 1 + optim::histories(plan.rule.rule);
  for (RowId row = 0; row < plan.rows.size(); ++row) {
    if (plan.rows[row].writer != kEveryWorker) continue;
    const int server = plan.rows[row].server;
    for (int number = 1; number <= parts; ++number) {
      const auto part = static_cast<Part>(number % parts);  // weights, which are 0, come last
      const std::span<const float> numbers = initial(row, part);
      if (part != Part::kWeights && numbers.empty()) continue;
      const Init init{.row = row,
                      .part = part,
                      .payload = as_payload({numbers}),
                      .generation = plan.generation};
      messages[server].push_back(init);
      if (plan.is_copied(server)) messages[plan.copy_of(server)].push_back(init);
    }
  }
  return messages;
}

}  // namespace shoal::table
