#include "shoal/table/link/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "shoal/base/try.h"
#include "shoal/table/broken.h"

namespace shoal::table {
namespace {

constexpr std::size_t kLine = 64;  // bytes; pieces begin at one
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Error failed(const char* what) {
  return broken("cannot use shared memory (", what, ": ", std::strerror(errno), ")");
}

// Maps a file. Errors are kPeer.
Result<Mapping> map(const Descriptor& file, std::size_t bytes, int access) {
  void* const at = ::mmap(nullptr, bytes, access, MAP_SHARED, file.number(), 0);
  if (at == MAP_FAILED) return failed("mmap");
  return Mapping{.bytes = {static_cast<std::byte*>(at), bytes},
                 .owner = {at, [bytes](void* mapped) { ::munmap(mapped, bytes); }}};
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::create(std::size_t bytes) {
  Descriptor file(::memfd_create("shoal", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.number() < 0) return failed("memfd_create");
  if (::ftruncate(file.number(), static_cast<off_t>(bytes)) != 0) return failed("ftruncate");
  if (::fcntl(file.number(), F_ADD_SEALS, kSeals) != 0) return failed("seals");
  Result<Mapping> mapping = map(file, bytes, PROT_READ | PROT_WRITE);
  TRY(mapping);
  return std::make_shared<SharedMemory>(std::move(file), std::move(mapping).value());
}

SharedMemory::SharedMemory(Descriptor file, Mapping mapping)
    : file_(std::move(file)), mapping_(std::move(mapping)), free_{{0, size()}}, left_(size()) {}

// Returns the first piece that is long enough, so that memory used again is in a cache.
std::shared_ptr<std::byte[]> SharedMemory::allocate(std::size_t bytes, std::size_t reserve) {
  const std::size_t length = (bytes + kLine - 1) / kLine * kLine;
  MutexLock lock(mutex_);
  const auto found = std::ranges::find_if(
      free_, [length](const auto& piece) { return piece.second - piece.first >= length; });
  if (found == free_.end() || left_ < length + reserve) return nullptr;
  const auto [begin, end] = *found;
  free_.erase(found);
  if (begin + length < end) free_[begin + length] = end;
  left_ -= length;
  return {mapping_.bytes.data() + begin,
          [self = shared_from_this(), begin, length](const std::byte*) {
            self->release(begin, begin + length);
          }};
}

void SharedMemory::release(std::size_t begin, std::size_t end) {
  MutexLock lock(mutex_);
  left_ += end - begin;
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    end = next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && std::prev(next)->second == begin)
    std::prev(next)->second = end;
  else
    free_[begin] = end;
}

std::optional<std::size_t> SharedMemory::find(std::span<const std::byte> bytes) const {
  const auto at = reinterpret_cast<std::uintptr_t>(bytes.data()),
             first = reinterpret_cast<std::uintptr_t>(mapping_.bytes.data());
  if (at < first || at + bytes.size() > first + size()) return std::nullopt;
  return at - first;
}

void SharedMemory::abandon(std::shared_ptr<const void> piece) {
  MutexLock lock(mutex_);
  abandoned_.push_back(std::move(piece));
}

void SharedMemory::reclaim() {
  std::vector<std::shared_ptr<const void>> freed;  // without the mutex
  MutexLock lock(mutex_);
  freed.swap(abandoned_);
}

Result<BorrowedMemory> BorrowedMemory::create(const Descriptor& file, std::size_t bytes) {
  struct stat found {};
  if (::fstat(file.number(), &found) != 0) return failed("fstat");
  if (static_cast<std::size_t>(found.st_size) != bytes || bytes == 0)
    return broken("the shared memory has ", found.st_size, " bytes instead of the offered ", bytes);
  const int seals = ::fcntl(file.number(), F_GET_SEALS);  // -1: a file that can have none
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return broken("the shared memory is not sealed: its owner could shrink it");
  Result<Mapping> mapping = map(file, bytes, PROT_READ);
  TRY(mapping);
  return BorrowedMemory(std::move(mapping).value());
}

Result<std::span<const std::byte>> BorrowedMemory::look(const Lent& lent) const {
  const std::size_t size = mapping_.bytes.size();
  if (lent.offset <= size && lent.bytes <= size - lent.offset && lent.bytes > 0)
    return std::span<const std::byte>(mapping_.bytes.subspan(lent.offset, lent.bytes));
  return broken("A frame places ", lent.bytes, " bytes of numbers at offset ", lent.offset,
                " of shared memory that has ", size, ".");
}

}  // namespace shoal::table
