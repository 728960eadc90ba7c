#include "shoal/table/coordinator/bodies.h"

#include "shoal/table/broken.h"
#include "shoal/table/wire/layout.h"

namespace shoal::table {
namespace {

// Writers see const bodies, readers others.
void fields(auto& io, wire::Is<TaskReport> auto& body) {
  io(body.steps, body.seconds, body.samples, body.exchange);
}
void fields(auto& io, wire::Is<BeginBody> auto& body) {
  fields(io, body.last);
  io(body.until);
}
void fields(auto& io, wire::Is<Start> auto& body) {
  io(body.steps, body.mean_steps, body.over, body.reread, body.at);
}
void fields(auto& io, wire::Is<VerdictBody> auto& body) { io(body.steps, body.verdict); }
void fields(auto& io, wire::Is<ReportBody> auto& body) {
  io(body.iterations, body.compute, body.data, body.rows, body.other);
}
void fields(auto& io, wire::Is<Want> auto& want) { io(want); }
void fields(auto& io, wire::Is<TolerancesBody> auto& body) {
  io(body.copies);
  io.text(body.why_none, kMaxReasonBytes, "reason");
  io(body.interrupts);
}

// These return which value is wrong; "" if none is.
std::string wrong_number(std::initializer_list<double> numbers) {
  for (const double number : numbers)
    if (!std::isfinite(number) || number < 0)
      return str("a number that is negative or not finite, ", number);
  return "";
}
std::string wrong_with(const auto&) { return ""; }
std::string wrong_with(const TaskReport& report) {
  return wrong_number({report.seconds, report.samples, report.exchange});
}
std::string wrong_with(const BeginBody& body) {
  const std::string wrong = wrong_with(body.last);
  return wrong.empty() && body.until < 0 ? str("an end after ", body.until, " tasks") : wrong;
}
std::string wrong_with(const Start& start) {
  const std::string wrong = wrong_number({start.mean_steps});
  return wrong.empty() && start.at < 0 ? str("task ", start.at) : wrong;
}
std::string wrong_with(const ReportBody& report) {
  return wrong_number({report.iterations, report.compute, report.data, report.rows, report.other});
}
std::string wrong_with(const AccountBody& account) {
  return wrong_number({account.seconds, account.possible});
}
std::string wrong_with(const RosterBody& roster) {
  std::int32_t workers = 0, servers = 0;
  for (Rank rank = 0; rank < roster.processes.size(); ++rank) {
    const RosterBody::Process& process = roster.processes[rank];
    if (process.rank != rank) return str("rank ", process.rank, " in the place of rank ", rank);
    if (process.worker != -1 && process.worker != workers++)
      return str("worker ", process.worker, " of rank ", rank, " where worker ", workers - 1,
                 " is due");
    if (process.server != -1 && process.server != servers++)
      return str("server ", process.server, " of rank ", rank, " where server ", servers - 1,
                 " is due");
  }
  return workers == 0 || servers == 0 ? "no worker or no server" : "";
}

// The words in front of an error; in the order of Body's alternatives.
constexpr const char* kKinds[] = {
    "A Join has ",        "A Roster has ",          "A Segment has ",
    "A Leave has ",       "a body of a report: ",   "a body of begin: ",
    "a body of judge: ",  "a body of a start: ",    "a body of a verdict: ",
    "a body of a wish: ", "a body of tolerances: ", "a body of an account: "};
static_assert(std::size(kKinds) == std::variant_size_v<Body>);

}  // namespace

std::string encode(const Body& body) {
  wire::Writer writer;
  std::visit([&](const auto& one) { fields(writer, one); }, body);
  return std::move(writer.out());
}

Status decode_into(Body& body, std::string_view bytes) {
  if (bytes.empty() && std::holds_alternative<BeginBody>(body)) return {};
  const std::string wrong = std::visit(
      [&](auto& one) {
        wire::Reader reader(bytes);
        fields(reader, one);
        const std::string& unread = reader.finish();
        return unread.empty() ? wrong_with(one) : unread;
      },
      body);
  return wrong.empty() ? Status() : Status(broken(kKinds[body.index()], wrong));
}

std::string encode(Meeting why) { return std::string(1, static_cast<char>(why)); }

Meeting decode_meeting(std::string_view bytes) {
  return bytes.empty() ? Meeting::kPause : static_cast<Meeting>(bytes[0]);
}

std::string encode_may_leave(bool may) { return std::string(1, may ? '\1' : '\0'); }

bool decode_may_leave(std::string_view bytes) { return bytes == "\1"; }

std::uint32_t part_of(Topic topic, std::string_view body) {
  return topic == Topic::kJudge && body.size() >= sizeof(std::uint32_t)
             ? get_le<std::uint32_t>(body)
             : 0;
}

}  // namespace shoal::table
