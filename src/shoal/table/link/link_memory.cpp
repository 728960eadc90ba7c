#include "shoal/table/link/link_memory.h"

#include <cstring>

#include "shoal/base/log.h"
#include "shoal/table/broken.h"

namespace shoal::table {
namespace {

// Bytes. Shorter payloads go with their frames.
constexpr std::size_t kWorthIt = 16 * 1024;

}  // namespace

LinkMemory::~LinkMemory() {
  for (Payload& payload : lent_) handover_->memory().abandon(std::move(payload.owner));
}

void LinkMemory::use(Result<BorrowedMemory> memory, Rank rank, std::function<void()> wake) {
  if (!memory.ok()) {
    LOG(INFO) << "cannot share memory with rank " << rank << " (" << memory.error().message
              << "): its rows come over TCP";
    return;
  }
  kept_ = std::make_shared<KeptPayloads>(std::move(memory).value(), std::move(wake));
  handover_->note(rank);
}

std::optional<Lent> LinkMemory::lend(const Message& message) {
  const Payload* const given = may_lend_ ? payload_of(message) : nullptr;
  if (given == nullptr || given->bytes.size() < kWorthIt) return std::nullopt;
  SharedMemory& memory = handover_->memory();
  Payload payload = *given;
  if (!payload.owner || !memory.find(payload.bytes)) {
    const std::shared_ptr<std::byte[]> copy = memory.allocate(payload.bytes.size());
    if (!copy) return std::nullopt;
    std::memcpy(copy.get(), payload.bytes.data(), payload.bytes.size());
    payload.bytes = {copy.get(), payload.bytes.size()};
    payload.owner = copy;
  }
  const Lent lent{*memory.find(payload.bytes), static_cast<std::uint32_t>(payload.bytes.size())};
  traffic_->bytes_sent += lent.bytes;
  traffic_->shared_bytes += lent.bytes;
  bytes_ += lent.bytes;
  lent_.push_back(std::move(payload));
  return lent;
}

Status LinkMemory::take_back(const Taken& taken) {
  may_lend_ = handover_ != nullptr;
  const std::uint64_t lent = returned_ + lent_.size();
  if (taken.payloads < taken_ || taken.payloads > lent)
    return broken("A Taken counts ", taken.payloads, " payloads taken from memory, but ", lent,
                  " were lent and ", taken_, " were counted before.");
  if (taken.done < returned_ || taken.done > taken.payloads)
    return broken("A Taken counts ", taken.done, " payloads returned, but ", taken.payloads,
                  " were taken and ", returned_, " were counted before.");
  for (; taken_ < taken.payloads; ++taken_) bytes_ -= lent_[taken_ - returned_].bytes.size();
  for (; returned_ < taken.done; ++returned_) lent_.pop_front();
  return {};
}

Result<std::span<const std::byte>> LinkMemory::borrow(const Lent& lent) {
  if (!kept_)
    return broken("A frame says that its numbers lie in shared memory, but none was offered.");
  ++borrowed_;
  traffic_->bytes_received += lent.bytes;
  return kept_->memory.look(lent);
}

std::shared_ptr<const void> LinkMemory::keep() {
  const std::uint64_t number = borrowed_ - 1;
  {
    MutexLock lock(kept_->mutex);
    kept_->numbers.insert(number);
  }
  return {kept_.get(), [kept = kept_, number](const void*) {
            {
              MutexLock lock(kept->mutex);
              kept->numbers.erase(number);
            }
            kept->wake();
          }};
}

Taken LinkMemory::state() const {
  MutexLock lock(kept_->mutex);
  return {borrowed_, kept_->numbers.empty() ? borrowed_ : *kept_->numbers.begin()};
}

std::optional<Message> LinkMemory::taken() {
  if (!owes()) return std::nullopt;
  said_ = state();
  return *said_;
}

}  // namespace shoal::table
