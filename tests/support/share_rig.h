// Kinds of sources that several nets may read, with records that say where each of their pixels
// was.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <string>

#include "shoal/data/image.h"
#include "support/data_files.h"

namespace shoal::test {

inline constexpr int kSide = 4;

// Record i has the label i and pixels that say where each is.
inline std::string pixels_of(int i) {
  std::string pixels;
  for (int p = 0; p < kSide * kSide; ++p) pixels.push_back(static_cast<char>(16 * (i % 13) + p));
  return pixels;
}

inline Records labelled(int first, int count) {
  Records records;
  for (int i = first; i < first + count; ++i)
    records.emplace_back(str("k", 100 + i), datum(1, kSide, kSide, pixels_of(i), i));
  return records;
}

// A kind of source, and how to make one of records first .. first + count - 1 and to name it in a
// prototxt.
struct Kind {
  std::string name;
  bool by_processes = true;  // several may share one source

  void write(const std::string& path, int first, int count) const {
    if (name != "imagelist") {
      ASSERT_OK(write_records(name, path, labelled(first, count)));
      return;
    }
    std::string list;
    for (int i = first; i < first + count; ++i) {
      const std::string pixels = pixels_of(i);
      put_file(str(path, ".", i, ".png"),
               or_throw(encode_image({{1, kSide, kSide}, {pixels.begin(), pixels.end()}}, "png")));
      list += str(path, ".", i, ".png ", i, "\n");
    }
    put_file(path, list);
  }
  std::string layer(const std::string& path, const std::string& more) const {
    std::string upper = name;
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    const std::string transform = " transform_param { crop_size: 2 mirror: true }",
                      source = "source: '" + path + "' " + more;
    if (name == "imagelist")
      return "type: 'ImageData' top: 'data' top: 'label' image_data_param { is_color: false " +
             source + " }" + transform;
    return "type: 'Data' top: 'data' top: 'label' data_param { backend: " + upper + " " + source +
           " }" + transform;
  }
};

inline void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

inline const std::string kShared = "shared_file_system: true ";

}  // namespace shoal::test
