#include "shoal/parallel/tuning/profile.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "shoal/base/address.h"
#include "shoal/base/file.h"
#include "shoal/base/text.h"
#include "shoal/base/timer.h"
#include "shoal/base/try.h"
#include "shoal/compat/mxnetg.h"

namespace shoal::parallel {
namespace {

std::string rounded(double number) {
  std::ostringstream out;
  out.precision(3);
  out << number;
  return std::move(out).str();
}

// Returns the hosts by worker.
std::vector<std::string> hosts_of(const table::RosterBody& roster) {
  std::vector<std::string> hosts;
  for (const auto& process : roster.processes) {
    if (process.worker >= 0) hosts.push_back(split_address(process.address).host);
  }
  return hosts;
}

}  // namespace

void MeanTime::add(double seconds) {
  recent_.push_back(seconds);
  if (recent_.size() > kWindow) recent_.pop_front();
}

double MeanTime::mean() const {
  if (recent_.empty()) return 0;
  std::vector<double> times(recent_.begin(), recent_.end());
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  const double most = kMost * *middle;
  double sum = 0;
  for (const double time : times) sum += std::min(time, most);
  return sum / static_cast<double>(times.size());
}

void Speedometer::start(std::int64_t iteration, const Net& net) {
  times_ = busy_ = {};
  iterations_ = 0;
  if (next_) next_->start(iteration, net);
}

void Speedometer::mark(Mark mark, std::int64_t iteration, double data_waited, double rows_waited) {
  constexpr double kLeast = 1e-9;  // a step takes more than nothing
  if (mark == Mark::kBegin) begun_ = table_.now(), rows_waited_ = rows_waited;
  if (mark == Mark::kEnd) {
    const double seconds = to_seconds(table_.now() - begun_);
    times_.add(std::max(kLeast, seconds));
    busy_.add(std::max(kLeast, seconds - (rows_waited - rows_waited_)));
    ++iterations_;
  }
  if (next_) next_->mark(mark, iteration, data_waited, rows_waited);
}

Result<Profile> make_profile(Team& team, const MeasuredWorker& own, const GroupSearch& search) {
  const auto size = static_cast<std::size_t>(team.size());
  // Each worker sends these numbers; all others add 0 to them.
  constexpr std::size_t kNumbers = 5;
  const double said[kNumbers] = {own.busy, own.exchange.value_or(0), own.exchange ? 1.0 : 0.0,
                                 std::max(own.items, 1.0), static_cast<double>(own.iteration)};
  std::vector<double> all(kNumbers * size);
  std::ranges::copy(said, all.begin() + static_cast<std::ptrdiff_t>(kNumbers) * team.index());
  TRY(team.sum(all));
  const auto of = [&](std::size_t worker) {
    return std::span(all).subspan(kNumbers * worker, kNumbers);
  };
  double exchanges = 0, known = 0;
  for (std::size_t worker = 0; worker < size; ++worker)
    exchanges += of(worker)[1], known += of(worker)[2];
  Profile profile{.speeds = {}, .grouping = {}, .least = own.iteration};
  double slowest = 0;
  for (std::size_t worker = 0; worker < size; ++worker) {
    const auto numbers = of(worker);
    const double exchange = numbers[2] > 0 ? numbers[1] : known > 0 ? exchanges / known : 0;
    const double speed = numbers[0] > 0 ? numbers[3] / (numbers[0] + exchange) : 0;
    if (speed > 0 && (slowest == 0 || speed < slowest)) slowest = speed;
    profile.speeds.push_back(speed);
    // A worker that has left sends zeros.
    if (numbers[3] > 0)
      profile.least = std::min(profile.least, static_cast<std::int64_t>(numbers[4]));
  }
  for (double& speed : profile.speeds)
    if (speed <= 0) speed = slowest > 0 ? slowest : 1;
  profile.grouping = find_groups(profile.speeds, {.smallest = search.smallest});
  return profile;
}

std::string numbers_text(std::span<const double> numbers, const char* unit) {
  std::vector<std::string> words;
  for (const double number : numbers) words.push_back(rounded(number) + unit);
  return join(words);
}

std::string percent_text(std::vector<double> numbers) {
  const double all = std::accumulate(numbers.begin(), numbers.end(), 0.0);
  for (double& number : numbers) number = 100 * number / all;
  return numbers_text(numbers, "%");
}

std::string text_of(const Profile& profile) {
  const std::size_t count = profile.grouping.groups.size();
  return str(
      "speeds ", numbers_text(profile.speeds), " items/s; ", count,
      count == 1 ? " group" : " groups",
      count == 1 ? "" : str(" (Calinski-Harabasz index ", rounded(profile.grouping.index), ")"),
      ": ", text_of(profile.grouping.groups));
}

Status check_writable(const ProfileFiles& files) {
  for (const std::string& path : {files.groups, files.data_sharding})
    if (!path.empty()) TRY(check_writable(path, Code::kUsage));
  return {};
}

Status write(const ProfileFiles& files, const Profile& profile, const table::RosterBody& roster) {
  const Groups& groups = profile.grouping.groups;
  const compat::GroupingFiles texts =
      compat::grouping_files(groups, share_weights(groups, profile.speeds), hosts_of(roster));
  const std::pair<const std::string&, const std::string&> wanted[] = {
      {files.groups, texts.groups}, {files.data_sharding, texts.data_sharding}};
  std::vector<AtomicFile> written;
  for (const auto& [path, text] : wanted) {
    if (path.empty()) continue;
    Result<AtomicFile> file = AtomicFile::create(path, Code::kUsage);
    TRY(file);
    written.push_back(std::move(file).value());
    TRY(written.back().write(text));
    TRY(written.back().flush());
  }
  for (AtomicFile& file : written) TRY(file.commit());
  return {};
}

}  // namespace shoal::parallel
