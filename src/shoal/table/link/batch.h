// Frames that are handed to the system together, in one gather write or as many as it takes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "shoal/table/wire.h"

namespace shoal::table {

class Batch {
 public:
  static constexpr std::size_t kMostPieces = 64;  // of a gather write: as many as Asio passes on

  bool empty() const { return frames_.empty(); }
  bool has_room(std::size_t limit) const {
    return unsent_ < limit && frames_.size() < kMostPieces / 2;
  }
  void add(Frame frame);
  std::size_t unsent() const { return unsent_; }  // bytes
  // The pieces not sent yet, up to `limit` bytes of them. Good until the batch changes.
  using Pieces = std::array<std::string_view, kMostPieces>;
  std::size_t pieces(Pieces& out, std::size_t limit) const;
  // So many bytes were sent. Returns how many frames are whole with them; when all are, the batch
  // is empty.
  std::size_t sent(std::size_t bytes);
  // Numbers without an owner are copied: their memory is not touched any more.
  void own();

 private:
  std::vector<Frame> frames_;
  // the first frame that is not whole, and how much of it was sent
  std::size_t first_ = 0, offset_ = 0;
  std::size_t unsent_ = 0;
};

}  // namespace shoal::table
