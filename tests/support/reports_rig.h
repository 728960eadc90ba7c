// The fixture of tests that repeat public bug reports on the tools, and small nets for them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "shoal/data/image.h"
#include "support/data_tools.h"
#include "support/expect.h"

#define EXPECT_LACKS(text, part) EXPECT_EQ((text).find(part), std::string::npos) << (text)

namespace shoal::test {

class Reports : public DataTools {
 protected:
  std::string at(const std::string& name) const { return directory_ + "/" + name; }

  // Trains the net for so many iterations; `more` are further fields of the solver.
  Ran train(const std::string& net, const std::string& more, const std::string& flag = "") {
    put_file(at("net.prototxt"), net);
    put_file(at("solver.prototxt"),
             str("net: '", at("net.prototxt"), "' base_lr: 0.1 lr_policy: 'fixed' display: 1 ",
                 "random_seed: 1 snapshot_prefix: '", at("m"), "' ", more));
    std::vector<std::string> words = {"train", "--solver=" + at("solver.prototxt"), "--threads=1"};
    if (!flag.empty()) words.push_back(flag);
    return run(words);
  }
  Ran time_of(const std::string& net) {
    put_file(at("net.prototxt"), net);
    return run({"time", "--model=" + at("net.prototxt"), "--iterations=1", "--threads=1"});
  }
  // A picture of 4 x 6 pixels, dark above and bright below.
  static Image picture(int channels = 3) {
    Image image{{channels, 4, 6},
                std::vector<std::uint8_t>(static_cast<std::size_t>(24 * channels))};
    std::fill(image.pixels.begin() + 12 * channels, image.pixels.end(), 240);
    return image;
  }
  static std::string encoded_datum(const std::string& picture, int label) {
    Datum made;
    made.set_encoded(true);
    made.set_data(picture);
    made.set_label(label);
    return made.SerializeAsString();
  }
};

inline constexpr const char* kConstant =
    "layer { name: 'in' type: 'DummyData' top: 'x' top: 'label' dummy_data_param { shape { dim: 8 "
    "dim: 6 } shape { dim: 8 } data_filler { type: 'constant' value: 1 } data_filler { type: "
    "'constant' value: 1 } } }\n";
inline constexpr const char* kProduct =
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' param { name: 'w' } param { "
    "name: 'b' } inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }\n";
inline constexpr const char* kLoss =
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

// Returns the words that follow each place of `words` in the text.
inline std::vector<std::string> values_of(const std::string& log, const std::string& words) {
  std::vector<std::string> found;
  for (std::size_t at = 0; (at = log.find(words, at)) != std::string::npos; at += words.size()) {
    const std::size_t begin = at + words.size();
    found.push_back(log.substr(begin, log.find_first_of(" \n", begin) - begin));
  }
  return found;
}

}  // namespace shoal::test
