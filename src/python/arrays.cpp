#include "python/arrays.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

namespace shoal::python {
namespace {

// An array that looks at a storage.
struct View {
  std::weak_ptr<Storage> storage;
  std::weak_ptr<Memory> memory;
  Shape shape;
  Numbers numbers = Numbers::kTensors;
  py::weakref array;
};
using Views = std::vector<View>;

struct Registry {
  std::unordered_map<const Storage*, Views> views;
  std::size_t enough = 1000;  // storages, beyond which those without arrays are looked for
};

// Nets that share params share their storages, so the arrays of a process are in one place. It
// outlives the interpreter, whose objects it holds.
Registry& registry() {
  static Registry& all = *std::make_unique<Registry>().release();
  return all;
}

py::object array_of(const View& view) { return view.array(); }

void leave(const View& view) {
  if (const py::object array = array_of(view); !array.is_none())
    array.attr("setflags")(py::arg("write") = false);
}

bool is_gone(const View& view) { return view.storage.expired() || array_of(view).is_none(); }

// Returns the arrays of the storage that are still there, or null if there are none.
Views* views_of(const Storage& storage) {
  auto& views = registry().views;
  const auto found = views.find(&storage);
  if (found == views.end()) return nullptr;
  std::erase_if(found->second, is_gone);
  if (!found->second.empty()) return &found->second;
  views.erase(found);
  return nullptr;
}

void add(const Storage& storage, View view) {
  Registry& all = registry();
  all.views[&storage].push_back(std::move(view));
  if (all.views.size() < all.enough) return;
  std::erase_if(all.views,
                [](const auto& entry) { return std::ranges::all_of(entry.second, is_gone); });
  all.enough = std::max(all.enough, 2 * all.views.size());
}

// Makes the storage look at `memory`, to which its numbers are copied.
void move_to(Storage& storage, const std::shared_ptr<Memory>& memory) {
  std::memcpy(memory->data(), storage.host(Storage::Access::kRead), storage.required());
  storage.bind(memory, 0);
  storage.host(Storage::Access::kMut);
}

py::array new_array(const Shape& shape, float* numbers, std::shared_ptr<Memory> memory) {
  auto keeper = std::make_unique<std::shared_ptr<Memory>>(std::move(memory));
  const py::capsule base(keeper.get(), [](void* kept) {
    const std::unique_ptr<std::shared_ptr<Memory>> last(
        static_cast<std::shared_ptr<Memory>*>(kept));
  });
  static_cast<void>(keeper.release());
  const std::vector<py::ssize_t> dims(shape.dims().begin(), shape.dims().end());
  return py::array(py::dtype::of<float>(), dims, numbers, base);
}

// Calls f(tensor) for each tensor that a caller may see.
template <class F>
void each_tensor(const Net& net, F f) {
  const auto both = [&](const Blob& blob) { f(blob.data), f(blob.grad); };
  for (int i = 0; i < std::ssize(net.layers()); ++i) {
    for (const Blob* top : net.tops(i)) both(*top);
    for (const auto& param : net.layers()[static_cast<std::size_t>(i)]->params()) both(*param);
  }
}

}  // namespace

py::array array_of(Tensor& tensor, Numbers numbers) {
  Storage& storage = *tensor.storage();
  Views* const known = views_of(storage);
  storage.host(Storage::Access::kMut);
  if (known)
    for (const View& view : *known)
      if (view.shape == tensor.shape() && view.memory.lock() == storage.host_memory())
        return array_of(view);
  if (tensor.count() == 0) return new_array(tensor.shape(), nullptr, host_memory(sizeof(float)));
  if (numbers == Numbers::kLayers && !known) move_to(storage, host_memory(storage.required()));
  const std::shared_ptr<Memory> memory = storage.host_memory();
  py::array array = new_array(tensor.shape(), tensor.host_mut().data(), memory);
  add(storage, {tensor.storage(), memory, tensor.shape(), numbers, py::weakref(array)});
  return array;
}

void take_writes(const Tensor& tensor) {
  if (views_of(*tensor.storage()) != nullptr) tensor.storage()->host(Storage::Access::kMut);
}

void show_numbers(const Tensor& tensor) {
  Storage& storage = *tensor.storage();
  Views* const views = views_of(storage);
  if (views == nullptr) return;
  for (const View& view : *views) {
    const std::shared_ptr<Memory> memory = view.memory.lock();
    const bool may_move = view.numbers == Numbers::kLayers && memory &&
                          memory->bytes() >= storage.required() && view.shape == tensor.shape();
    if (may_move && storage.host_memory() != memory) move_to(storage, memory);
  }
  storage.host(Storage::Access::kRead);
  std::erase_if(*views, [&](const View& view) {
    const bool has_moved = view.memory.lock() != storage.host_memory();
    if (has_moved) leave(view);
    return has_moved;
  });
}

void leave_arrays(const Tensor& tensor) {
  const Views* const views = views_of(*tensor.storage());
  if (views == nullptr) return;
  for (const View& view : *views) leave(view);
  registry().views.erase(tensor.storage().get());
}

void take_writes(const Net& net) {
  each_tensor(net, [](const Tensor& tensor) { take_writes(tensor); });
}
void show_numbers(const Net& net) {
  each_tensor(net, [](const Tensor& tensor) { show_numbers(tensor); });
}

}  // namespace shoal::python
