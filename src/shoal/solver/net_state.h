// The state of a net between iterations, beside its params: random numbers and its layers' state.
#pragma once

#include <string>
#include <vector>

#include "shoal/proto/run.pb.h"

namespace shoal {

class Net;

void put_random(Net& net, RandomState& out);
void put_state(Net& net, NetRunState& out);  // put_random's part, too
// Takes what put_state wrote, read from `file`; random numbers stay as they are if there are none
// in it. Throws ConfigError where a layer cannot take its part.
void take_state(Net& net, const NetRunState& from, const std::string& file);

// Takes a state where the data is divided among other nets than before: `own`, null if this net is
// new, among the states of all that divided it, in order.
void take_over_state(Net& net, const NetRunState* own, const std::vector<const NetRunState*>& all,
                     const std::string& file);

// Returns a member's part of the gather for a snapshot; `run` is its own.
MemberState member_state(const RunState& run);
// Returns the states of net `index` on all members, in the order in which they divide the data; for
// the train net their replicas' too.
std::vector<const NetRunState*> states_of_all(const RunState& run, int index);
// Returns the state of member `index` of `size` in `run`, which a team of any size saved.
RunState run_of_member(RunState run, int index, int size);

}  // namespace shoal
