#include "agreement.h"

#include <algorithm>

namespace shoal::table {
namespace {

const char* name_of(Want want) {
  switch (want) {
    case Want::kNothing: return "nothing";
    case Want::kSnapshot: return "a snapshot";
    case Want::kStop: return "a stop";
    case Want::kRequeue: return "a stop to be continued";
  }
  return "nothing";
}

}  // namespace

Status Agreement::want(std::uint32_t rank, const Ask& ask, std::vector<Dispatch>& out) {
  const auto number = ask.body.size() == 1 ? static_cast<unsigned char>(ask.body[0]) : 0;
  if (number < 1 || number > static_cast<int>(Want::kRequeue))
    return Error{Code::kPeer, str(members_.name(rank), " asks for a pause and does not say for what (", ask.body.size(), " bytes)")};
  const Wanted wanted{ask.clock, static_cast<Want>(number)};
  if (std::exchange(wanted_[rank], wanted) == wanted) return {};
  if (open_) {
    want_ = std::max(want_, wanted.want);
    return {};
  }
  open_ = true;
  apart_ = false;
  want_ = wanted.want;
  clocks_.clear();
  for (const std::uint32_t worker : members_.active()) out.push_back({worker, Directive{.kind = DirectiveKind::kPause, .want = want_, .text = {}}});
  return {};
}

Status Agreement::paused(std::uint32_t rank, const Ask& ask, std::vector<Dispatch>& out) {
  if (!open_ && agreed_.want == Want::kNothing)
    return Error{Code::kPeer, str(members_.name(rank), " says where it pauses, but was not asked to")};
  if (!open_) {
    if (!apart_) out.push_back({rank, agreed_});
    return {};
  }
  clocks_.try_emplace(rank, ask.clock);
  apart_ = apart_ || ask.body == "\1";
  close(out);
  return {};
}

void Agreement::close(std::vector<Dispatch>& out) {
  const std::vector<std::uint32_t> active = members_.active();
  if (!open_ || !std::ranges::all_of(active, [&](std::uint32_t rank) { return clocks_.contains(rank); })) return;
  open_ = false;
  if (active.empty()) return;
  Clock agreed = agreed_.want == Want::kNothing ? 0 : agreed_.clock + 1;
  for (const std::uint32_t rank : active) agreed = std::max(agreed, clocks_.at(rank));
  agreed_ = Directive{.kind = DirectiveKind::kAgreed, .clock = agreed, .want = want_, .text = {}};
  if (apart_) to_do_ = std::max(to_do_, want_);
  for (const std::uint32_t rank : active) {
    Directive directive = agreed_;
    if (apart_) directive.clock = clocks_.at(rank);
    out.push_back({rank, directive});
  }
}

std::string Agreement::waiting_for() const {
  if (!open_) return {};
  std::vector<std::uint32_t> absent;
  for (const std::uint32_t rank : members_.active())
    if (!clocks_.contains(rank)) absent.push_back(rank);
  return str("agreement on ", name_of(want_), ": waiting for ", members_.names(absent));
}

}  // namespace shoal::table
