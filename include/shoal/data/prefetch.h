// Makes batches ahead of the net: one thread reads records in order, a small pool decodes and
// transforms them, the net's thread takes whole batches in order. What is in batch k depends on the
// records and the seed alone, never on the number of threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/data/batch.h"
#include "shoal/data/image.h"
#include "shoal/tensor/device.h"

namespace shoal {

// A record on its way. Reused, so that its strings keep their memory.
struct Item {
  std::uint64_t n = 0;      // of all records that the net reads, from 0
  std::string name;         // key, or path and line: for error messages
  std::string bytes;        // a serialised Datum, or nothing for a listed image
  std::uint64_t index = 0;  // of a listed image, in its list
};

// The size and kind of a record, known once it was decoded.
struct ItemKind {
  ImageSize size;        // of what make writes
  bool picture = false;  // JPEG or the like, not plain pixels
  bool bytes = false;    // each pixel is a byte
};

// The records that a data layer reads. read is called on one thread at a time, make on several at
// once.
class ItemSource {
 public:
  virtual ~ItemSource() = default;
  virtual const std::string& path() const = 0;
  // Fills the item of item.n; n mostly rises by one from call to call. An error here ends the run:
  // the source itself is broken.
  virtual Status read(Item& item) = 0;
  // Decodes `item` to find its size and kind. Errors as for make.
  virtual Result<ItemKind> kind(const Item& item) const = 0;
  // Writes the sample's size (resize), numbers and label. An error is a bad record, and its words
  // follow "the record K of S ".
  virtual Status make(const Item& item, Sample& sample) const = 0;
  // Writes the numbers that make would have written of a sample in bytes, if it wanted none. Is
  // asked only if make writes bytes.
  virtual void make_numbers(const Sample& in_bytes, std::span<float> numbers) const;
};

enum class OnBadRecord {
  kStop,     // the batch is an error
  kSkip,     // the record is left out; those after it move up
  kReplace,  // the next good record is used here too
};

struct PrefetchOptions {
  int batch_size = 1;                    // >= 1
  const Device* device = &cpu_device();  // that reads the batches; outlives the prefetch
  int depth = 4;                         // batches ready or in the making, >= 1
  // that decode and transform, >= 1, beside the one that reads
  int threads = 1;
  OnBadRecord on_bad = OnBadRecord::kStop;
  PixelForm form = PixelForm::kNumbers;  // of records of bytes; a batch with others is of numbers
  int held = 1;                          // batches that are the caller's at a time, >= 1
  std::uint64_t start = 0;               // the n of the first item
  std::size_t least_bytes = 0;           // the memory of each batch's numbers is as large at least
  // for a batch that does not come; a tenth of it gives a warning
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
  // Whether next() would return without waiting.
  bool ready() const;
  // Seconds that next() has waited, all calls together.
  double seconds_waited() const;

 private:
  class Machinery;
  std::unique_ptr<Machinery> machinery_;
};

// Threads for decode_threads: 0. A few pixels copied need one; pictures to decode get half of the
// machine, four at most.
int default_decode_threads(bool decodes_pictures);

// The kind of item n, or of the first good one after it unless `on_bad` is kStop. For layers that
// must know their shapes before they start.
Result<ItemKind> probe(ItemSource& source, std::uint64_t n, OnBadRecord on_bad);

}  // namespace shoal
