#include <bit>
#include <limits>

#include "shoal/table/wire.h"
#include "shoal/table/wire/layout.h"

namespace shoal::table {
namespace {

static_assert(std::endian::native == std::endian::little && std::numeric_limits<float>::is_iec559,
              "numbers are sent from where they are, and the wire is little-endian");

template <class T>
constexpr MessageType kTypeOf{};
template <>
constexpr MessageType kTypeOf<Challenge> = MessageType::kChallenge;
template <>
constexpr MessageType kTypeOf<Hello> = MessageType::kHello;
template <>
constexpr MessageType kTypeOf<Welcome> = MessageType::kWelcome;
template <>
constexpr MessageType kTypeOf<Refuse> = MessageType::kRefuse;
template <>
constexpr MessageType kTypeOf<Ping> = MessageType::kPing;
template <>
constexpr MessageType kTypeOf<Bye> = MessageType::kBye;
template <>
constexpr MessageType kTypeOf<PlanMessage> = MessageType::kPlan;
template <>
constexpr MessageType kTypeOf<Init> = MessageType::kInit;
template <>
constexpr MessageType kTypeOf<Ready> = MessageType::kReady;
template <>
constexpr MessageType kTypeOf<Push> = MessageType::kPush;
template <>
constexpr MessageType kTypeOf<Get> = MessageType::kGet;
template <>
constexpr MessageType kTypeOf<RowMessage> = MessageType::kRow;
template <>
constexpr MessageType kTypeOf<NeedPush> = MessageType::kNeedPush;
template <>
constexpr MessageType kTypeOf<Retire> = MessageType::kRetire;
template <>
constexpr MessageType kTypeOf<Norm> = MessageType::kNorm;
template <>
constexpr MessageType kTypeOf<NormTotal> = MessageType::kNormTotal;
template <>
constexpr MessageType kTypeOf<Ask> = MessageType::kAsk;
template <>
constexpr MessageType kTypeOf<Answer> = MessageType::kAnswer;
template <>
constexpr MessageType kTypeOf<Directive> = MessageType::kDirective;

template <class Unsigned>
void put_at(std::string& bytes, std::size_t at, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i)
    bytes[at + i] = static_cast<char>(value >> (8 * i) & 0xff);
}

template <class Body>
std::string encode_body(const Body& body) {
  wire::Writer writer;
  fields(writer, body);
  return std::move(writer.out());
}

}  // namespace

MessageType type_of(const Message& message) {
  return std::visit([]<class M>(const M&) { return kTypeOf<M>; }, message);
}

const Payload* payload_of(const Message& message) {
  return std::visit(
      []<class M>(const M& m) -> const Payload* {
        if constexpr (requires { m.payload; })
          return &m.payload;
        else
          return nullptr;
      },
      message);
}
Payload* payload_of(Message& message) {
  return const_cast<Payload*>(payload_of(std::as_const(message)));
}

Frame encode(const Message& message, std::uint64_t request) {
  wire::Writer writer;
  std::string& head = writer.out();
  put_le(head, kMagic);
  put_le(head, version_of(type_of(message)));
  put_le(head, static_cast<std::uint8_t>(type_of(message)));
  put_le(head, std::uint16_t{0});
  put_le(head, request);
  head.resize(kHeaderSize);
  Frame frame;
  std::visit(
      [&]<class M>(const M& m) {
        fields(writer, m);
        if constexpr (requires { m.payload; }) frame.payload = m.payload;
      },
      message);
  const std::span<const std::byte> bytes = frame.payload.bytes;
  CHECK(bytes.size() <= kMaxPayloadBytes) << "a payload of " << bytes.size() << " bytes; at most "
                                          << kMaxPayloadBytes << " can be sent";
  if (const Push* push = std::get_if<Push>(&message))
    CHECK((push->weight == 0) == bytes.empty()) << "a push of weight " << push->weight;
  const std::size_t field_bytes = head.size() - kHeaderSize;
  put_at(head, 6, static_cast<std::uint16_t>(std::min<std::size_t>(field_bytes, 0xffff)));
  put_at(head, 16, static_cast<std::uint32_t>(field_bytes + bytes.size()));
  std::uint32_t crc = crc_of_header(std::span<const char, kHeaderSize>(head.data(), kHeaderSize));
  crc = crc32c(std::string_view(head).substr(kHeaderSize), crc);
  crc = crc32c({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, crc);
  put_at(head, 20, crc);
  frame.head = std::move(head);
  return frame;
}

std::string encode(const JoinBody& body) { return encode_body(body); }
std::string encode(const RosterBody& body) { return encode_body(body); }
std::string encode(const SegmentBody& body) { return encode_body(body); }
std::string encode(const LeaveBody& body) { return encode_body(body); }

}  // namespace shoal::table
