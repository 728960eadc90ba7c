// Finds which process of the job this one is, from the flags, the machinefile and a launcher's
// variables: its rank, its role, the number of processes and the address of process 0.
#include <utility>

#include "shoal/base/address.h"
#include "shoal/base/number.h"
#include "shoal/base/text.h"
#include "shoal/compat/launchers.h"
#include "shoal/parallel/cluster.h"

namespace shoal::parallel {
namespace {

// Finds a place from flags and a launcher's variables, one value after the other. Throws
// ConfigError if they are wrong.
class Finder {
 public:
  Finder(const PlaceFlags& flags, const compat::Variables& environment)
      : flags_(flags), environment_(environment) {}

  Place find() {
    if (!flags_.machinefile.empty())
      place_.machines =
          or_throw(parse_machinefile(flags_.machinefile_text, flags_.machinefile, flags_.format));
    find_rank();
    check_size();
    find_master();
    find_role();
    return std::move(place_);
  }

 private:
  template <class... Args>
  [[noreturn]] static void fail(const Args&... args) {
    throw ConfigError(Code::kUsage, args...);
  }

  int of_machinefile() const { return static_cast<int>(place_.machines.size()); }

  void find_rank() {
    if (flags_.num_clients && *flags_.num_clients < 1)
      fail("--num_clients=", *flags_.num_clients, "; it must be 1 or more");
    if (flags_.client_id) return rank_by_flag();
    launched_ = compat::launched_by(environment_);
    if (launched_) {
      place_.rank = launched_->rank;
      place_.processes = launched_->processes;
      place_.source = launched_->source;
      place_.interface = launched_->interface;
      place_.advertise = launched_->advertise;
      place_.verbosity = launched_->verbosity;
      place_.scheduler = launched_->scheduler;
      if (place_.rank == compat::kRankByOrder && of_machinefile() > 0)
        fail(flags_.machinefile, " says what each process is, and ", place_.source,
             " does not say which of them this one is: give --client_id");
      return;
    }
    place_.processes = of_machinefile() > 0 ? of_machinefile() : flags_.num_clients.value_or(1);
    if (place_.processes != 1) {
      const std::string what =
          of_machinefile() > 0 ? str(flags_.machinefile, " names ", place_.processes, " processes")
                               : str("--num_clients=", place_.processes);
      fail(what,
           ", and nothing says which of them this one is: give --client_id, or start it "
           "with a launcher (scripts/launch.py, torchrun, mpirun, srun)");
    }
    place_.source =
        of_machinefile() > 0 ? "the only process of " + flags_.machinefile : "one process alone";
  }

  void rank_by_flag() {
    if (!flags_.num_clients && of_machinefile() == 0)
      fail("--client_id=", *flags_.client_id, " without --num_clients or --machinefile");
    place_.rank = *flags_.client_id;
    place_.processes = of_machinefile() > 0 ? of_machinefile() : *flags_.num_clients;
    place_.source = str("flags (--client_id ", place_.rank,
                        of_machinefile() > 0 ? " of " + flags_.machinefile + ", "
                                             : std::string(" of --num_clients "),
                        place_.processes, of_machinefile() > 0 ? " processes)" : ")");
  }

  void check_size() {
    if (flags_.num_clients && *flags_.num_clients != place_.processes)
      fail("--num_clients=", *flags_.num_clients, ", but ", place_.processes, " processes by ",
           place_.source);
    if (of_machinefile() > 0 && of_machinefile() != place_.processes)
      fail(flags_.machinefile, " names ", of_machinefile(), " processes, but there are ",
           place_.processes, " by ", place_.source);
    if (launched_ && place_.rank == compat::kRankByOrder) return;
    if (place_.rank < 0 || place_.rank >= place_.processes)
      fail("rank ", place_.rank, " is not from 0 to ", place_.processes - 1, "; it comes from ",
           place_.source);
  }

  void find_master() {
    if (!flags_.master.empty()) return master_by_flag();
    if (of_machinefile() > 0) {
      place_.master = join_address(place_.machines[0].host, str(place_.machines[0].port));
      return;
    }
    if (place_.processes == 1) return;
    if (launched_ && launched_->host.empty()) compat::read_master(environment_, *launched_);
    const std::string host = launched_ ? launched_->host : "";
    int port = launched_ ? launched_->port : 0;
    if (host.empty())
      fail("no address of process 0 is known; ", place_.source,
           " does not say it: give --master=host:port, or --machinefile");
    if (port == 0) port = flags_.port > 0 ? flags_.port : kDefaultPort;
    place_.master = join_address(host, str(port));
  }

  void master_by_flag() {
    const auto [host, port] = split_address(flags_.master);
    if (host.empty() || !number_in(port, 1, compat::kMostPort))
      fail("--master=", flags_.master, " is not host:port (an IPv6 address stands in brackets)");
    place_.master = flags_.master;
  }

  void find_role() {
    if (of_machinefile() > 0) place_.role = place_.machines[place_.rank].role;
    const bool by_launcher = of_machinefile() == 0 && launched_ && flags_.role.empty();
    const std::string& role = by_launcher ? launched_->role : flags_.role;
    if (role.empty()) return;
    const std::optional<Role> known = role_named(role);
    if (!known) fail("--role=", role, " is not worker, server or both");
    place_.role = *known;
  }

  const PlaceFlags& flags_;
  const compat::Variables& environment_;
  std::optional<compat::Launched> launched_;
  Place place_;
};

}  // namespace

Result<Place> find_place(const PlaceFlags& flags,
                         const std::map<std::string, std::string>& environment) {
  try {
    return Finder(flags, environment).find();
  } catch (const ConfigError& error) {
    return error.error();
  }
}

}  // namespace shoal::parallel
