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
    }
    return "unknown directive";
  }
  template <class Other>
  std::string operator()(const Other&) const {
    return "something else";
  }
};

}  // namespace

CoordinatorRig::CoordinatorRig(const std::vector<Process>& processes)
    : CoordinatorRig(static_cast<std::uint32_t>(processes.size())) {
  for (std::uint32_t rank = 0; rank < processes.size(); ++rank)
    (void)join(rank, processes[rank]).ok();
  for (auto& messages : told) messages.clear();
}

Status CoordinatorRig::say(std::uint32_t rank, const table::Message& message) {
  std::vector<table::Dispatch> out;
  Status status = coordinator.handle(rank, message, now, out);
  deliver(out);
  return status;
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
  coordinator.lost(rank, code, why, out);
  deliver(out);
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
