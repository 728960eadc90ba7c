// Memory that a process lends others of its machine: long payloads lie there, and frames have their
// places.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "shoal/base/mutex.h"
#include "shoal/table/wire.h"

namespace shoal::table {

// An open file, closed with this.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  int number() const { return number_; }  // -1: none

 private:
  int number_;
};

// Bytes of a file as they are mapped, until nothing holds `owner`.
struct Mapping {
  std::span<std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// The sender's end, one of a process: pieces of a file without a name. Functions may be called on
// any thread.
class SharedMemory : public std::enable_shared_from_this<SharedMemory> {
 public:
  // Creates a file of a fixed length. Only the parts that were in use at one time take memory.
  // Errors are kPeer.
  static Result<std::shared_ptr<SharedMemory>> create(std::size_t bytes);
  const Descriptor& file() const { return file_; }
  std::size_t size() const { return mapping_.bytes.size(); }

  // Returns a piece that is free again when nothing holds it; null if it leaves less than `reserve`
  // bytes.
  std::shared_ptr<std::byte[]> allocate(std::size_t bytes, std::size_t reserve = 0);
  // Returns the place of the bytes in the file, if they are in it.
  std::optional<std::size_t> find(std::span<const std::byte> bytes) const;
  // Never frees this piece again: a process may still read it, and nothing will say when it has.
  void abandon(std::shared_ptr<const void> piece);
  // Frees abandoned pieces: no process reads any more.
  void reclaim();

  SharedMemory(Descriptor file, Mapping mapping);

 private:
  void release(std::size_t begin, std::size_t end);

  const Descriptor file_;
  const Mapping mapping_;
  Mutex mutex_;
  std::map<std::size_t, std::size_t> free_ GUARDED_BY(mutex_);  // ends of what is free, by begin
  std::size_t left_ GUARDED_BY(mutex_);                         // bytes
  std::vector<std::shared_ptr<const void>> abandoned_ GUARDED_BY(mutex_);
};

// The receiver's end.
class BorrowedMemory {
 public:
  // Maps it. Errors (kPeer) if it is not so long, or could become shorter.
  static Result<BorrowedMemory> create(const Descriptor& file, std::size_t bytes);
  // Returns the bytes. Errors (kPeer) if they are not all in there.
  Result<std::span<const std::byte>> look(const Lent& lent) const;

 private:
  explicit BorrowedMemory(Mapping mapping) : mapping_(std::move(mapping)) {}
  Mapping mapping_;
};

}  // namespace shoal::table
