// The first 24 bytes of a frame, and all that can be said against it by them.
#include <array>

#include "shoal/base/bytes.h"
#include "shoal/table/wire.h"
#include "shoal/table/wire/layout.h"
#include "shoal/table/wire/types.h"

namespace shoal::table {
namespace wire {
namespace {

// without what they hold any number of
constexpr std::size_t kPlanBytes = 66, kAskBytes = 14, kDirectiveBytes = 15;
constexpr TypeEntry kTypes[] = {
    {MessageType::kChallenge, "Challenge", 20, 20, false, true},
    {MessageType::kHello, "Hello", 97, 97, false, true},
    {MessageType::kWelcome, "Welcome", 46, 46, false, true},
    {MessageType::kRefuse, "Refuse", 5, 5 + kMaxReasonBytes, false, true},
    {MessageType::kPing, "Ping", 8, 8},
    {MessageType::kBye, "Bye", 0, 0},
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

Error peer_error(std::string message) { return {Code::kPeer, std::move(message)}; }

std::string in_hex(std::string_view bytes) {
  std::string text;
  for (const char b : bytes)
    text +=
        str(text.empty() ? "" : " ", "0123456789abcdef"[b >> 4 & 15], "0123456789abcdef"[b & 15]);
  return text;
}

// Whose bytes these may be, at the start of a connection; "" if nobody's that is known.
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

}  // namespace

const TypeEntry* entry_of(MessageType type) {
  for (const TypeEntry& entry : kTypes)
    if (entry.type == type) return &entry;
  return nullptr;
}

}  // namespace wire

std::uint8_t version_of(MessageType type) {
  const wire::TypeEntry* entry = wire::entry_of(type);
  return entry && entry->first ? kFirstVersion : kProtocolVersion;
}

const char* name_of(MessageType type) {
  const wire::TypeEntry* entry = wire::entry_of(type);
  return entry ? entry->name : "a message of unknown type";
}

Status check_magic(std::string_view bytes) {
  if (get_le<std::uint32_t>(bytes) == kMagic) return {};
  if (const std::string known = wire::stranger_named(bytes); !known.empty())
    return wire::peer_error(str("The first bytes are ", known, "."));
  return wire::peer_error(str("A frame begins with ", wire::in_hex(bytes.substr(0, 4)),
                              " and not with 53 48 4f 4c (\"SHOL\"): the other end "
                              "is no Shoal process, or bytes were lost on the way."));
}

Result<Header> decode_header(std::span<const char, kHeaderSize> span, Stage stage) {
  const std::string_view bytes(span.data(), span.size());
  if (Status magic = check_magic(bytes); !magic.ok()) return magic.error();
  const Header header{.version = get_le<std::uint8_t>(bytes.substr(4)),
                      .type = static_cast<MessageType>(bytes[5]),
                      .fields = get_le<std::uint16_t>(bytes.substr(6)),
                      .request = get_le<std::uint64_t>(bytes.substr(8)),
                      .length = get_le<std::uint32_t>(bytes.substr(16)),
                      .crc = get_le<std::uint32_t>(bytes.substr(20))};
  const wire::TypeEntry* entry = wire::entry_of(header.type);
  if (const int spoken = version_of(header.type); header.version != spoken)
    return wire::peer_error(str("A frame has version ", int{header.version},
                                " of the protocol, and this process speaks ", spoken,
                                ": run the same build of Shoal on all machines."));
  if (!entry)
    return wire::peer_error(str("A frame has the unknown type ", static_cast<int>(header.type),
                                ": it is damaged, or the other end is a newer build."));
  if (stage == Stage::kStranger && !entry->first)
    return wire::peer_error(
        str("A ", entry->name, " came before the connection's two ends had proved who they are."));
  if (const std::string wrong = wire::wrong_length(*entry, header); !wrong.empty())
    return wire::peer_error(str("A ", entry->name, " is ", wrong,
                                ": it is damaged, or the other end is another build."));
  return header;
}

std::uint32_t crc_of_header(std::span<const char, kHeaderSize> bytes) {
  return crc32c({bytes.data(), kHeaderSize - sizeof(std::uint32_t)});
}

Status check_crc(const Header& header, std::uint32_t crc) {
  if (crc == header.crc) return {};
  return wire::peer_error(
      str("A ", name_of(header.type), " (request ", header.request, ", ", header.length,
          " bytes) was damaged on the way: its "
          "crc32c is ",
          std::hex, crc, ", ", header.crc, " was sent. Memory or a network device may be faulty."));
}

}  // namespace shoal::table
