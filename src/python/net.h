// A net, as Python sees it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "python/blob.h"
#include "shoal/net/net.h"

namespace shoal {
class NetParameter;
}

namespace shoal::python {

// A device, threads and a seed, as the arguments of Python say: gpu -1 is the CPU; a seed below 0
// is drawn.
struct Machine {
  int gpu = -1, threads = 1;
  std::int64_t seed = -1;
};
const Device* device_of(int gpu);

using InputArray = py::array_t<float, py::array::c_style | py::array::forcecast>;

class PyNet : public std::enable_shared_from_this<PyNet> {
 public:
  // A net of its own.
  PyNet(const NetParameter& param, const Machine& machine);
  // A net of a solver, which lives while this does.
  PyNet(Net& net, std::shared_ptr<const void> owner, std::shared_ptr<Work> work);

  float forward(int first, int last);
  void backward(int first, int last);
  void reshape();
  void copy_weights(const std::string& file);
  void share_weights(const PyNet& other);
  void save(const std::string& path, bool hdf5) const;
  void clear_gradients();
  void set_input_arrays(const InputArray& data, const InputArray& labels);
  // Lets `call` be called with the layer's index at each of these moments.
  enum class Moment { kBeforeForward, kAfterForward, kBeforeBackward, kAfterBackward };
  void add_hook(Moment moment, const py::function& call);

  Net& net() const { return *net_; }
  // The blobs that have a name, in the order in which they are made.
  std::vector<std::shared_ptr<PyBlob>> blobs();
  std::vector<std::shared_ptr<PyBlob>> params(int layer);
  std::vector<int> bottom_ids(int layer) const;
  std::vector<int> top_ids(int layer) const;
  std::vector<int> inputs() const;
  std::vector<int> outputs() const;

 private:
  int checked(int layer) const;
  std::vector<int> ids(std::span<Blob* const> blobs) const;
  std::shared_ptr<PyBlob> wrap(Blob& blob, Numbers numbers, PyBlob::Resize resize);
  Status call_hooks(Moment moment, int layer);
  template <class F>
  auto at_work(F f);

  std::unique_ptr<Context> context_;
  std::unique_ptr<Net> owned_;
  Net* net_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<Work> work_;
  std::vector<Blob*> named_;  // as blobs()
  std::map<Moment, std::vector<py::function>> hooks_;
};

void bind_net(py::module_& module);

}  // namespace shoal::python
