// libFuzzer over everything that reads a peer's bytes (make fuzz). What can be read must be written
// as the same bytes.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "shoal/base/bytes.h"
#include "shoal/table/coordinator/bodies.h"
#include "shoal/table/wire.h"

namespace {

namespace table = shoal::table;
using shoal::Code;
using shoal::crc32c;
using shoal::get_le;
using shoal::put_le;
using shoal::Result;

void must(bool truth) {
  if (!truth) std::abort();
}

std::string whole(const table::Frame& frame) {
  return frame.head + std::string(reinterpret_cast<const char*>(frame.payload.bytes.data()),
                                  frame.payload.bytes.size());
}

template <class Body>
void check_body(std::string_view bytes, Result<Body> (*read)(std::string_view)) {
  const Result<Body> body = read(bytes);
  if (body.ok())
    must(table::encode(body.value()) == bytes);
  else
    must(!body.error().message.empty());
}

void check_frame(std::string_view frame, table::Stage stage) {
  const Result<table::Message> message = table::decode(frame, stage);
  if (!message.ok())
    must(message.error().code == Code::kPeer && !message.error().message.empty());
  else
    must(whole(table::encode(message.value(), get_le<std::uint64_t>(frame.substr(8)))) == frame);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_body(bytes, table::decode<table::JoinBody>);
  check_body(bytes, table::decode<table::RosterBody>);
  check_body(bytes, table::decode<table::TaskReport>);
  check_body(bytes, table::decode<table::Start>);
  check_body(bytes, table::decode<table::AccountBody>);
  if (!bytes.empty()) check_body(bytes, table::decode<table::BeginBody>);
  check_frame(bytes, table::Stage::kPeer);
  if (size < table::kHeaderSize) return 0;
  // The same with the length and the crc that belong to it, which no fuzzer guesses.
  std::string right(bytes), length, crc;
  put_le(length, static_cast<std::uint32_t>(size - table::kHeaderSize));
  right.replace(0, 5, "SHOL\x01").replace(16, 4, length);
  put_le(crc, crc32c(std::string_view(right).substr(table::kHeaderSize),
                     crc32c(std::string_view(right).substr(0, 20))));
  right.replace(20, 4, crc);
  check_frame(right, table::Stage::kPeer);
  check_frame(right, table::Stage::kStranger);
  return 0;
}
