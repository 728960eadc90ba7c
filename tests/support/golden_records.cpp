#include "support/golden_records.h"

#include <cstdio>

#include "shoal/data/record.h"

namespace shoal::test {

void write_lmdb(const Images& images, const std::string& path) {
  auto writer = or_throw(create_writer("lmdb", path));
  for (std::size_t i = 0; i < images.items.size(); ++i) {
    Datum datum;
    datum.set_channels(images.channels);
    datum.set_height(images.height);
    datum.set_width(images.width);
    datum.set_data(images.items[i].first);
    datum.set_label(images.items[i].second);
    char key[24];
    std::snprintf(key, sizeof key, "%08zu", i);
    or_throw(writer->put(key, datum.SerializeAsString()));
  }
  or_throw(writer->finish());
}

Images mnist_of(const std::string& images, const std::string& labels) {
  constexpr std::size_t kPixels = 28 * 28, kImageHead = 16, kLabelHead = 8;
  Images result{1, 28, 28, {}};
  for (std::size_t i = 0; kImageHead + (i + 1) * kPixels <= images.size(); ++i)
    result.items.emplace_back(images.substr(kImageHead + i * kPixels, kPixels),
                              static_cast<unsigned char>(labels.at(kLabelHead + i)));
  return result;
}

Images cifar_of(const std::string& records) {
  constexpr std::size_t kPixels = 3 * 32 * 32;
  Images result{3, 32, 32, {}};
  for (std::size_t at = 0; at + 1 + kPixels <= records.size(); at += 1 + kPixels)
    result.items.emplace_back(records.substr(at + 1, kPixels),
                              static_cast<unsigned char>(records[at]));
  return result;
}

}  // namespace shoal::test
