#include "shoal/table/table_session.h"

#include <numeric>

#include "shoal/base/sha256.h"
#include "shoal/base/try.h"
#include "shoal/table/coordinator/difference.h"
#include "shoal/table/coordinator/members.h"
#include "shoal/table/in_vain.h"

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

// Returns the losses that a plan bears.
TolerancesBody tolerances_of(const Plan& plan) {
  const bool learns = std::ranges::any_of(plan.rows, &Row::learns);
  return {.copies = learns ? plan.copies : std::uint8_t{0},
          .why_none = plan.why_none,
          .interrupts = has_messages(plan)};
}

// Returns whether a loss interrupts a wait for the answer. A process that ends takes part in
// nothing more, and a generation begins whoever is lost.
bool is_interrupted(Topic topic) {
  return topic != Topic::kBarrier && topic != Topic::kDone && topic != Topic::kLeave;
}

constexpr const char* kInVain = "this generation of the job has no chief";

Error interrupted() {
  return {Code::kInterrupted, "a process is lost, which others wait for in this iteration"};
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
  known_losses_ = 0;
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
  std::string begins;
  put_le(begins, start_.first);
  return ask(Topic::kBarrier, rows_exist(plan.generation), std::move(begins));
}

// Notes who is the chief of a generation that this worker has not seen before.
void TableSession::look_for_chief() {
  if (known_ == roster().generation) return;
  known_ = roster().generation;
  rows_exist_ = is_chief_lost_ = false;
  const auto& all = roster().processes;
  const auto chief = std::ranges::find(all, 0, &RosterBody::Process::worker);
  chief_ = chief == all.end() ? kNoRank : chief->rank;
  if (chief != all.end() && is_gone(chief->rank)) is_chief_lost_ = true;
}

Result<bool> TableSession::regroup(const SegmentBody& end) {
  enter();
  TRY(settle());
  const Result<std::string> answer = ask(Topic::kRegroup, roster().generation + 1, encode(end));
  TRY(answer);
  Result<RosterBody> next = decode<RosterBody>(answer.value());
  TRY(next);
  know(std::move(next).value());
  set_losses(0);
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
  const Status status = wait(all);
  return status.ok() || !is_interruption(status.error()) ? status : Status();
}

Result<std::string> TableSession::ask(Topic topic, Clock clock, std::string body) {
  enter();
  TRY(this->status());
  look_for_chief();
  const bool needs_chief = topic != Topic::kRegroup;
  const auto ends_early = [&] {
    return is_interrupted(topic) && !is_in_vain() && !interruption().ok();
  };
  if (needs_chief && is_in_vain()) return began_in_vain();
  if (ends_early()) return interrupted();
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
    return (answer = heard.take_answer(topic, clock, part)).has_value() ||
           (needs_chief && is_in_vain()) || ends_early();
  };
  const Status status = wait_to_hear(answered, "for the other workers for", "");
  TRY(status);
  if (!answer) return needs_chief && is_in_vain() ? began_in_vain() : interrupted();
  if (topic == Topic::kBarrier && clock == rows_exist(*known_)) rows_exist_ = true;
  return *std::move(answer);
}

Status TableSession::interruption() const {
  return losses_ <= known_losses_ ? Status() : Status(interrupted());
}

Result<Table::Reunion> TableSession::reunite(std::string mine) {
  enter();
  Reunion reunion{.losses = losses_, .said = {}};
  known_losses_ = reunion.losses;
  rows_ = 0;
  forget_waits();
  const Clock clock = (Clock{roster().generation} << 32) + reunion.losses;
  const Result<std::string> answer = ask(Topic::kReunite, clock, std::move(mine));
  TRY(answer);
  for (std::string_view rest = answer.value(); !rest.empty();) {
    const std::size_t length = rest.size() < 4 ? rest.size() : get_le<std::uint32_t>(rest);
    rest.remove_prefix(std::min<std::size_t>(4, rest.size()));
    if (rest.size() < length)
      return broken("the coordinator's answer to a reunite is cut: do all processes run the same ",
                    "program?");
    reunion.said.emplace_back(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  return reunion;
}

Result<Want> TableSession::end_of_generation() {
  enter();
  std::optional<Want> want;
  const auto is_agreed = [&](PendingAnswers& heard) {
    return (want = heard.take_end()).has_value() || (!is_in_vain() && !interruption().ok());
  };
  const Status status = wait_to_hear(is_agreed, "for", ", for the end of a generation with a loss");
  TRY(status);
  if (!want) return interrupted();
  return *want;
}

Result<Want> TableSession::start(Clock clock) {
  enter();
  std::optional<Want> want;
  const auto may_start = [&](PendingAnswers& heard) {
    return !interruption().ok() || (want = heard.start(clock)).has_value();
  };
  const Status status = wait_to_hear(may_start, "for", ", for all workers to agree on a pause");
  TRY(status);
  if (!want) return interrupted();
  return *want;
}

Error began_in_vain() {
  return {Code::kPeer, str(kInVain, ": it was lost before it had given the servers the params")};
}

bool is_in_vain(const Error& error) { return error.message.starts_with(kInVain); }

std::vector<std::vector<Message>> initial_of(const Plan& plan, const Table::Source& initial) {
  std::vector<std::vector<Message>> messages(plan.servers, {PlanMessage{plan}});
  std::vector<Part> parts = {Part::kHistory, Part::kHistory2};
  parts.resize(static_cast<std::size_t>(optim::histories(plan.rule.rule)));
  parts.insert(parts.end(), {Part::kLeftOut, Part::kWeights});
  for (RowId row = 0; row < plan.rows.size(); ++row) {
    if (plan.rows[row].writer != kEveryWorker) continue;
    const int server = plan.rows[row].server;
    const std::uint8_t pull = plan.rows[row].pull_codec;
    const bool leaves_out = pull > 0 && plan.codecs[pull - 1].feedback;
    for (const Part part : parts) {
      if (part == Part::kLeftOut && !leaves_out) continue;
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
