// The records of golden files as a database.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace shoal::test {

// Images of `bytes` channels x height x width each, as records in the order given.
struct Images {
  int channels, height, width;
  std::vector<std::pair<std::string, int>> items;  // pixels, label
};

// Writes an LMDB of Datums. Throws ConfigError if it cannot.
void write_lmdb(const Images& images, const std::string& path);

// Reads the bytes of MNIST's two files.
Images mnist_of(const std::string& images, const std::string& labels);
// Reads the bytes of CIFAR-10's records.
Images cifar_of(const std::string& records);

}  // namespace shoal::test
