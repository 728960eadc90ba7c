#include <cmath>
#include <memory>

#include "shoal/table/wire.h"
#include "shoal/table/wire/layout.h"
#include "shoal/table/wire/types.h"

namespace shoal::table {
namespace {

// Returns why fields that could be read make no valid message; empty if they do.
template <class M>
std::string wrong_with(const M&, const Header&) {
  return "";
}

std::string wrong_with(const PlanMessage& m, const Header&) {
  const std::string wrong = validate(m.plan);
  return wrong.empty() ? "" : "a plan that cannot be: " + wrong;
}

std::string wrong_with(const Push& m, const Header& header) {
  if (!std::isfinite(m.weight)) return str("a weight of ", m.weight);
  if (m.weight == 0 && header.payload_bytes() > 0)
    return str(header.payload_bytes(), " bytes of numbers and the weight 0, which has none");
  if (m.weight != 0 && header.payload_bytes() == 0)
    return str("no numbers, and the weight ", m.weight);
  return "";
}

std::string wrong_with(const Challenge& m, const Header&) {
  return m.lowest > m.highest ? "versions that end before they begin" : "";
}
std::string wrong_with(const Hello& m, const Header&) {
  return m.lowest > m.highest ? "versions that end before they begin" : "";
}

template <class M>
Result<Message> read(const Header& header, std::string_view bytes) {
  M message;
  wire::Reader reader(bytes);
  fields(reader, message);
  std::string wrong = reader.finish();
  if (wrong.empty()) wrong = wrong_with(message, header);
  if (wrong.empty()) return Message(std::move(message));
  return Error{Code::kPeer,
               str("A ", name_of(header.type), " (request ", header.request, ") has ", wrong, ".")};
}

template <class Body>
Result<Body> read_body(const char* name, std::string_view bytes) {
  Body body;
  wire::Reader reader(bytes);
  fields(reader, body);
  if (const std::string& wrong = reader.finish(); !wrong.empty())
    return Error{Code::kPeer, str("A ", name, " has ", wrong, ".")};
  return body;
}

}  // namespace

Result<Message> decode_fields(const Header& header, std::string_view bytes) {
  switch (header.type) {
    case MessageType::kChallenge: return read<Challenge>(header, bytes);
    case MessageType::kHello: return read<Hello>(header, bytes);
    case MessageType::kWelcome: return read<Welcome>(header, bytes);
    case MessageType::kRefuse: return read<Refuse>(header, bytes);
    case MessageType::kPing: return read<Ping>(header, bytes);
    case MessageType::kBye: return read<Bye>(header, bytes);
    case MessageType::kPlan: return read<PlanMessage>(header, bytes);
    case MessageType::kInit: return read<Init>(header, bytes);
    case MessageType::kReady: return read<Ready>(header, bytes);
    case MessageType::kPush: return read<Push>(header, bytes);
    case MessageType::kGet: return read<Get>(header, bytes);
    case MessageType::kRow: return read<RowMessage>(header, bytes);
    case MessageType::kNeedPush: return read<NeedPush>(header, bytes);
    case MessageType::kRetire: return read<Retire>(header, bytes);
    case MessageType::kNorm: return read<Norm>(header, bytes);
    case MessageType::kNormTotal: return read<NormTotal>(header, bytes);
    case MessageType::kAsk: return read<Ask>(header, bytes);
    case MessageType::kAnswer: return read<Answer>(header, bytes);
    case MessageType::kDirective: return read<Directive>(header, bytes);
  }
  return Error{Code::kPeer,
               str("A frame has the unknown type ", static_cast<int>(header.type), ".")};
}

Result<Message> decode(std::string_view frame, Stage stage) {
  if (frame.size() < kHeaderSize)
    return Error{Code::kPeer,
                 str("A frame ends after ", frame.size(), " bytes, inside its header.")};
  const std::span<const char, kHeaderSize> first(frame.data(), kHeaderSize);
  const Result<Header> header = decode_header(first, stage);
  if (!header.ok()) return header.error();
  const std::string_view rest = frame.substr(kHeaderSize);
  if (rest.size() != header.value().length)
    return Error{Code::kPeer,
                 str("A ", name_of(header.value().type), " has ", rest.size(),
                     " bytes after its header, which says ", header.value().length, ".")};
  if (Status crc = check_crc(header.value(), crc32c(rest, crc_of_header(first))); !crc.ok())
    return crc.error();
  Result<Message> message =
      decode_fields(header.value(), rest.substr(0, header.value().field_bytes()));
  if (!message.ok()) return message;
  if (const auto bytes = std::as_bytes(std::span(rest).subspan(header.value().field_bytes()));
      !bytes.empty()) {
    const auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
    Payload& payload = *payload_of(message.value());
    payload.bytes = *copy;
    payload.owner = copy;
  }
  return message;
}

Result<JoinBody> decode_join(std::string_view bytes) { return read_body<JoinBody>("Join", bytes); }
Result<RosterBody> decode_roster(std::string_view bytes) {
  return read_body<RosterBody>("Roster", bytes);
}
Result<SegmentBody> decode_segment(std::string_view bytes) {
  return read_body<SegmentBody>("Segment", bytes);
}
Result<LeaveBody> decode_leave(std::string_view bytes) {
  return read_body<LeaveBody>("Leave", bytes);
}

}  // namespace shoal::table
