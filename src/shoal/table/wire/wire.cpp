// Converts messages to frames and back: the table of message types, headers, fields, checksums.
#include "shoal/table/wire.h"

#include <algorithm>
#include <bit>

#include "shoal/base/text.h"
#include "shoal/base/try.h"
#include "shoal/table/broken.h"
#include "shoal/table/wire/layout.h"

namespace shoal::table {
namespace {

using wire::Is, wire::Reader, wire::Writer;
using wire::kClockBytes, wire::kMaxServers, wire::kMaxWorkers, wire::kMergedBytes, wire::kRankBytes,
    wire::kRowBytes;

static_assert(std::endian::native == std::endian::little && std::numeric_limits<float>::is_iec559,
              "numbers are sent from where they are, and the wire is little-endian");

struct TypeEntry {
  std::uint8_t number;  // append only; these are on the wire
  const char* name;
  std::size_t least, most;  // bytes of fields
  bool payload = false;     // may follow; then the fields have fewer than 65535 bytes
  bool first = false;       // may be said by a stranger
};
// Bytes of the fields without lists and texts.
constexpr std::size_t kOfferBytes = 28, kPlanBytes = 67, kAskBytes = 14, kDirectiveBytes = 15,
                      kUpdateBytes = 30;
constexpr int kLentBit = 0x80;  // of a header's type
// In the order of Message's alternatives.
constexpr TypeEntry kTypes[] = {
    {1, "Challenge", 20, 20, false, true},
    {2, "Hello", 97, 97, false, true},
    {9, "Claim", 100, 100, false, true},
    {3, "Welcome", 46, 46, false, true},
    {4, "Refuse", 5, 5 + kMaxReasonBytes, false, true},
    {5, "Ping", 8, 8},
    {6, "Bye", 0, 0},
    {7, "Offer", kOfferBytes, kOfferBytes + kMaxNameBytes},
    {8, "Taken", 16, 16},
    {16, "Plan", kPlanBytes,
     kPlanBytes + kMaxSchemeBytes + kRowBytes* kMaxRows + (kRankBytes + kClockBytes) * kMaxWorkers +
         kRankBytes* kMaxServers},
    {17, "Init", 10, 10, true},
    {18, "Ready", 8, 8},
    {24, "Push", 34, 34, true},
    {25, "Get", 17, 17},
    {26, "Row", 26, 26, true},
    {27, "NeedPush", 16, 16},
    {28, "Retire", 12, 12},
    {32, "Norm", 22, 22},
    {33, "NormTotal", 20, 20},
    {36, "Update", kUpdateBytes, kUpdateBytes + kMergedBytes* kMaxCopiedWorkers, true},
    {37, "Copied", 16, 16},
    {40, "Ask", kAskBytes, kAskBytes + kMaxBodyBytes},
    {41, "Answer", kAskBytes, kAskBytes + kMaxBodyBytes},
    {42, "Directive", kDirectiveBytes, kDirectiveBytes + kMaxReasonBytes},
};

static_assert(std::size(kTypes) == std::variant_size_v<Message>);

// Returns null if there is no such type.
const TypeEntry* find_entry(std::uint8_t number) {
  const auto found = std::ranges::find(kTypes, number, &TypeEntry::number);
  return found == std::end(kTypes) ? nullptr : found;
}
// Requires a decoded header: its type is known.
const TypeEntry& entry_of(const Header& header) { return *find_entry(header.type); }

std::uint8_t version_of(const TypeEntry* entry) {
  return entry && entry->first ? kFirstVersion : kProtocolVersion;
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
  if (header.lent && header.payload_bytes() != kLentBytes)
    return str(header.length, " bytes long; ", header.field_bytes() + kLentBytes,
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
    return str(header.length, " bytes long, but its header says that it is longer than 65534");
  return "";
}

// Returns why fields that could be read make no valid message; "" if they do.
template <class M>
std::string wrong_with(const M& m, const Header& header) {
  if constexpr (requires { m.lowest; })
    if (m.lowest > m.highest) return "a lowest version above its highest";
  if constexpr (Is<M, PlanMessage>)
    if (const std::string wrong = validate(*m.plan); !wrong.empty())
      return "an invalid plan: " + wrong;
  if constexpr (Is<M, Push>) {
    if (!std::isfinite(m.weight)) return str("a weight of ", m.weight);
    if (m.weight == 0 && header.payload_bytes() > 0)
      return str(header.payload_bytes(), " bytes of numbers, but the weight 0, which allows none");
    if (m.weight != 0 && header.payload_bytes() == 0)
      return str("no numbers, but the weight ", m.weight, "; only the weight 0 has none");
  }
  return "";
}

// Returns an empty message of the alternative with this index.
template <std::size_t... I>
Message empty(std::size_t index, std::index_sequence<I...>) {
  Message message;
  ((I == index && (message.emplace<I>(), true)) || ...);
  return message;
}

}  // namespace

const char* name_of(const Message& message) { return kTypes[message.index()].name; }

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

Status check_magic(std::string_view bytes) {
  if (get_le<std::uint32_t>(bytes) == kMagic) return {};
  if (const std::string known = stranger_named(bytes); !known.empty())
    return broken("The first bytes are ", known, ".");
  return broken("A frame begins with ", hex(bytes.substr(0, 4), " "),
                " and not with 53 48 4f 4c (\"SHOL\"): the other end "
                "is no Shoal process, or bytes were lost on the way.");
}

Result<Header> decode_header(std::string_view bytes, Stage stage) {
  TRY(check_magic(bytes));
  Header header;
  Reader reader(bytes.substr(sizeof kMagic));
  reader(header.version, header.type, header.fields, header.request, header.length, header.crc);
  header.lent = (header.type & kLentBit) != 0;
  header.type &= ~kLentBit;
  const TypeEntry* entry = find_entry(header.type);
  if (const int spoken = version_of(entry); header.version != spoken)
    return broken("A frame has version ", int{header.version},
                  " of the protocol, and this process speaks ", spoken,
                  ": run the same build of Shoal on all machines.");
  if (!entry)
    return broken("A frame has the unknown type ", int{header.type},
                  ": it is damaged, or the other end is a newer build.");
  if (stage == Stage::kStranger && !entry->first)
    return broken("A ", entry->name,
                  " came before the connection's two ends had proved who they are.");
  if (const std::string wrong = wrong_length(*entry, header); !wrong.empty())
    return broken("A ", entry->name, " is ", wrong,
                  ": it is damaged, or the other end is another build.");
  return header;
}

std::uint32_t crc_of_header(std::string_view bytes) {
  return crc32c(bytes.substr(0, kHeaderSize - sizeof(std::uint32_t)));
}

Status check_crc(const Header& header, std::uint32_t crc) {
  if (crc == header.crc) return {};
  return broken("A ", entry_of(header).name, " (request ", header.request, ", ", header.length,
                " bytes) was damaged on the way: its "
                "crc32c is ",
                std::hex, crc, ", ", header.crc,
                " was sent. Memory or a network device may be faulty.");
}

// ---- messages ----

Frame encode(const Message& message, std::uint64_t request, const std::optional<Lent>& lent) {
  Writer head, rest;
  Frame frame;
  std::visit(
      [&]<class M>(const M& m) {
        fields(rest, m);
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
  const std::size_t field_bytes = rest.out().size();
  CHECK(!payload_of(message) || field_bytes < 0xffff) << field_bytes << " bytes of fields";
  if (lent) rest(lent->offset, lent->bytes);
  const TypeEntry& entry = kTypes[message.index()];
  head(kMagic, version_of(&entry), static_cast<std::uint8_t>(entry.number | (lent ? kLentBit : 0)),
       static_cast<std::uint16_t>(std::min<std::size_t>(field_bytes, 0xffff)), request,
       static_cast<std::uint32_t>(rest.out().size() + bytes.size()));
  const std::uint32_t crc = crc32c(rest.out(), crc32c(head.out()));
  head(crc32c({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, crc));
  frame.head = std::move(head.out()) + rest.out();
  return frame;
}

Lent decode_lent(std::string_view bytes) {
  return {.offset = get_le<std::uint64_t>(bytes), .bytes = get_le<std::uint32_t>(bytes.substr(8))};
}

std::size_t frame_bytes(const Message& message) {
  const TypeEntry& entry = kTypes[message.index()];
  const Payload* const payload = payload_of(message);
  std::size_t bytes = entry.least;
  if (entry.least != entry.most) {
    Writer writer;
    std::visit([&](const auto& m) { fields(writer, m); }, message);
    bytes = writer.out().size();
  }
  return kHeaderSize + bytes + (payload == nullptr ? 0 : payload->bytes.size());
}

Result<Message> decode_fields(const Header& header, std::string_view bytes) {
  const TypeEntry& entry = entry_of(header);
  Message message = empty(&entry - kTypes, std::make_index_sequence<std::size(kTypes)>());
  const std::string wrong = std::visit(
      [&](auto& m) {
        Reader reader(bytes);
        fields(reader, m);
        const std::string& unread = reader.finish();
        return unread.empty() ? wrong_with(m, header) : unread;
      },
      message);
  if (wrong.empty()) return message;
  return broken("A ", entry.name, " (request ", header.request, ") has ", wrong, ".");
}

Result<Message> decode(std::string_view frame, Stage stage) {
  if (frame.size() < kHeaderSize)
    return broken("A frame ends after ", frame.size(), " bytes, inside its header.");
  const Result<Header> header = decode_header(frame, stage);
  TRY(header);
  const std::string_view rest = frame.substr(kHeaderSize);
  if (rest.size() != header.value().length)
    return broken("A ", entry_of(header.value()).name, " has ", rest.size(),
                  " bytes after its header, which says ", header.value().length, ".");
  TRY(check_crc(header.value(), crc32c(rest, crc_of_header(frame))));
  if (header.value().lent)
    return broken("A ", entry_of(header.value()).name,
                  " has its numbers in the memory of a machine, and came without it.");
  Result<Message> message =
      decode_fields(header.value(), rest.substr(0, header.value().field_bytes()));
  TRY(message);
  if (const auto bytes = std::as_bytes(std::span(rest).subspan(header.value().field_bytes()));
      !bytes.empty())
    std::ranges::copy(bytes, allocate(*payload_of(message.value()), bytes.size()).begin());
  return message;
}

}  // namespace shoal::table
