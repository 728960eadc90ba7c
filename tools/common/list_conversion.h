// Converts the pictures that a list names to the records of a new database: what convert_imageset
// and convert_annoset share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shoal/base/random.h"
#include "shoal/data/image.h"

namespace shoal {

struct ListConversion {
  std::string tool, backend;
  std::string list, root, path;  // the list's path; what stands before each picture's; the database
  std::string pictures;          // what they are called: "images"
  int threads = 0;               // 0: one a core
  bool check_size = false;       // all are as large as the first
};

struct ListedRecord {
  std::string path;        // of the picture, behind root
  std::uint64_t line = 0;  // of the list, from 1
};

struct ConvertedRecord {
  std::string value;  // a serialised record
  ImageSize size;
  std::string trouble;  // not empty: why there is no value
};

// Writes what `convert` makes of each record, in order, under keys of its place and its path; it is
// called on several threads at once. Those that are in trouble are left out and listed at the end.
// Returns the tool's exit code. Throws ConfigError as Conversion does, and if no record is good.
int convert_list(const ListConversion& options, const std::vector<ListedRecord>& records,
                 const std::function<ConvertedRecord(std::size_t)>& convert);

// Throws ConfigError (kUsage) unless --threads makes sense.
void check_threads(int threads);

// Puts `all` in an order that is drawn.
template <class T>
void shuffle(std::vector<T>& all, Random& random) {
  for (std::size_t left = all.size(); left > 1; --left)
    std::swap(all[left - 1], all[random.below(left)]);
}

}  // namespace shoal
