// A row of a shard: its numbers, the pushes that are not merged yet, and the workers that wait to
// read it.
#pragma once

#include "shoal/table/buffer.h"
#include "shoal/table/codec_set.h"
#include "shoal/table/messages.h"
#include "shoal/table/scheme.h"
#include "shoal/table/uncopied.h"
#include "shoal/table/update.h"

namespace shoal::table {

// Keeps a row. Its plan holds whatever is the same for all rows.
class ShardRow {
 public:
  // The plan and its codecs outlive the row. `in_place`, if it is not empty, is memory of the only
  // worker that holds the weights; the worker does not read it from a push to its answer.
  ShardRow(RowId id, const Plan& plan, const CodecSet& codecs, std::span<float> in_place);

  const RowId id;
  const Row row;

  // ---- numbers ----
  bool has(Part part) const { return has_[static_cast<std::size_t>(part)]; }
  void set(Part part, std::span<const float> numbers);  // zeros if there are none
  // Returns whether answers say what changed, and what they leave out is a part.
  bool answers_changes() const { return answers_changes_; }
  // Returns the numbers of a part. Numbers that are kept in place are not lent: they are their
  // reader's.
  Values numbers(Part part) const {
    if (part == Part::kLeftOut) return what_is_left_out();
    const std::shared_ptr<Buffer>& buffer = parts_[static_cast<std::size_t>(part)];
    return buffer->is_elsewhere() ? Values{.data = buffer->numbers()} : Buffer::lend(buffer);
  }
  Version version() const { return version_; }
  bool was_changed() const { return version_ != plan_.start; }

  // ---- membership and pushes ----
  RowView view() const { return {workers_, held_, version_, slowest_, oldest_, row.lr_mult != 0}; }
  Clock pushed(int worker) const { return workers_[worker].pushed; }
  // Keeps the push of clock pushed(worker), whose numbers are `values`. The worker counts until its
  // push of clock end - 1 is here.
  void hold(int worker, const Push& push, Values values, Clock end);
  // Notes that the worker has waited long enough for others. Returns whether that is news of a push
  // that is held.
  bool hurry(int worker);
  void end_at(int worker, Clock end) { move(worker, workers_[worker].pushed, end); }
  // Forgets the worker's pushes from `end` on that are not merged. Returns their number.
  std::size_t forget(int worker, Clock end);

  // ---- merges ----
  double squares(const Merge& merge) const;  // of the scaled sum
  // Applies the merge, and throws away the contributions that it takes and drops. `gradient_scale`
  // is that of the rule, without the merge's own.
  void apply(const Merge& merge, double gradient_scale, Spares& spares,
             const ParallelFor& parallel_for);

  // Does the same, and returns the update for the row's second copy.
  Update apply_and_copy(const Merge& merge, double gradient_scale, Spares& spares,
                        const ParallelFor& parallel_for);
  // Applies an update of the server whose row this is a copy of.
  void follow(const Update& update, double gradient_scale, Spares& spares,
              const ParallelFor& parallel_for);
  // The updates that the second copy does not have yet.
  Uncopied uncopied;

  // Counts the merge without the numbers. Answers are as long as if they had changed.
  void count(const Merge& merge);

  // ---- reads ----
  // The worker waits to read at `clock`; false if it does so already, or for a later one.
  bool wait(int worker, Clock clock) {
    Clock& waits = waits_[worker];
    if (waits >= clock) return false;
    waits = clock;
    return true;
  }
  void leave(int worker) { waits_[worker] = kNobody; }
  bool is_waiting(int worker) const { return waits_[worker] != kNobody; }
  bool can_read(const Scheme& scheme, int worker) const {
    return !row.learns || scheme.readable(view(), worker, waits_[worker]);
  }
  // Returns the answer that the worker waits for.
  RowMessage answer(const Scheme& scheme, int worker);

  std::size_t bytes() const {
    std::size_t floats = parts_.size() * row.length;
    for (const Contribution& one : held_) floats += one.values.data.size();
    for (const Own& own : own_) floats += own.values.data.size();
    floats += answer_state_.size() + copy_state_.size();
    return floats * sizeof(float) + encoded_.bytes.size() + uncopied.bytes();
  }

  // A merge that waits for the norm of all rows.
  struct Pending {
    Merge merge;
    double squares = 0;
  };
  std::optional<Pending> pending;

 private:
  static constexpr Clock kNobody = -1;
  // The numbers that one worker reads at a clock instead of the row.
  struct Own {
    Clock clock = kNobody;
    Values values;
  };
  Values what_is_left_out() const;
  Payload encoded(int worker);
  void encode_change(std::span<const float> before);
  // Sets the clock of the worker's next push to `pushed`; it counts until that is `end`.
  void move(int worker, Clock pushed, Clock end);
  void find_slowest();
  void find_oldest();

  using Buffers = std::vector<std::shared_ptr<Buffer>>;
  std::vector<Term> terms(const Merge& merge, std::vector<std::vector<float>>& compensated) const;
  std::int64_t updates() const;  // that its histories have seen, which Adam counts
  // The arithmetic of an update, and the push whose worker gets the answer of kElastic.
  struct Arithmetic {
    Apply apply = Apply::kRule;
    float scale = 1, rate = 0;
    std::span<const Term> terms{};
    MergedPush first{};
  };
  void change(const Arithmetic& how, double gradient_scale, Spares& spares,
              const ParallelFor& parallel_for);
  Update update_of(const Merge& merge);
  Values numbers_of(const Update& update) const;
  // Returns the seed of the random numbers of codecs here, for the present version.
  std::uint64_t seed() const { return (static_cast<std::uint64_t>(version_) << 20 ^ id) + 1; }
  Arithmetic arithmetic_of(const Merge& merge, std::span<const Term> terms) const;
  void throw_away(const Merge& merge);

  const Plan& plan_;
  const Codec &answers_, &merges_;
  const bool answers_changes_;
  // The states of these codecs; of merges where the row has a copy.
  std::vector<float> answer_state_, copy_state_;
  // The encoded weights of a version, or what they changed by since the one before. All readers
  // share them.
  Payload encoded_;
  Version encoded_version_ = -1;
  std::vector<Version> bases_;  // by worker: the version from which it pushed last; of changes
  Version version_;
  // The weights, and if the row learns, the rule's histories.
  Buffers parts_;
  bool has_[2 + optim::kMaxHistories] = {};
  std::vector<WorkerView> workers_;
  std::vector<Contribution> held_;  // in the order of arrival
  // As in RowView; slow_: how many workers are the slowest.
  Clock slowest_ = kUnbounded, oldest_ = kUnbounded;
  int slow_ = 0;
  std::vector<Clock> waits_;  // by worker
  std::vector<Own> own_;      // by worker; elastic schemes
  // By worker, the numbers it read last, in schemes that keep reads.
  std::vector<Values> reads_;
};

}  // namespace shoal::table
