// The fields of each message, in their order on the wire: docs/reference/protocol.md. One list for
// both directions: `io` is a Writer or a Reader.
#pragma once

#include <concepts>
#include <tuple>

#include "shoal/table/account.h"
#include "shoal/table/messages.h"
#include "shoal/table/pacer.h"
#include "shoal/table/wire/fields.h"

namespace shoal::table::wire {

template <class M, class... T>
concept Is = (std::same_as<std::remove_const_t<M>, T> || ...);

template <class Enum>
constexpr Range<Enum> range_of() {
  return std::get<Range<Enum>>(
      std::tuple(Range{"purpose", Purpose::kRows, Purpose::kStandby},
                 Range{"part", Part::kWeights, Part::kLeftOut},
                 Range{"contribution", ContributionKind::kGradient, ContributionKind::kWeights},
                 Range{"way to apply an update", Apply::kRule, Apply::kElastic},
                 Range{"want", Want::kNothing, Want::kRegroup},
                 Range{"kind", DirectiveKind::kAbort, DirectiveKind::kLost},
                 Range{"code", Code::kInternal, Code::kSnapshot, Code::kRequeue},
                 Range{"topic", Topic::kJoin, Topic::kRecord},
                 Range{"verdict", Verdict::kPush, Verdict::kAnother},
                 // The receiver knows which codecs a row has.
                 Range{"codec", CodecId{0}, CodecId{255}},
                 // These two rules have their numbers from elsewhere, and are on the wire now.
                 Range{"rule", optim::Rule::kSgd, optim::Rule::kAdam},
                 Range{"regularization", optim::Regularization::kL2, optim::Regularization::kL1}));
}
static_assert(static_cast<int>(optim::Rule::kAdam) == 5 &&
              static_cast<int>(optim::Regularization::kL1) == 1);

inline constexpr std::size_t kMaxHostBytes = 1024, kMaxConfigurationBytes = 8u << 20,
                             kMaxProcesses = 1u << 16;
// Bytes of the lists' items.
inline constexpr std::size_t kRowBytes = 29, kRankBytes = 4, kClockBytes = 8, kMergedBytes = 11;
inline constexpr std::size_t kMaxWorkers = 0xffff, kMaxServers = 0xffff;

void fields(auto& io, Is<std::uint32_t, Clock, double> auto& m) { io(m); }

void fields(auto& io, Is<Challenge> auto& m) { io(m.lowest, m.highest, m.nonce); }
void fields(auto& io, Is<Hello> auto& m) {
  io(m.lowest, m.highest, m.purpose, m.rank, m.incarnation, m.configuration, m.nonce, m.proof);
}
void fields(auto& io, Is<Claim> auto& m) { io(m.whom, m.key, m.signature); }
void fields(auto& io, Is<Welcome> auto& m) { io(m.version, m.rank, m.incarnation, m.proof); }
void fields(auto& io, Is<Refuse> auto& m) {
  io(m.code);
  io.text(m.reason, kMaxReasonBytes, "reason");
}
void fields(auto& io, Is<Ping> auto& m) { io(m.clock); }
void fields(auto&, Is<Bye> auto&) {}
void fields(auto& io, Is<Offer> auto& m) {
  io(m.key, m.bytes);
  io.bytes(m.name, kMaxNameBytes, "name");
}
void fields(auto& io, Is<Taken> auto& m) { io(m.payloads, m.done); }

void fields(auto& io, Is<Row> auto& m) {
  io(m.length, m.priority, m.server, m.learns, m.lr_mult, m.decay_mult, m.push_codec, m.pull_codec,
     m.writer, m.reader);
}
void fields(auto& io, Is<CodecSpec> auto& m) {
  io(m.id, m.amount, m.bits, m.stochastic, m.feedback, m.momentum, m.warm_up);
}
void fields(auto& io, Is<PlanMessage> auto& m) {
  auto& plan = *m.plan;
  io(plan.workers, plan.servers, plan.start, plan.rule.rule, plan.rule.momentum,
     plan.rule.momentum2, plan.rule.rms_decay, plan.rule.delta, plan.regularization,
     plan.weight_decay, plan.clip, plan.iter_size);
  io.scheme(plan.scheme);
  io.list(plan.rows, kMaxRows, "rows");
  io.list(plan.codecs, kMaxCodecs, "codecs");
  io(plan.generation);
  io.list(plan.ranks, kMaxWorkers, "ranks");
  io.list(plan.clocks, kMaxWorkers, "clocks");
  io.list(plan.server_ranks, kMaxServers, "ranks of servers");
  io(plan.copies);
}
void fields(auto& io, Is<Init> auto& m) { io(m.row, m.part, m.generation, m.payload.codec); }
void fields(auto& io, Is<Ready> auto& m) { io(m.rows, m.generation); }
void fields(auto& io, Is<Push> auto& m) {
  io(m.row, m.clock, m.base, m.kind, m.weight, m.rate, m.generation, m.payload.codec);
}
void fields(auto& io, Is<Get> auto& m) { io(m.row, m.clock, m.part, m.generation); }
void fields(auto& io, Is<RowMessage> auto& m) {
  io(m.row, m.clock, m.version, m.part, m.generation, m.payload.codec);
}
void fields(auto& io, Is<NeedPush> auto& m) { io(m.row, m.clock, m.generation); }
void fields(auto& io, Is<Retire> auto& m) { io(m.clock, m.generation); }
void fields(auto& io, Is<Norm> auto& m) { io(m.clock, m.server, m.squares, m.generation); }
void fields(auto& io, Is<NormTotal> auto& m) { io(m.clock, m.squares, m.generation); }
void fields(auto& io, Is<MergedPush> auto& m) { io(m.worker, m.clock, m.taken); }
void fields(auto& io, Is<Update> auto& m) {
  io(m.row, m.number, m.apply, m.scale, m.rate, m.generation, m.payload.codec);
  io.list(m.merged, kMaxCopiedWorkers, "pushes");
}
void fields(auto& io, Is<Copied> auto& m) { io(m.row, m.number, m.generation); }
void fields(auto& io, Is<Ask, Answer> auto& m) {
  io(m.topic, m.clock);
  io.bytes(m.body, kMaxBodyBytes, "body");
}
void fields(auto& io, Is<Directive> auto& m) {
  io(m.kind, m.clock, m.want, m.code);
  io.text(m.text, kMaxReasonBytes, "text");
}

void fields(auto& io, Is<JoinBody> auto& m) {
  io(m.rank, m.worker, m.server);
  io.bytes(m.host, kMaxHostBytes, "host");
  io.bytes(m.address, kMaxHostBytes, "address");
  io.bytes(m.configuration, kMaxConfigurationBytes, "configuration");
  io(m.key);
}
void fields(auto& io, Is<RosterBody::Process> auto& m) {
  io(m.rank, m.worker, m.server);
  io.bytes(m.host, kMaxHostBytes, "host");
  io.bytes(m.address, kMaxHostBytes, "address");
  io(m.clock, m.weight, m.bandwidth, m.key);
}
void fields(auto& io, Is<RosterBody> auto& m) {
  io(m.seed);
  io.list(m.processes, kMaxProcesses, "processes");
  io(m.generation);
  io.scheme(m.scheme);
  io.text(m.why, kMaxReasonBytes, "reason");
  io(m.measures);
}
void fields(auto& io, Is<SegmentBody> auto& m) {
  io(m.clock, m.phase_end);
  io.scheme(m.next_scheme);
  io.scheme(m.scheme);
  io.list(m.weights, kMaxWorkers, "weights");
  io.list(m.bandwidths, kMaxServers, "bandwidths");
  io(m.measures);
}

void fields(auto& io, Is<LeaveBody> auto& m) {
  io(m.at_end);
  io.bytes(m.state, kMaxBodyBytes, "state");
}
void fields(auto& io, Is<AccountBody::Fault> auto& m) {
  io(m.number, m.rank);
  io.text(m.host, kMaxHostBytes, "host");
  io.text(m.why, kMaxReasonBytes, "reason");
  io(m.since, m.stopped, m.back, m.steps);
}
void fields(auto& io, Is<AccountBody> auto& m) {
  io(m.seconds, m.alive, m.taking_part, m.losses, m.in_params, m.computed, m.possible, m.ended);
  io.list(m.faults, kMaxProcesses, "faults");
}

}  // namespace shoal::table::wire
