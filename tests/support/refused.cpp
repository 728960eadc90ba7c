#include "support/refused.h"

#include <gtest/gtest.h>

#include "shoal/base/error.h"
#include "support/layer_rig.h"

namespace shoal::test {

LayerParameter layer_with(const std::string& type, std::size_t bottoms, const std::string& rest,
                          int tops) {
  std::string text = str("layer { name: 'it' type: '", type, "' ");
  for (std::size_t i = 0; i < bottoms; ++i) text += str("bottom: 'b", i, "' ");
  for (int i = 0; i < tops; ++i) text += str("top: 't", i, "' ");
  return parse_layer(text + rest + " }");
}

std::string refusal(const Refused& c) {
  try {
    LayerRig rig(layer_with(c.type, c.bottoms.size(), c.rest, c.tops), c.bottoms);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.error().code, Code::kConfig);
    return error.what();
  }
  return "nothing was refused";
}

void expect_refused(std::span<const Refused> cases) {
  for (const Refused& c : cases) {
    const std::string words = refusal(c);
    EXPECT_TRUE(words.starts_with(str("layer 'it' (", c.type, "): ")) &&
                words.find(c.words) != std::string::npos)
        << c.rest << "\nsaid: " << words << "\nwant: " << c.words;
  }
}

}  // namespace shoal::test
