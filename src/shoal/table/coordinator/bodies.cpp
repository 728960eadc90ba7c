// Bodies of the questions about tasks, and of their answers; docs/protocol.md has their bytes.
#include <cmath>
#include <utility>

#include "shoal/base/text.h"
#include "shoal/table/coordinator.h"
#include "shoal/table/wire/fields.h"

namespace shoal::table {
template <>
constexpr wire::Range<Verdict> wire::kRange<Verdict>{"verdict", Verdict::kPush, Verdict::kAnother};

namespace {

struct VerdictBody {
  std::uint32_t steps = 0;
  Verdict verdict = Verdict::kPush;
};

// Writers see const bodies, readers others.
template <class Io>
void task_fields(Io& io, auto& report) {
  io(report.steps), io(report.seconds), io(report.samples), io(report.exchange);
}
template <class Io>
void begin_fields(Io& io, auto& body) {
  task_fields(io, body.last), io(body.until);
}
template <class Io>
void start_fields(Io& io, auto& start) {
  io(start.steps), io(start.mean_steps), io(start.over), io(start.reread), io(start.at);
}
template <class Io>
void verdict_fields(Io& io, auto& body) {
  io(body.steps, body.verdict);
}

std::string wrong_with(const TaskReport& report) {
  for (const double number : {report.seconds, report.samples, report.exchange})
    if (!std::isfinite(number) || number < 0) return str("a number that cannot be, ", number);
  return "";
}

Error damage(const char* body, const std::string& what) {
  return {Code::kPeer, str("a body of ", body, ": ", what)};
}

}  // namespace

std::string encode(const BeginBody& body) {
  wire::Writer writer;
  begin_fields(writer, body);
  return std::move(writer.out());
}

std::string encode(const TaskReport& body) {
  wire::Writer writer;
  task_fields(writer, body);
  return std::move(writer.out());
}

std::string encode(const Start& body) {
  wire::Writer writer;
  start_fields(writer, body);
  return std::move(writer.out());
}

std::string encode(std::uint32_t steps, Verdict verdict) {
  wire::Writer writer;
  const VerdictBody body{steps, verdict};
  verdict_fields(writer, body);
  return std::move(writer.out());
}

Result<BeginBody> decode_begin(std::string_view bytes) {
  if (bytes.empty()) return BeginBody();
  wire::Reader reader(bytes);
  BeginBody body;
  begin_fields(reader, body);
  if (const std::string& wrong = reader.finish(); !wrong.empty()) return damage("begin", wrong);
  if (const std::string wrong = wrong_with(body.last); !wrong.empty())
    return damage("begin", wrong);
  if (body.until < 0) return damage("begin", str("an end after ", body.until, " tasks"));
  return body;
}

Result<TaskReport> decode_task(std::string_view bytes) {
  wire::Reader reader(bytes);
  TaskReport body;
  task_fields(reader, body);
  if (const std::string& wrong = reader.finish(); !wrong.empty()) return damage("judge", wrong);
  if (const std::string wrong = wrong_with(body); !wrong.empty()) return damage("judge", wrong);
  return body;
}

Result<Start> decode_start(std::string_view bytes) {
  wire::Reader reader(bytes);
  Start body;
  start_fields(reader, body);
  if (const std::string& wrong = reader.finish(); !wrong.empty()) return damage("a start", wrong);
  if (!std::isfinite(body.mean_steps) || body.mean_steps < 0)
    return damage("a start", str("a number that cannot be, ", body.mean_steps));
  if (body.at < 0) return damage("a start", str("task ", body.at));
  return body;
}

Result<Verdict> decode_verdict(std::string_view bytes) {
  wire::Reader reader(bytes);
  VerdictBody body;
  verdict_fields(reader, body);
  if (const std::string& wrong = reader.finish(); !wrong.empty()) return damage("a verdict", wrong);
  return body.verdict;
}

std::string encode(Meeting why) { return std::string(1, static_cast<char>(why)); }

Meeting decode_meeting(std::string_view bytes) {
  return bytes.empty() ? Meeting::kPause : static_cast<Meeting>(bytes[0]);
}

std::string encode(Want want) { return std::string(1, static_cast<char>(want)); }

Result<Want> decode_want(std::string_view bytes) {
  const int number = bytes.size() == 1 ? static_cast<unsigned char>(bytes[0]) : -1;
  if (number < 0 || number > static_cast<int>(Want::kRegroup))
    return damage("a wish", str(bytes.size(), " bytes that name none"));
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
