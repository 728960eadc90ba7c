// Carries out a pass over the layers of a net. Where a stretch of layers does the same work on the
// device in each pass, the work is recorded, and later passes queue it again without calling the
// layers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/net/net.h"
#include "shoal/tensor/context.h"

namespace shoal {

// The steps of a pass, one a layer, in order.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual int steps() const = 0;
  virtual std::string name(int step) const = 0;  // of the layer
  // Returns whether the step's work on the device depends on nothing but stamp(), its shapes, and
  // the numbers of tensors there; and whether the layer does nothing else that a pass needs.
  virtual bool replays(int step) const = 0;
  // Adds what must be as it was for the recorded work to be the right one.
  virtual void stamp(int step, std::vector<std::uintptr_t>& to) const = 0;
  // Returns whether begin() of all steps from `first` to `last` may come before the work of the
  // first, and one end() for all after that of the last.
  virtual bool together(int first, int last) const = 0;
  // Is called before the layer's work; in a stretch, before all its work.
  virtual Status begin(int step) = 0;
  virtual Status work(int step) = 0;
  // Is called after the work of these steps.
  virtual Status end(int first, int last) = 0;
};

// A stretch is recorded after passes in which its steps used the same memory twice and did not
// wait. Before each replay the uses of tensors are made again: numbers that the host has changed go
// to the device, and the tensors know where their newest numbers are. If one of them is elsewhere
// then, all recordings are forgotten, and the layers are called. A stretch that the device refuses
// to record is never tried again.
class RecordedPass {
 public:
  // The pass and the context outlive it.
  RecordedPass(Pass& pass, Context& context) : pass_(pass), context_(context) {}

  // `may_record`: nothing has to see the layers one by one. Ends with the first error.
  Status run(bool may_record);
  // Calls the layers of these steps, both included.
  Status run_steps(int first, int last);
  // Shapes or memory are others from now on.
  void forget();
  bool is_recorded() const { return divided_; }
  RecordedWork summary() const;

 private:
  // Two that are alike, and one before, in which tensors are new.
  static constexpr int kFirstWait = 3;
  using Uses = std::vector<TensorUse>;
  struct Note {
    Uses uses;
    std::string why_not;  // the step cannot be recorded; empty: it can
  };
  struct Stretch {
    int first = 0, end = 0;  // steps
    Uses uses;
    std::vector<std::uintptr_t> stamp;
    std::uint64_t replacements = 0;
    bool refused = false;
    std::unique_ptr<Recording> recording;
  };
  Status call(int step);
  Status call_noting(int step);
  Status carry_out(Stretch& stretch);
  void divide();
  std::string why_not(int step) const;
  std::vector<std::uintptr_t> stamp_of(const Stretch& stretch) const;
  bool is_as_noted(const Stretch& stretch);
  void record(Stretch& stretch);
  void refuse(Stretch& stretch, int step, const std::string& why);

  Pass& pass_;
  Context& context_;
  std::vector<Note> notes_;  // of the last pass in which layers were called, by step
  int noted_ = 0;            // such passes in a row
  int wait_ = kFirstWait;    // as many come before recordings
  std::int64_t replays_ = 0;
  bool divided_ = false;
  std::vector<Stretch> stretches_;
  std::vector<std::string> refusals_;  // by step
};

}  // namespace shoal
