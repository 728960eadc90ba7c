// Makes batches ahead of the net: one thread reads records in order, a small pool decodes and
// transforms them, the net's thread takes whole batches in order. What is in batch k depends on the
// records and the seed alone, never on the number of threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "shoal/base/error.h"
#include "shoal/data/batch.h"
#include "shoal/data/item_source.h"
#include "shoal/tensor/device.h"

namespace shoal {

struct PrefetchOptions {
  int batch_size = 1;                    // >= 1
  const Device* device = &cpu_device();  // that reads the batches; outlives the prefetch
  int depth = 4;                         // batches ready or in the making, >= 1
  // Threads that decode and transform, >= 1, beside the one that reads.
  int threads = 1;
  OnBadRecord on_bad = OnBadRecord::kStop;
  PixelForm form = PixelForm::kNumbers;  // of records of bytes; a batch with others is of numbers
  int held = 1;                          // batches that are the caller's at a time, >= 1
  std::uint64_t start = 0;               // the n of the first item
  std::size_t least_bytes = 0;           // the memory of each batch's numbers is as large at least
  // The wait for a batch that does not come; a tenth of it gives a warning.
  std::chrono::milliseconds deadline{600'000};
};

// The good records of a batch decide its size: the size of most of them, or of the first if as many
// have another. A record of another size is a bad one, so that under kSkip and kReplace
// a stray one does no harm wherever it stands.
class Prefetch {
 public:
  // Starts the threads. They end, and are joined, in the destructor.
  Prefetch(ItemSource& source, const PrefetchOptions& options);
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;

  // Returns the next batch, which is the caller's to read and to write until it has called next()
  // `held` more times. Its numbers' memory is at least as large as that of every batch before.
  // After an error (which names the record and the file) every call returns it again.
  Result<const Batch*> next();
  // Returns whether next() would return without waiting.
  bool ready() const;
  // Returns the seconds that next() has waited, all calls together.
  double seconds_waited() const;

 private:
  class Machinery;
  std::unique_ptr<Machinery> machinery_;
};

// Threads for decode_threads: 0. A few pixels copied need one; pictures to decode get half of the
// machine, four at most.
int default_decode_threads(bool decodes_pictures);

}  // namespace shoal
