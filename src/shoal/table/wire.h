// Messages as bytes: docs/reference/protocol.md, which this follows to the byte.
//
// A frame is a header of 24 bytes, then the message's fields, then, for messages that carry a row's
// numbers, a payload to the end. Everything is little-endian. The crc32c covers all of the frame
// but itself: the header's first 20 bytes, fields and payload. (Without the header, one flipped bit
// of the type would make an Answer of an Ask.)
//   0 u32 magic   4 u8 version   5 u8 type   6 u16 bytes of fields   8 u64 request
//   16 u32 bytes after the header   20 u32 crc32c
// The payload may lie in memory that the sender lends the receiver (Offer): then the type has bit
// 7, and in the payload's place is where it lies.
#pragma once

#include <optional>

#include "shoal/table/messages.h"

namespace shoal::table {

inline constexpr std::uint32_t kMagic = 0x4c4f4853;  // "SHOL"
// The version of all frames that a stranger may send, in every version of the protocol.
inline constexpr std::uint8_t kFirstVersion = 1;
inline constexpr std::size_t kHeaderSize = 24;

struct Header {
  std::uint8_t version = kProtocolVersion;
  std::uint8_t type = 0;  // the number of the message's type
  bool lent = false;      // the payload is in the sender's memory
  // Bytes of fields. 0xffff for messages without a payload and with longer fields: then all bytes
  // are fields.
  std::uint16_t fields = 0;
  // The sender's number of the frame, rising by one a frame. It names a frame in errors.
  std::uint64_t request = 0;
  std::uint32_t length = 0;  // bytes after the header
  std::uint32_t crc = 0;

  std::size_t field_bytes() const { return fields == 0xffff ? length : fields; }
  std::size_t payload_bytes() const { return length - field_bytes(); }
};

// The place of a payload in the memory that its sender has offered.
struct Lent {
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};
inline constexpr std::size_t kLentBytes = 12;

// A frame ready to be gathered: header and fields in one string, the payload where it is. It must
// not change until it was sent, for its checksum is made here.
struct Frame {
  std::string head;
  Payload payload;
  std::size_t bytes() const { return head.size() + payload.bytes.size(); }
};
// `lent`: the place of the message's payload, which then is not in the frame.
Frame encode(const Message& message, std::uint64_t request, const std::optional<Lent>& lent = {});
Lent decode_lent(std::string_view bytes);         // kLentBytes
std::size_t frame_bytes(const Message& message);  // of the frame that encode() makes of it

// The stage of a connection, which decides what it may send: before its Hello was answered, and
// after.
enum class Stage { kStranger, kPeer };
// Checks magic, version, type and length before anything is allocated. Errors are kPeer and say
// what was found and what was expected, and what the other end may be (an HTTP client, another
// version, a process of another byte order).
// `bytes`: kHeaderSize or more; likewise in crc_of_header().
Result<Header> decode_header(std::string_view bytes, Stage stage);
// Checks the magic in the first four bytes or more: what is no frame need not be waited for.
Status check_magic(std::string_view bytes);
// Returns the crc32c of the header's bytes before its own crc, to continue with.
std::uint32_t crc_of_header(std::string_view bytes);
// Returns ok if the crc of a frame's bytes is the one in its header; else an error that names the
// damage.
Status check_crc(const Header& header, std::uint32_t crc);

// Returns the message of a header's fields, without the bytes of its payload. Checks every length
// and enum value.
Result<Message> decode_fields(const Header& header, std::string_view fields);
// Returns the payload of Init, Push, RowMessage and Update; null for the others.
Payload* payload_of(Message& message);
const Payload* payload_of(const Message& message);

// Decodes a whole frame, where bytes come whole: header, fields, crc and payload, which is copied.
Result<Message> decode(std::string_view frame, Stage stage);

}  // namespace shoal::table
