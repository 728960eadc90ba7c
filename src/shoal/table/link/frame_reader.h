// Assembles messages from the bytes of a connection, which come in pieces of any size. Numbers are
// read straight to where they belong, small frames many at a time through a buffer.
#pragma once

#include "shoal/table/wire.h"

namespace shoal::table {

// Says where the payloads of messages go that come by a connection. On its strand.
class PayloadPlaces {
 public:
  virtual ~PayloadPlaces() = default;
  // Returns where so many bytes, the payload of the message, go. If that is shorter, they are read
  // and thrown away. It may set the bytes and owner of the message's payload itself; otherwise the
  // payload will be this span when the message is received.
  virtual std::span<std::byte> place(Message&, std::size_t) { return {}; }
  // Returns whether the message's payload, which the peer lends in memory of its own, may stay
  // there until its owner is gone. If not, place() is called.
  virtual bool keeps(const Message&) { return false; }
};

class FrameReader : public PayloadPlaces {
 public:
  // The places of the next bytes, in this order; `numbers` may be empty. Good until took().
  struct Room {
    std::span<char> numbers, buffer;
  };
  Room room();
  // Handles so many bytes written there. Errors are kPeer: they are no frame, or a damaged one.
  Status took(std::size_t bytes);

  void set_stage(Stage stage) { stage_ = stage; }
  // Returns whether more bytes of a frame must come.
  bool midway() const { return part_ != Part::kHeader || begin_ != end_; }

 protected:
  // Returns the bytes of a payload in memory, good until the next call. Errors as those of took().
  virtual Result<std::span<const std::byte>> borrow(const Lent& lent) = 0;
  // Returns the owner of the bytes borrowed last, which become a payload where they lie.
  virtual std::shared_ptr<const void> kept() = 0;
  // Handles a whole frame whose checksum is right. It may change the stage. After an error nothing
  // more is read.
  virtual Status frame(Message&& message) = 0;

 private:
  enum class Part { kHeader, kFields, kNumbers };
  std::string_view waiting() const { return {buffer_.data() + begin_, end_ - begin_}; }
  std::string_view use(std::size_t most);  // of what waits
  // Returns memory for the message's payload, which the message then has; empty: it is thrown away.
  std::span<std::byte> place_of(std::size_t bytes);
  // These return false if more bytes are needed.
  Result<bool> read_header();
  Result<bool> read_fields();
  Result<bool> read_lent(std::string_view where);
  Result<bool> read_numbers();

  Stage stage_ = Stage::kStranger;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of what is in the buffer and not yet used
  Part part_ = Part::kHeader;
  Header header_;
  std::uint32_t crc_ = 0;
  Message message_;
  std::span<char> direct_;  // the rest of where numbers go
  // Bytes of this part that have not come; more than direct_: to be thrown away.
  std::size_t left_ = 0;
};

}  // namespace shoal::table
