// Hands the memory that a process lends to others of this machine, over a unix socket: to a process
// of this user that has its key and proves that it knows the job's token. The receiver requires the
// same proof of the process that hands it over.
#pragma once

#include <set>

#include "shoal/base/mutex.h"
#include "shoal/table/link/shared_memory.h"
#include "shoal/table/link/strand.h"

namespace shoal::table {

// Hands memory over. Functions may be called on any thread.
class Handover : public std::enable_shared_from_this<Handover> {
 public:
  // Listens at an abstract address with a name drawn at random, which goes with the process. Errors
  // are kPeer.
  static Result<std::shared_ptr<Handover>> create(IoThreads& threads, const std::string& token);

  SharedMemory& memory() const { return *memory_; }
  const Offer& offer() const { return offer_; }  // of it
  // Calls `done` once on the strand, within some seconds: errors (kPeer) say why there is none.
  void fetch(const Strand& strand, const Offer& offer,
             std::function<void(Result<BorrowedMemory>)> done) const;

  // Notes that the rank lends its memory: one line of the log names all ranks that did soon after
  // one another.
  void note(Rank rank);

  Handover(const Strand& strand, std::string token, std::shared_ptr<SharedMemory> memory);
  ~Handover();

 private:
  void say_noted();

  const Strand strand_;
  const std::string token_;
  const std::shared_ptr<SharedMemory> memory_;
  const Offer offer_;
  Mutex mutex_;
  std::set<Rank> noted_ GUARDED_BY(mutex_);
};

}  // namespace shoal::table
