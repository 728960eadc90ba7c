#include "support/coordinator_rig.h"

#include <bit>
#include <utility>

#include "shoal/base/bytes.h"

namespace shoal::test {

using table::Topic;

namespace {

struct InWords {
  std::string operator()(const table::Refuse& refuse) const {
    return str("refuse ", static_cast<int>(refuse.code), ": ", refuse.reason);
  }
  std::string operator()(const table::NormTotal& total) const {
    return str("total ", total.clock, ": ", total.squares);
  }
  std::string operator()(const table::Answer& answer) const {
    if (answer.topic == Topic::kBegin) {
      const table::Start start = table::decode<table::Start>(answer.body).value();
      return str(
          "begin ", answer.clock, start.over ? " over" : str(" with ", start.steps, " steps"),
          !start.over && start.at > 0 ? str(" as ", start.at) : "", start.reread ? ", reread" : "");
    }
    if (answer.topic == Topic::kJudge) {
      const char* const names[] = {"push", "drop", "another"};
      const auto body = table::decode<table::VerdictBody>(answer.body).value();
      return str("judge ", answer.clock, ": ", names[static_cast<int>(body.verdict)]);
    }
    const bool text = answer.topic == Topic::kBarrier || answer.topic == Topic::kShare ||
                      answer.topic == Topic::kDone;
    return str("answer ", static_cast<int>(answer.topic), " at ", answer.clock,
               text && !answer.body.empty() ? " '" + answer.body + "'" : "");
  }
  std::string operator()(const table::Directive& directive) const {
    const std::string want = str(static_cast<int>(directive.want));
    switch (directive.kind) {
      case table::DirectiveKind::kAbort:
        return str("abort ", static_cast<int>(directive.code), ": ", directive.text);
      case table::DirectiveKind::kPause: return "pause for " + want;
      case table::DirectiveKind::kAgreed: return str("agreed on ", want, " at ", directive.clock);
      case table::DirectiveKind::kFinished: return "finished";
      case table::DirectiveKind::kLeft: return str("left ", directive.clock);
      case table::DirectiveKind::kLost: return str("lost ", directive.clock, ": ", directive.text);
    }
    return "unknown directive";
  }
  template <class Other>
  std::string operator()(const Other&) const {
    return "something else";
  }
};

}  // namespace

CoordinatorRig::CoordinatorRig(const std::vector<Process>& processes, const std::string& scheme)
    : CoordinatorRig(static_cast<std::uint32_t>(processes.size()), 7, scheme) {
  for (std::uint32_t rank = 0; rank < processes.size(); ++rank)
    EXPECT_TRUE(join(rank, processes[rank]).ok());
  forget();
}

Status CoordinatorRig::say(std::uint32_t rank, const table::Message& message) {
  std::vector<table::Dispatch> out;
  Status status = coordinator.handle(rank, message, now, out);
  deliver(out);
  succeed();
  return status;
}

void CoordinatorRig::succeed() {
  const std::string state = coordinator.save();
  std::destroy_at(&coordinator);
  std::construct_at(&coordinator, options);
  const Status status = coordinator.load(state);
  ASSERT_TRUE(status.ok()) << status.error().message;
  ASSERT_EQ(coordinator.save(), state);
}

void CoordinatorRig::all_ask(const std::vector<std::uint32_t>& ranks, Topic topic,
                             table::Clock clock, const std::string& body,
                             std::source_location where) {
  const testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()), "all_ask");
  for (const std::uint32_t rank : ranks) {
    const Status status = ask(rank, topic, clock, body);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
}

Status CoordinatorRig::begin(std::uint32_t rank, table::Clock clock, table::Clock until) {
  return ask(rank, Topic::kBegin, clock,
             table::encode(table::BeginBody{.last = {}, .until = until}));
}
Status CoordinatorRig::judge(std::uint32_t rank, table::Clock clock, std::uint32_t steps) {
  return ask(rank, Topic::kJudge, clock,
             table::encode(table::TaskReport{.steps = steps, .seconds = 1}));
}

table::RosterBody CoordinatorRig::regroup(
    const std::vector<std::pair<std::uint32_t, table::SegmentBody>>& ends,
    table::Clock generation) {
  for (const auto& [rank, end] : ends)
    all_ask({rank}, Topic::kRegroup, generation, table::encode(end));
  for (const table::Message& message : told[ends[0].first])
    if (const auto* answer = std::get_if<table::Answer>(&message);
        answer && answer->topic == Topic::kRegroup && answer->clock == generation)
      return table::decode<table::RosterBody>(answer->body).value();
  ADD_FAILURE() << "no roster";
  return {};
}

std::vector<std::vector<std::string>> CoordinatorRig::take_all(std::uint32_t processes) {
  std::vector<std::vector<std::string>> all;
  for (std::uint32_t rank = 0; rank < processes; ++rank) all.push_back(take(rank));
  return all;
}

std::vector<std::string> CoordinatorRig::hears(std::uint32_t rank, const Status& status) {
  EXPECT_TRUE(status.ok()) << status.error().message;
  return take(rank);
}

void CoordinatorRig::forget() {
  for (auto& messages : told) messages.clear();
}

Status CoordinatorRig::join(std::uint32_t rank, const Process& process) {
  table::JoinBody body{.rank = rank,
                       .worker = process.worker,
                       .server = process.server,
                       .host = process.host,
                       .address = process.address,
                       .configuration = process.configuration};
  if (body.host.empty()) body.host = std::string(1, static_cast<char>('a' + rank));
  if (body.address.empty()) body.address = str("10.0.0.", rank + 1, ":29600");
  return ask(rank, Topic::kJoin, process.incarnation == 0 ? 1000 + rank : process.incarnation,
             table::encode(body));
}

void CoordinatorRig::lose(std::uint32_t rank, Code code, const std::string& why) {
  std::vector<table::Dispatch> out;
  coordinator.lost(rank, code, why, now, out);
  deliver(out);
  succeed();
}

std::vector<std::string> CoordinatorRig::take(std::uint32_t rank) {
  std::vector<std::string> words;
  for (const table::Message& message : std::exchange(told[rank], {}))
    words.push_back(std::visit(InWords(), message));
  return words;
}

void CoordinatorRig::deliver(const std::vector<table::Dispatch>& out) {
  for (const table::Dispatch& dispatch : out) told.at(dispatch.rank).push_back(dispatch.message);
}

std::string numbers(const std::vector<double>& values) {
  std::string bytes;
  for (const double value : values) put_le(bytes, std::bit_cast<std::uint64_t>(value));
  return bytes;
}

std::vector<double> numbers_of(const std::string& bytes) {
  std::vector<double> values;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8)
    values.push_back(std::bit_cast<double>(get_le<std::uint64_t>(bytes.substr(at, 8))));
  return values;
}

}  // namespace shoal::test
