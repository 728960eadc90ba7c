#include "common/net_flags.h"

#include <algorithm>
#include <set>
#include <vector>

#include "common/machine.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/proto/io.h"

DEFINE_int32(level, 0, "the net's level, for include and exclude rules");
DEFINE_string(stage, "", "the net's stages, separated by commas, for include and exclude rules");

namespace shoal {

void set_state_of_flags(const std::string& phase, NetState& state) {
  set_state(phase, FLAGS_level, FLAGS_stage, state);
}

void load_weights(const std::string& files, Net& net) {
  std::set<std::string> untrained;
  for (const auto& layer : net.layers())
    if (!layer->params().empty()) untrained.insert(layer->name());
  for (const std::string& file : split(files, ',')) {
    const std::vector<std::string> kept = net.copy_weights(read_weights(file), file);
    std::erase_if(untrained, [&](const auto& name) { return !std::ranges::count(kept, name); });
  }
  if (untrained.empty()) return;
  const std::vector<std::string> names(untrained.begin(), untrained.end());
  LOG(WARNING) << "no file of --weights=" << files << " has params for " << join(names)
               << ": these layers are untrained, and what they compute is meaningless";
}

}  // namespace shoal
