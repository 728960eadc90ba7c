#include "shoal/net/recorded_pass.h"

#include <algorithm>
#include <unordered_map>

#include "shoal/base/log.h"

namespace shoal {
namespace {

using Access = Storage::Access;

// The context's uses of tensors are added to `uses` while this lives.
class Noting {
 public:
  Noting(Context& context, std::vector<TensorUse>& uses) : context_(context) {
    context_.note_uses(&uses);
  }
  ~Noting() { context_.note_uses(nullptr); }

 private:
  Context& context_;
};

// Returns whether both use the same memory alike.
bool is_alike(const TensorUse& a, const TensorUse& b) {
  return a.storage == b.storage && a.home == b.home && a.shape == b.shape && a.access == b.access &&
         a.bytes == b.bytes;
}
bool is_same(const TensorUse& a, const TensorUse& b) {
  return is_alike(a, b) && same_layout(a.before, b.before);
}

// Leaves out uses that change nothing after an earlier one: a read, or a second write, of the same
// numbers.
std::vector<TensorUse> without_repeats(std::vector<TensorUse> uses) {
  std::unordered_map<const Storage*, std::size_t> last;
  std::vector<TensorUse> kept;
  for (TensorUse& use : uses) {
    const auto [at, fresh] = last.try_emplace(use.storage.get(), kept.size());
    const TensorUse* const before = fresh ? nullptr : &kept[at->second];
    if (before && before->home == use.home && before->shape == use.shape &&
        (use.access == Access::kRead || before->access != Access::kRead))
      continue;
    at->second = kept.size();
    kept.push_back(std::move(use));
  }
  return kept;
}

// Maps each storage to the home in which a stretch uses it.
using Homes = std::unordered_map<const Storage*, Home>;

// Returns whether `uses` convert numbers that they used before or that are in `homes`, or use them
// in another layout. Adds them to `homes`.
bool converts(const std::vector<TensorUse>& uses, Homes& homes) {
  bool any = false;
  for (const TensorUse& use : uses) {
    const auto [at, is_new] = homes.try_emplace(use.storage.get(), use.home);
    any = any || (!is_new && (use.converted || !(at->second == use.home)));
  }
  return any;
}
bool converts_own(const std::vector<TensorUse>& uses) {
  Homes homes;
  return converts(uses, homes);
}

}  // namespace

Status RecordedPass::run(bool may_record) {
  may_record = may_record && context_.stream()->records();
  if (may_record && !divided_ && noted_ >= wait_) divide();
  const bool notes = may_record && !divided_;
  notes_.resize(static_cast<std::size_t>(pass_.steps()));
  refusals_.resize(notes_.size());
  std::size_t next = 0;
  for (int step = 0; step < pass_.steps();) {
    while (next < stretches_.size() && stretches_[next].first < step) ++next;
    const bool starts = may_record && next < stretches_.size() && stretches_[next].first == step;
    const int end = starts ? stretches_[next].end : step + 1;
    const Status status = starts  ? carry_out(stretches_[next])
                          : notes ? call_noting(step)
                                  : call(step);
    if (!status.ok()) return status;
    step = end;
  }
  if (notes) ++noted_;
  // Divides what can be recorded without the steps that were refused.
  if (std::ranges::any_of(stretches_, &Stretch::refused)) divide();
  return {};
}

Status RecordedPass::run_steps(int first, int last) {
  for (int step = first; step <= last; ++step)
    if (Status status = call(step); !status.ok()) return status;
  return {};
}

// Forgets the recordings. If they paid, others are made soon; else later each time.
void RecordedPass::forget() {
  constexpr int kOften = 20, kLongest = 1024;
  if (divided_) wait_ = replays_ >= kOften ? kFirstWait : std::min(2 * wait_, kLongest);
  stretches_.clear();
  divided_ = false;
  noted_ = 0;
  replays_ = 0;
}

RecordedWork RecordedPass::summary() const {
  RecordedWork work;
  std::vector<bool> is_in(notes_.size());
  for (const Stretch& stretch : stretches_) {
    if (!stretch.recording) continue;
    ++work.stretches;
    work.layers += stretch.end - stretch.first;
    std::fill(is_in.begin() + stretch.first, is_in.begin() + stretch.end, true);
  }
  for (int step = 0; divided_ && step < static_cast<int>(is_in.size()); ++step)
    if (!is_in[static_cast<std::size_t>(step)])
      work.others.emplace_back(pass_.name(step), why_not(step));
  return work;
}

Status RecordedPass::call(int step) {
  if (Status status = pass_.begin(step); !status.ok()) return status;
  if (Status status = pass_.work(step); !status.ok()) return status;
  return pass_.end(step, step);
}

Status RecordedPass::call_noting(int step) {
  if (Status status = pass_.begin(step); !status.ok()) return status;
  Note note;
  const std::uint64_t waits = context_.stream()->waits();
  const Random::State coins = context_.random().state();
  {
    const Noting noting(context_, note.uses);
    if (Status status = pass_.work(step); !status.ok()) return status;
  }
  Note& last = notes_[static_cast<std::size_t>(step)];
  if (context_.stream()->waits() != waits)
    note.why_not = "it waits for the device";
  else if (!(context_.random().state() == coins))
    note.why_not = "it draws random numbers";
  else if (!std::ranges::equal(note.uses, last.uses, is_same))
    note.why_not = "it uses other memory in each pass";
  else if (converts_own(note.uses))
    note.why_not = "it converts its own numbers";
  last = std::move(note);
  return pass_.end(step, step);
}

std::string RecordedPass::why_not(int step) const {
  const auto at = static_cast<std::size_t>(step);
  if (!pass_.replays(step)) return "its work depends on more than numbers on the device";
  if (!refusals_[at].empty()) return refusals_[at];
  if (!notes_[at].why_not.empty()) return notes_[at].why_not;
  return "alone it is no faster";
}

// Divides the pass into stretches as long as possible. Numbers that a stretch uses are converted
// before it: so one ends before a step that converts what the stretch made.
void RecordedPass::divide() {
  stretches_.clear();
  Stretch stretch;
  Homes homes;
  int busy = 0;  // steps of the stretch that use the device
  const auto close = [&](int next) {
    stretch.uses = without_repeats(std::move(stretch.uses));
    stretch.stamp = stamp_of(stretch);
    if (busy > 1) stretches_.push_back(std::move(stretch));
    stretch = {};
    stretch.first = stretch.end = next;
    homes.clear();
    busy = 0;
  };
  for (int step = 0; step < pass_.steps(); ++step) {
    const Note& note = notes_[static_cast<std::size_t>(step)];
    const bool fits = pass_.replays(step) && note.why_not.empty() &&
                      refusals_[static_cast<std::size_t>(step)].empty();
    if (!fits) close(step + 1);
    if (!fits) continue;
    if (!pass_.together(stretch.first, step)) close(step);
    if (converts(note.uses, homes)) {
      close(step);
      converts(note.uses, homes);
    }
    stretch.end = step + 1;
    stretch.uses.insert(stretch.uses.end(), note.uses.begin(), note.uses.end());
    busy += note.uses.empty() ? 0 : 1;
  }
  close(pass_.steps());
  divided_ = true;
}

std::vector<std::uintptr_t> RecordedPass::stamp_of(const Stretch& stretch) const {
  std::vector<std::uintptr_t> stamp;
  for (int step = stretch.first; step < stretch.end; ++step) pass_.stamp(step, stamp);
  return stamp;
}

Status RecordedPass::carry_out(Stretch& stretch) {
  const int first = stretch.first, end = stretch.end;
  for (int step = first; step < end; ++step)
    if (Status status = pass_.begin(step); !status.ok()) return status;
  const bool as_noted = is_as_noted(stretch);
  if (as_noted && !stretch.recording) record(stretch);
  if (as_noted && stretch.recording) {
    stretch.recording->replay();
    ++replays_;
  } else {
    if (!as_noted) forget();
    for (int step = first; step < end; ++step)
      if (Status status = pass_.work(step); !status.ok()) return status;
  }
  return pass_.end(first, end - 1);
}

// Makes the uses of the stretch's tensors again. True if all of them are where they were.
bool RecordedPass::is_as_noted(const Stretch& stretch) {
  if (stretch.recording && stretch.replacements != context_.stream()->replacements) return false;
  if (stamp_of(stretch) != stretch.stamp) return false;
  for (const TensorUse& use : stretch.uses) {
    const bool in_order =
        use.access == Access::kWrite || same_layout(use.storage->layout(), use.before);
    if (!in_order ||
        use.storage->at(use.home, use.shape, context_.stream(), use.access) != use.bytes)
      return false;
  }
  return true;
}

void RecordedPass::record(Stretch& stretch) {
  Uses uses;
  int at = -1;  // the step at work
  const Random::State coins = context_.random().state();
  try {
    const Noting noting(context_, uses);
    stretch.recording = context_.stream()->record([&] {
      for (at = stretch.first; at < stretch.end; ++at)
        if (!pass_.work(at).ok()) throw DeviceError("it fails");
      at = -1;
      if (!(context_.random().state() == coins)) throw DeviceError("it draws random numbers");
      if (!std::ranges::equal(without_repeats(uses), stretch.uses, is_alike))
        throw DeviceError("it uses other memory when it is recorded");
    });
    stretch.replacements = context_.stream()->replacements;
  } catch (const DeviceError& error) {
    context_.random() = Random(coins);
    refuse(stretch, at, error.what());
  }
}

void RecordedPass::refuse(Stretch& stretch, int step, const std::string& why) {
  stretch.refused = true;
  const int first = step < 0 ? stretch.first : step, end = step < 0 ? stretch.end : step + 1;
  for (int i = first; i < end; ++i) refusals_[static_cast<std::size_t>(i)] = why;
  LOG(WARNING) << "the work of layer '" << pass_.name(first) << "'"
               << (end - first > 1 ? str(" and ", end - first - 1, " after it") : "")
               << " cannot be recorded, and is queued anew in each pass: " << why;
}

}  // namespace shoal
