// Messages to frames and back: the table of message types, headers, fields, checksums.
#include "shoal/table/wire.h"

#include <algorithm>
#include <bit>

#include "shoal/table/broken.h"
#include "shoal/table/wire/layout.h"

namespace shoal::table {
namespace {

using wire::Is, wire::Reader, wire::Writer;
using wire::kClockBytes, wire::kMaxServers, wire::kMaxWorkers, wire::kRankBytes, wire::kRowBytes;

static_assert(std::endian::native == std::endian::little && std::numeric_limits<float>::is_iec559,
              "numbers are sent from where they are, and the wire is little-endian");

struct TypeEntry {
  MessageType type;
  const char* name;
  std::size_t least, most;  // bytes of fields
  bool payload = false;     // may follow; then `least` is `most`
  bool first = false;       // may be said by a stranger
};
// without what they hold any number of
constexpr std::size_t kOfferBytes = 28, kPlanBytes = 66, kAskBytes = 14, kDirectiveBytes = 15;
constexpr int kLentBit = 0x80;  // of a header's type
// In the order of Message's alternatives.
constexpr TypeEntry kTypes[] = {
    {MessageType::kChallenge, "Challenge", 20, 20, false, true},
    {MessageType::kHello, "Hello", 97, 97, false, true},
    {MessageType::kWelcome, "Welcome", 46, 46, false, true},
    {MessageType::kRefuse, "Refuse", 5, 5 + kMaxReasonBytes, false, true},
    {MessageType::kPing, "Ping", 8, 8},
    {MessageType::kBye, "Bye", 0, 0},
    {MessageType::kOffer, "Offer", kOfferBytes, kOfferBytes + kMaxNameBytes},
    {MessageType::kTaken, "Taken", 16, 16},
    {MessageType::kPlan, "Plan", kPlanBytes,
     kPlanBytes + kMaxSchemeBytes + kRowBytes* kMaxRows + (kRankBytes + kClockBytes) * kMaxWorkers +
         kRankBytes* kMaxServers},
    {MessageType::kInit, "Init", 10, 10, true},
    {MessageType::kReady, "Ready", 8, 8},
    {MessageType::kPush, "Push", 34, 34, true},
    {MessageType::kGet, "Get", 17, 17},
    {MessageType::kRow, "Row", 26, 26, true},
    {MessageType::kNeedPush, "NeedPush", 16, 16},
    {MessageType::kRetire, "Retire", 12, 12},
    {MessageType::kNorm, "Norm", 22, 22},
    {MessageType::kNormTotal, "NormTotal", 20, 20},
    {MessageType::kAsk, "Ask", kAskBytes, kAskBytes + kMaxBodyBytes},
    {MessageType::kAnswer, "Answer", kAskBytes, kAskBytes + kMaxBodyBytes},
    {MessageType::kDirective, "Directive", kDirectiveBytes, kDirectiveBytes + kMaxReasonBytes},
};

static_assert(std::size(kTypes) == std::variant_size_v<Message>);

// Null if there is no such type.
const TypeEntry* entry_of(MessageType type) {
  const auto found = std::ranges::find(kTypes, type, &TypeEntry::type);
  return found == std::end(kTypes) ? nullptr : found;
}

std::string in_hex(std::string_view bytes) {
  std::string text;
  for (const char b : bytes)
    text +=
        str(text.empty() ? "" : " ", "0123456789abcdef"[b >> 4 & 15], "0123456789abcdef"[b & 15]);
  return text;
}

// Names the protocol whose connections begin with these bytes; "" if none is known.
std::string stranger_named(std::string_view bytes) {
  for (const std::string_view start :
       {"GET ", "POST", "HEAD", "PUT ", "HTTP", "OPTI", "DELE", "PRI ", "CONN"})
    if (bytes.starts_with(start))
      return str("\"", start, "\": HTTP. A browser, a proxy or a web server is at the other end");
  if (bytes.starts_with("SSH-")) return "\"SSH-\": an ssh server or client is at the other end";
  if (bytes.starts_with("\x16\x03")) return "16 03: TLS, which this port does not speak";
  if (bytes.starts_with("LOHS"))
    return "\"LOHS\": a frame with its bytes swapped; the other end has another byte order, which "
           "is not supported";
  return "";
}

std::string wrong_length(const TypeEntry& entry, const Header& header) {
  if (header.lent && !entry.payload) return "said to have numbers in memory; it carries none";
  if (header.lent && header.length != entry.most + kLentBytes)
    return str(header.length, " bytes long; ", entry.most + kLentBytes,
               " are needed where the numbers are in memory");
  const std::size_t most = entry.most + (entry.payload ? kMaxPayloadBytes : 0);
  if (header.length > most)
    return str(header.length, " bytes long; at most ", most, " are allowed");
  if (header.field_bytes() < entry.least || header.field_bytes() > entry.most ||
      header.field_bytes() > header.length)
    return str("with ", header.field_bytes(), " bytes of fields of ", header.length, "; ",
               entry.least, " to ", entry.most, " are allowed");
  if (!entry.payload && header.field_bytes() != header.length)
    return str(header.length, " bytes long, with ", header.field_bytes(),
               " of fields; it carries no numbers");
  if (header.fields == 0xffff && header.length < 0xffff)
    return str(header.length, " bytes long, and said to be longer than 65534");
  return "";
}

void put_at(std::string& bytes, std::size_t at, auto value) {
  std::memcpy(&bytes[at], &value, sizeof value);
}

// Returns why fields that could be read make no valid message; empty if they do.
template <class M>
std::string wrong_with(const M& m, const Header& header) {
  if constexpr (requires { m.lowest; })
    if (m.lowest > m.highest) return "versions that end before they begin";
  if constexpr (Is<M, PlanMessage>)
    if (const std::string wrong = validate(m.plan); !wrong.empty())
      return "a plan that cannot be: " + wrong;
  if constexpr (Is<M, Push>) {
    if (!std::isfinite(m.weight)) return str("a weight of ", m.weight);
    if (m.weight == 0 && header.payload_bytes() > 0)
      return str(header.payload_bytes(), " bytes of numbers and the weight 0, which has none");
    if (m.weight != 0 && header.payload_bytes() == 0)
      return str("no numbers, and the weight ", m.weight);
  }
  return "";
}

template <class M>
Result<Message> read(const Header& header, std::string_view bytes) {
  M message;
  Reader reader(bytes);
  fields(reader, message);
  std::string wrong = reader.finish();
  if (wrong.empty()) wrong = wrong_with(message, header);
  if (wrong.empty()) return Message(std::move(message));
  return broken("A ", name_of(header.type), " (request ", header.request, ") has ", wrong, ".");
}

template <std::size_t... I>
Result<Message> read(const TypeEntry& entry, const Header& header, std::string_view bytes,
                     std::index_sequence<I...>) {
  using Read = Result<Message> (*)(const Header&, std::string_view);
  constexpr Read kRead[] = {read<std::variant_alternative_t<I, Message>>...};
  return kRead[&entry - kTypes](header, bytes);
}

}  // namespace

MessageType type_of(const Message& message) { return kTypes[message.index()].type; }

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

// ---- headers ----

std::uint8_t version_of(MessageType type) {
  const TypeEntry* entry = entry_of(type);
  return entry && entry->first ? kFirstVersion : kProtocolVersion;
}

const char* name_of(MessageType type) {
  const TypeEntry* entry = entry_of(type);
  return entry ? entry->name : "a message of unknown type";
}

Status check_magic(std::string_view bytes) {
  if (get_le<std::uint32_t>(bytes) == kMagic) return {};
  if (const std::string known = stranger_named(bytes); !known.empty())
    return broken("The first bytes are ", known, ".");
  return broken("A frame begins with ", in_hex(bytes.substr(0, 4)),
                " and not with 53 48 4f 4c (\"SHOL\"): the other end "
                "is no Shoal process, or bytes were lost on the way.");
}

Result<Header> decode_header(std::span<const char, kHeaderSize> span, Stage stage) {
  const std::string_view bytes(span.data(), span.size());
  if (Status magic = check_magic(bytes); !magic.ok()) return magic.error();
  const Header header{.version = get_le<std::uint8_t>(bytes.substr(4)),
                      .type = static_cast<MessageType>(bytes[5] & ~kLentBit),
                      .lent = (bytes[5] & kLentBit) != 0,
                      .fields = get_le<std::uint16_t>(bytes.substr(6)),
                      .request = get_le<std::uint64_t>(bytes.substr(8)),
                      .length = get_le<std::uint32_t>(bytes.substr(16)),
                      .crc = get_le<std::uint32_t>(bytes.substr(20))};
  const TypeEntry* entry = entry_of(header.type);
  if (const int spoken = version_of(header.type); header.version != spoken)
    return broken("A frame has version ", int{header.version},
                  " of the protocol, and this process speaks ", spoken,
                  ": run the same build of Shoal on all machines.");
  if (!entry)
    return broken("A frame has the unknown type ", static_cast<int>(header.type),
                  ": it is damaged, or the other end is a newer build.");
  if (stage == Stage::kStranger && !entry->first)
    return broken("A ", entry->name,
                  " came before the connection's two ends had proved who they are.");
  if (const std::string wrong = wrong_length(*entry, header); !wrong.empty())
    return broken("A ", entry->name, " is ", wrong,
                  ": it is damaged, or the other end is another build.");
  return header;
}

std::uint32_t crc_of_header(std::span<const char, kHeaderSize> bytes) {
  return crc32c({bytes.data(), kHeaderSize - sizeof(std::uint32_t)});
}

Status check_crc(const Header& header, std::uint32_t crc) {
  if (crc == header.crc) return {};
  return broken("A ", name_of(header.type), " (request ", header.request, ", ", header.length,
                " bytes) was damaged on the way: its "
                "crc32c is ",
                std::hex, crc, ", ", header.crc,
                " was sent. Memory or a network device may be faulty.");
}

// ---- messages ----

Frame encode(const Message& message, std::uint64_t request, const std::optional<Lent>& lent) {
  Writer writer;
  std::string& head = writer.out();
  const MessageType type = type_of(message);
  const int bits = static_cast<int>(type) | (lent ? kLentBit : 0);
  writer(kMagic, version_of(type), static_cast<std::uint8_t>(bits), std::uint16_t{0}, request,
         std::uint64_t{0});
  Frame frame;
  std::visit(
      [&]<class M>(const M& m) {
        fields(writer, m);
        if constexpr (requires { m.payload; })
          if (!lent) frame.payload = m.payload;
      },
      message);
  const std::span<const std::byte> bytes = frame.payload.bytes;
  CHECK(bytes.size() <= kMaxPayloadBytes) << "a payload of " << bytes.size() << " bytes; at most "
                                          << kMaxPayloadBytes << " can be sent";
  if (const Push* push = std::get_if<Push>(&message))
    CHECK((push->weight == 0) == push->payload.bytes.empty())
        << "a push of weight " << push->weight;
  const std::size_t field_bytes = head.size() - kHeaderSize;
  if (lent) writer(lent->offset, lent->bytes);
  put_at(head, 6, static_cast<std::uint16_t>(std::min<std::size_t>(field_bytes, 0xffff)));
  put_at(head, 16, static_cast<std::uint32_t>(head.size() - kHeaderSize + bytes.size()));
  std::uint32_t crc = crc_of_header(std::span<const char, kHeaderSize>(head.data(), kHeaderSize));
  crc = crc32c(std::string_view(head).substr(kHeaderSize), crc);
  crc = crc32c({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, crc);
  put_at(head, 20, crc);
  frame.head = std::move(head);
  return frame;
}

Lent decode_lent(std::string_view bytes) {
  return {.offset = get_le<std::uint64_t>(bytes), .bytes = get_le<std::uint32_t>(bytes.substr(8))};
}

std::size_t frame_bytes(const Message& message) {
  const TypeEntry& entry = kTypes[message.index()];
  if (entry.least != entry.most) return encode(message, 0).bytes();
  const Payload* const payload = payload_of(message);
  return kHeaderSize + entry.least + (payload == nullptr ? 0 : payload->bytes.size());
}

Result<Message> decode_fields(const Header& header, std::string_view bytes) {
  if (const TypeEntry* entry = entry_of(header.type))
    return read(*entry, header, bytes, std::make_index_sequence<std::size(kTypes)>());
  return broken("A frame has the unknown type ", static_cast<int>(header.type), ".");
}

Result<Message> decode(std::string_view frame, Stage stage) {
  if (frame.size() < kHeaderSize)
    return broken("A frame ends after ", frame.size(), " bytes, inside its header.");
  const std::span<const char, kHeaderSize> first(frame.data(), kHeaderSize);
  const Result<Header> header = decode_header(first, stage);
  if (!header.ok()) return header.error();
  const std::string_view rest = frame.substr(kHeaderSize);
  if (rest.size() != header.value().length)
    return broken("A ", name_of(header.value().type), " has ", rest.size(),
                  " bytes after its header, which says ", header.value().length, ".");
  if (Status crc = check_crc(header.value(), crc32c(rest, crc_of_header(first))); !crc.ok())
    return crc.error();
  if (header.value().lent)
    return broken("A ", name_of(header.value().type),
                  " has its numbers in the memory of a machine, and came without it.");
  Result<Message> message =
      decode_fields(header.value(), rest.substr(0, header.value().field_bytes()));
  if (!message.ok()) return message;
  if (const auto bytes = std::as_bytes(std::span(rest).subspan(header.value().field_bytes()));
      !bytes.empty())
    std::ranges::copy(bytes, allocate(*payload_of(message.value()), bytes.size()).begin());
  return message;
}

}  // namespace shoal::table
