// Brings all members of a team to the end of one iteration after a loss in the middle of one: the
// parts of the params that each has, and the steps by which the chief, or, if that is
// lost, the next member, gets the newest of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

// The exchanges of an updater, or one of them, on a member that a loss has interrupted
// (Code::kInterrupted). Their params are in units: params that are updated together, numbered alike
// on all members. A unit has a version: the number of iterations whose updates it holds. Members
// with the same version of a unit have the same bits. Bytes are of processors that order them
// alike.
//
// With T the least `done` of all members, no unit has a version above T, and a member has what it
// added to each update from its unit's version to T. So the newest version of each unit that a
// member has, and the updates from there to T, make the params of T: the chief's, from which all go
// on. What was done beyond T is forgotten.
class Recoverable {
 public:
  virtual ~Recoverable() = default;

  // In place of a version: the servers have the unit's numbers at T, for a member that has done T
  // iterations and can fetch them; this member has no numbers that count.
  static constexpr std::int64_t kOnServers = -1, kNothing = -2;
  struct Standing {
    std::int64_t done = 0;  // iterations whose gradients are all computed, and were handed in
    std::vector<std::int64_t> versions{};  // by unit
  };
  // Ends what is under way, as far as that needs no other member.
  virtual Result<Standing> interrupt() { return Standing(); }
  // Brings this member's unit to its version (kOnServers: to T).
  virtual Status fetch_unit(std::size_t) { return {}; }
  // Appends the unit's params and histories; replaces them by those of a member that has this
  // version.
  virtual void give_unit(std::size_t, std::string&) {}
  virtual Status take_unit(std::size_t, std::int64_t /*version*/, std::string_view) { return {}; }
  // Appends this member's part of the unit's update in this iteration.
  virtual void give_part(std::size_t, std::int64_t /*iteration*/, std::string&) {}
  // Makes the gradient of all parts, by member ("": it is lost). Returns its squares, if they are
  // to be clipped.
  virtual Result<double> sum_parts(std::size_t, std::int64_t /*iteration*/,
                                   std::span<const std::string_view>) {
    return 0;
  }
  // Updates the unit with this gradient. `squares`: of all units.
  virtual void update_unit(std::size_t, double /*squares*/) {}
  // Ends the recovery: this member has done `iterations`, and, if it `leads` or may yet, has the
  // params of that. It makes no other step, and nothing of it waits for others any more.
  virtual void go_on_from(std::int64_t /*iterations*/, bool /*leads*/) {}
};

// The error of a recovery in which no member has the params: those that had given them to the
// others are lost, and these had not got them yet. All go on with the state with which they began.
Error nobody_has_params();
bool is_without_params(const Error& error);

// Appends numbers to bytes; reads numbers from the front of bytes, where there are as many.
inline void put_numbers(std::span<const float> numbers, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
}
Status get_numbers(std::string_view& bytes, std::span<float> numbers);

}  // namespace shoal
