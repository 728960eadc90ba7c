// The fields of each message, in their order on the wire: docs/protocol.md. One list for both
// directions: `io` is a Writer or a Reader.
#pragma once

#include <concepts>

#include "shoal/table/messages.h"
#include "shoal/table/wire/fields.h"

namespace shoal::table::wire {

template <class M, class T>
concept Is = std::same_as<std::remove_const_t<M>, T>;

inline constexpr auto kPurposes = {Purpose::kRows, Purpose::kCoordination};
inline constexpr auto kParts = {Part::kWeights, Part::kHistory, Part::kHistory2};
inline constexpr auto kContributions = {ContributionKind::kGradient, ContributionKind::kDelta,
                                        ContributionKind::kWeights};
inline constexpr auto kWants = {Want::kNothing, Want::kSnapshot, Want::kStop, Want::kRequeue,
                                Want::kRegroup};
inline constexpr auto kDirectives = {DirectiveKind::kAbort, DirectiveKind::kPause,
                                     DirectiveKind::kAgreed, DirectiveKind::kFinished,
                                     DirectiveKind::kLeft};
inline constexpr auto kCodes = {Code::kInternal, Code::kUsage,  Code::kConfig,    Code::kData,
                                Code::kDevice,   Code::kPeer,   Code::kNonFinite, Code::kTimeout,
                                Code::kSnapshot, Code::kRequeue};
inline constexpr auto kTopics = {
    Topic::kJoin,  Topic::kBarrier, Topic::kSum,  Topic::kGather,  Topic::kShare, Topic::kOutputs,
    Topic::kPause, Topic::kPaused,  Topic::kDone, Topic::kReport,  Topic::kHeard, Topic::kBegin,
    Topic::kJudge, Topic::kScheme,  Topic::kMeet, Topic::kRegroup, Topic::kLeave, Topic::kEnroll};
// These two have their numbers from elsewhere, and are on the wire now.
inline constexpr auto kRules = {optim::Rule::kSgd,      optim::Rule::kNesterov,
                                optim::Rule::kAdaGrad,  optim::Rule::kRmsProp,
                                optim::Rule::kAdaDelta, optim::Rule::kAdam};
inline constexpr auto kRegularizations = {optim::Regularization::kL2, optim::Regularization::kL1};
static_assert(static_cast<int>(optim::Rule::kAdam) == 5 &&
              static_cast<int>(optim::Regularization::kL1) == 1);

inline constexpr std::size_t kMaxHostBytes = 1024, kMaxConfigurationBytes = 8u << 20,
                             kMaxProcesses = 1u << 16;
// of the lists' items
inline constexpr std::size_t kRowBytes = 21, kRankBytes = 4, kClockBytes = 8, kNumberBytes = 8,
                             kLeastProcessBytes = 44;
inline constexpr std::size_t kMaxWorkers = 0xffff, kMaxServers = 0xffff;

template <class Io, class M>
requires Is<M, std::uint32_t> || Is<M, Clock> || Is<M, double>
void fields(Io& io, M& m) { io(m); }

template <class Io, Is<Challenge> M>
void fields(Io& io, M& m) {
  io(m.lowest, m.highest, m.nonce);
}
template <class Io, Is<Hello> M>
void fields(Io& io, M& m) {
  io(m.lowest, m.highest);
  io.one_of(m.purpose, kPurposes, "purpose");
  io(m.rank, m.incarnation, m.configuration, m.nonce, m.proof);
}
template <class Io, Is<Welcome> M>
void fields(Io& io, M& m) {
  io(m.version, m.rank, m.incarnation, m.proof);
}
template <class Io, Is<Refuse> M>
void fields(Io& io, M& m) {
  io.one_of(m.code, kCodes, "code");
  io.text(m.reason, kMaxReasonBytes, "reason");
}
template <class Io, Is<Ping> M>
void fields(Io& io, M& m) {
  io(m.clock);
}
template <class Io, Is<Bye> M>
void fields(Io&, M&) {}

template <class Io, Is<Row> M>
void fields(Io& io, M& m) {
  io(m.length, m.priority, m.server, m.learns, m.lr_mult, m.decay_mult);
  io.any_of(m.push_codec);
  io.any_of(m.pull_codec);
}
template <class Io, Is<PlanMessage> M>
void fields(Io& io, M& m) {
  auto& plan = m.plan;
  io(plan.workers, plan.servers, plan.start);
  io.one_of(plan.rule.rule, kRules, "rule");
  io(plan.rule.momentum, plan.rule.momentum2, plan.rule.rms_decay, plan.rule.delta);
  io.one_of(plan.regularization, kRegularizations, "regularization");
  io(plan.weight_decay, plan.clip, plan.iter_size);
  io.bytes(plan.scheme, kMaxSchemeBytes, "scheme");
  io.list(plan.rows, kRowBytes, kMaxRows, "rows");
  io(plan.generation);
  io.list(plan.ranks, kRankBytes, kMaxWorkers, "ranks");
  io.list(plan.clocks, kClockBytes, kMaxWorkers, "clocks");
  io.list(plan.server_ranks, kRankBytes, kMaxServers, "ranks of servers");
}
template <class Io, Is<Init> M>
void fields(Io& io, M& m) {
  io(m.row);
  io.one_of(m.part, kParts, "part");
  io(m.generation);
  io.any_of(m.payload.codec);
}
template <class Io, Is<Ready> M>
void fields(Io& io, M& m) {
  io(m.rows, m.generation);
}
template <class Io, Is<Push> M>
void fields(Io& io, M& m) {
  io(m.row, m.clock, m.base);
  io.one_of(m.kind, kContributions, "contribution");
  io(m.weight, m.rate, m.generation);
  io.any_of(m.payload.codec);
}
template <class Io, Is<Get> M>
void fields(Io& io, M& m) {
  io(m.row, m.clock);
  io.one_of(m.part, kParts, "part");
  io(m.generation);
}
template <class Io, Is<RowMessage> M>
void fields(Io& io, M& m) {
  io(m.row, m.clock, m.version);
  io.one_of(m.part, kParts, "part");
  io(m.generation);
  io.any_of(m.payload.codec);
}
template <class Io, Is<NeedPush> M>
void fields(Io& io, M& m) {
  io(m.row, m.clock, m.generation);
}
template <class Io, Is<Retire> M>
void fields(Io& io, M& m) {
  io(m.clock, m.generation);
}
template <class Io, Is<Norm> M>
void fields(Io& io, M& m) {
  io(m.clock, m.server, m.squares, m.generation);
}
template <class Io, Is<NormTotal> M>
void fields(Io& io, M& m) {
  io(m.clock, m.squares, m.generation);
}
template <class Io, Is<Ask> M>
void fields(Io& io, M& m) {
  io.one_of(m.topic, kTopics, "topic");
  io(m.clock);
  io.bytes(m.body, kMaxBodyBytes, "body");
}
template <class Io, Is<Answer> M>
void fields(Io& io, M& m) {
  io.one_of(m.topic, kTopics, "topic");
  io(m.clock);
  io.bytes(m.body, kMaxBodyBytes, "body");
}
template <class Io, Is<Directive> M>
void fields(Io& io, M& m) {
  io.one_of(m.kind, kDirectives, "kind");
  io(m.clock);
  io.one_of(m.want, kWants, "want");
  io.one_of(m.code, kCodes, "code");
  io.text(m.text, kMaxReasonBytes, "text");
}

template <class Io, Is<JoinBody> M>
void fields(Io& io, M& m) {
  io(m.rank, m.worker, m.server);
  io.bytes(m.host, kMaxHostBytes, "host");
  io.bytes(m.address, kMaxHostBytes, "address");
  io.bytes(m.configuration, kMaxConfigurationBytes, "configuration");
}
template <class Io, Is<RosterBody::Process> M>
void fields(Io& io, M& m) {
  io(m.rank, m.worker, m.server);
  io.bytes(m.host, kMaxHostBytes, "host");
  io.bytes(m.address, kMaxHostBytes, "address");
  io(m.clock, m.weight, m.bandwidth);
}
template <class Io, Is<RosterBody> M>
void fields(Io& io, M& m) {
  io(m.seed);
  io.list(m.processes, kLeastProcessBytes, kMaxProcesses, "processes");
  io(m.generation);
  io.bytes(m.scheme, kMaxSchemeBytes, "scheme");
  io.text(m.why, kMaxReasonBytes, "reason");
  io(m.measures);
}
template <class Io, Is<SegmentBody> M>
void fields(Io& io, M& m) {
  io(m.clock, m.phase_end);
  io.bytes(m.next_scheme, kMaxSchemeBytes, "scheme");
  io.bytes(m.scheme, kMaxSchemeBytes, "scheme");
  io.list(m.weights, kNumberBytes, kMaxWorkers, "weights");
  io.list(m.bandwidths, kNumberBytes, kMaxServers, "bandwidths");
  io(m.measures);
}

template <class Io, Is<LeaveBody> M>
void fields(Io& io, M& m) {
  io(m.at_end);
  io.bytes(m.state, kMaxBodyBytes, "state");
}

}  // namespace shoal::table::wire
