#include "shoal/table/coordinator/bodies.h"

#include "shoal/table/broken.h"
#include "shoal/table/wire/layout.h"

namespace shoal::table {
template <>
constexpr wire::Range<Verdict> wire::kRange<Verdict>{"verdict", Verdict::kPush, Verdict::kAnother};

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

// These say which value is wrong; "" if none is.
std::string wrong_number(std::initializer_list<double> numbers) {
  for (const double number : numbers)
    if (!std::isfinite(number) || number < 0) return str("a number that cannot be, ", number);
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

// An error is what is wrong, between these words.
template <class B>
Result<B> decoded(const char* before, std::string_view bytes, const char* after = "") {
  wire::Reader reader(bytes);
  B body;
  fields(reader, body);
  std::string wrong = reader.finish();
  if (wrong.empty()) wrong = wrong_with(body);
  if (!wrong.empty()) return broken(before, wrong, after);
  return body;
}

}  // namespace

std::string encode(const Body& body) {
  wire::Writer writer;
  std::visit([&](const auto& one) { fields(writer, one); }, body);
  return std::move(writer.out());
}

Result<JoinBody> decode_join(std::string_view bytes) {
  return decoded<JoinBody>("A Join has ", bytes, ".");
}
Result<RosterBody> decode_roster(std::string_view bytes) {
  return decoded<RosterBody>("A Roster has ", bytes, ".");
}
Result<SegmentBody> decode_segment(std::string_view bytes) {
  return decoded<SegmentBody>("A Segment has ", bytes, ".");
}
Result<LeaveBody> decode_leave(std::string_view bytes) {
  return decoded<LeaveBody>("A Leave has ", bytes, ".");
}
Result<BeginBody> decode_begin(std::string_view bytes) {
  return bytes.empty() ? BeginBody() : decoded<BeginBody>("a body of begin: ", bytes);
}
Result<TaskReport> decode_task(std::string_view bytes) {
  return decoded<TaskReport>("a body of judge: ", bytes);
}
Result<Start> decode_start(std::string_view bytes) {
  return decoded<Start>("a body of a start: ", bytes);
}
Result<ReportBody> decode_report(std::string_view bytes) {
  return decoded<ReportBody>("a body of a report: ", bytes);
}
Result<Verdict> decode_verdict(std::string_view bytes) {
  const Result<VerdictBody> body = decoded<VerdictBody>("a body of a verdict: ", bytes);
  if (!body.ok()) return body.error();
  return body.value().verdict;
}

std::string encode(Meeting why) { return std::string(1, static_cast<char>(why)); }

Meeting decode_meeting(std::string_view bytes) {
  return bytes.empty() ? Meeting::kPause : static_cast<Meeting>(bytes[0]);
}

std::string encode(Want want) { return std::string(1, static_cast<char>(want)); }

Result<Want> decode_want(std::string_view bytes) {
  const int number = bytes.size() == 1 ? static_cast<unsigned char>(bytes[0]) : -1;
  if (number < 0 || number > static_cast<int>(Want::kRegroup))
    return broken("a body of a wish: ", bytes.size(), " bytes that name none");
  return static_cast<Want>(number);
}

std::string encode_may_leave(bool may) { return std::string(1, may ? '\1' : '\0'); }

bool decode_may_leave(std::string_view bytes) { return bytes == "\1"; }

std::uint32_t part_of(Topic topic, std::string_view body) {
  return topic == Topic::kJudge && body.size() >= sizeof(std::uint32_t)
             ? get_le<std::uint32_t>(body)
             : 0;
}

}  // namespace shoal::table
