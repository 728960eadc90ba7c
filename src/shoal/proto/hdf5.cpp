// This file alone asks whether the build has HDF5, and calls the library.
#include "shoal/proto/hdf5.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/mutex.h"
#include "shoal/base/regular_file.h"

#if SHOAL_HDF5

#include <hdf5.h>

namespace shoal {
namespace {

// An array of more bytes is believed only if the file could hold it: deflate, the usual filter,
// makes at most 1032 bytes of one.
constexpr std::uint64_t kBelieved = std::uint64_t{1} << 30, kMostPerByte = 1100;
// An array that grows is stored in pieces of so many bytes.
constexpr std::uint64_t kLeastChunk = 1 << 12, kMostChunk = 1 << 18;

Mutex& library() {
  static Mutex mutex;
  return mutex;
}

// The turn of one thread to call the library, which prints no errors meanwhile.
class Turn {
 public:
  Turn() : lock_(library()) {
    // After a failed write, such as on a full disk, its cleaning up at exit crashes. No file needs
    // it: each is closed by its Hdf5File.
    H5dont_atexit();
    H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Turn() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }
  Turn(const Turn&) = delete;

 private:
  MutexLock lock_;
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

// An object of the library, closed at the end of its scope.
class Id {
 public:
  Id(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Id() {
    if (id_ >= 0) close_(id_);
  }
  Id(const Id&) = delete;
  operator hid_t() const { return id_; }
  bool ok() const { return id_ >= 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// Returns the library's reason why the last call failed, from the place where it did.
std::string reason() {
  std::string words;
  const auto note = [](unsigned depth, const H5E_error2_t* error, void* to) -> herr_t {
    if (depth == 0 && error->desc) *static_cast<std::string*>(to) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, note, &words);
  const std::string system = "error message = '";  // the system's, after names and addresses
  if (const std::size_t at = words.find(system); at != std::string::npos) {
    const std::string rest = words.substr(at + system.size());
    words = str(words.substr(0, words.find(':')), ": ", rest.substr(0, rest.find('\'')));
  }
  return words.empty() ? "the HDF5 library gives no reason" : "HDF5: " + words;
}

// A full disk has a code of its own.
Code code_of(const std::string& words, Code code) {
  for (const int number : {ENOSPC, EDQUOT, EFBIG})
    if (words.ends_with(system_reason(number))) return Code::kSnapshot;
  return code;
}

template <class... Args>
Error failed(Code code, const Args&... args) {
  const std::string why = reason();
  return Error{code_of(why, code), str(args..., ": ", why)};
}

Error cannot(const char* what, const std::string& name, const std::string& path, Code code) {
  return failed(code, path, ": cannot ", what, " the dataset '", name, "'");
}
// `why` is "", or the reason why it is not.
Status written(const std::string& why, const std::string& name, const std::string& path,
               Code code) {
  if (why.empty()) return {};
  return Error{code_of(why, code),
               str("cannot write the dataset '", name, "' of ", path, ": ", why)};
}

const char* class_words(H5T_class_t type) {
  if (type == H5T_STRING) return "text";
  return type == H5T_ENUM ? "an enumeration (such as booleans)" : "values that are no numbers";
}

std::uint64_t count_of(const Hdf5File::Dims& dims) {
  std::uint64_t count = 1;
  for (const std::int64_t dim : dims) count *= static_cast<std::uint64_t>(dim);
  return count;
}

// An array that is open, with its shape.
struct Array {
  Id id, space, type;
  explicit Array(hid_t file, const std::string& name)
      : id(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose),
        space(id.ok() ? H5Dget_space(id) : -1, H5Sclose),
        type(id.ok() ? H5Dget_type(id) : -1, H5Tclose) {}
  bool ok() const { return id.ok() && space.ok() && type.ok(); }
  Hdf5File::Dims dims() const {
    const int axes = H5Sget_simple_extent_ndims(space);
    std::vector<hsize_t> sizes(static_cast<std::size_t>(std::max(axes, 0)));
    if (axes > 0) H5Sget_simple_extent_dims(space, sizes.data(), nullptr);
    return {sizes.begin(), sizes.end()};
  }
};

}  // namespace

std::string why_no_hdf5() { return ""; }

Hdf5File::Hdf5File(std::string path, std::int64_t id, Code code)
    : path_(std::move(path)), id_(id), code_(code) {}
Hdf5File::Hdf5File(Hdf5File&& other) noexcept
    : path_(std::move(other.path_)), id_(std::exchange(other.id_, -1)), code_(other.code_) {}

Hdf5File::~Hdf5File() {
  if (id_ < 0) return;
  const Turn turn;
  H5Fclose(std::exchange(id_, -1));
}

Result<Hdf5File> Hdf5File::open(const std::string& path, Mode mode, Code code) {
  if (mode != Mode::kCreate && !file_exists(path))
    return Error{code, str("cannot open ", path, ": ", why_not_opened(path, ENOENT))};
  if (const Status regular = check_regular(path, code); !regular.ok()) return regular.error();
  const Turn turn;
  // Its own locks would meet AtomicFile's, and some file systems know none.
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access, false, true);
  const Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation, false);
  const hid_t id =
      mode == Mode::kCreate
          ? H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access)
          : H5Fopen(path.c_str(), mode == Mode::kRead ? H5F_ACC_RDONLY : H5F_ACC_RDWR, access);
  if (id < 0)
    return failed(code, mode == Mode::kCreate ? "cannot create " : "cannot open ", path,
                  mode == Mode::kCreate ? "" : " as an HDF5 file");
  return Hdf5File(path, id, code);
}

Status Hdf5File::close() {
  const Turn turn;
  const hid_t id = std::exchange(id_, -1);
  Status status;
  if (H5Fflush(id, H5F_SCOPE_LOCAL) < 0) status = failed(code_, "cannot write ", path_);
  if (H5Fclose(id) < 0 && status.ok()) status = failed(code_, "cannot close ", path_);
  return status;
}

bool Hdf5File::has(const std::string& name) const {
  const Turn turn;
  for (std::size_t end = name.find('/');; end = name.find('/', end + 1)) {
    if (end != 0 && H5Lexists(id_, name.substr(0, end).c_str(), H5P_DEFAULT) <= 0) return false;
    if (end == std::string::npos) return true;
  }
}

Result<std::vector<std::string>> Hdf5File::arrays(const std::string& group) const {
  std::vector<std::string> links, arrays;
  if (!has(group)) return arrays;
  const Turn turn;
  const auto note = [](hid_t, const char* name, const H5L_info_t*, void* to) -> herr_t {
    static_cast<std::vector<std::string>*>(to)->emplace_back(name);
    return 0;
  };
  if (H5Lvisit_by_name(id_, group.c_str(), H5_INDEX_NAME, H5_ITER_INC, note, &links, H5P_DEFAULT) <
      0)
    return failed(code_, path_, ": cannot list the group ", group);
  for (std::string& name : links) {
    const Id object(H5Oopen(id_, str(group, "/", name).c_str(), H5P_DEFAULT), H5Oclose);
    if (!object.ok()) return failed(code_, path_, ": cannot open ", group, "/", name);
    if (H5Iget_type(object) == H5I_DATASET) arrays.push_back(std::move(name));
  }
  return arrays;
}

Result<Hdf5File::Dims> Hdf5File::dims(const std::string& name) const {
  const Turn turn;
  const Array array(id_, name);
  if (!array.ok()) return cannot("open", name, path_, code_);
  const auto wrong = [&](const auto&... words) {
    return Error{code_, str(path_, ": the dataset '", name, "' ", words...)};
  };
  const H5T_class_t type = H5Tget_class(array.type);
  if (type != H5T_FLOAT && type != H5T_INTEGER)
    return wrong("holds ", class_words(type), ", not floats or integers");
  if (H5Sget_simple_extent_type(array.space) == H5S_NULL) return wrong("is empty");
  const Dims dims = array.dims();
  std::uint64_t bytes = H5Tget_size(array.type);
  const std::uint64_t most =
      std::max<std::uint64_t>(H5Dget_storage_size(array.id) * kMostPerByte, kBelieved);
  for (const std::int64_t dim : dims) {
    if (dim > 0 && bytes > most / static_cast<std::uint64_t>(dim))
      return wrong("declares more numbers than its ", H5Dget_storage_size(array.id),
                   " bytes can hold; the file is damaged");
    bytes *= static_cast<std::uint64_t>(dim);
  }
  return dims;
}

Status Hdf5File::read(const std::string& name, std::span<float> numbers) const {
  const Turn turn;
  const Array array(id_, name);
  if (!array.ok()) return cannot("open", name, path_, code_);
  if (count_of(array.dims()) != numbers.size())
    return Error{code_, str(path_, ": the dataset '", name, "' has changed since it was opened")};
  if (H5Dread(array.id, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data()) < 0)
    return cannot("read", name, path_, code_);
  return {};
}

Result<std::int64_t> Hdf5File::integer(const std::string& name) const {
  const Result<Dims> shape = dims(name);
  if (!shape.ok()) return shape.error();
  if (count_of(shape.value()) != 1)
    return Error{code_, str(path_, ": the dataset '", name, "' is not a single number")};
  const Turn turn;
  const Array array(id_, name);
  std::int64_t value = 0;
  if (H5Dread(array.id, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value) < 0)
    return cannot("read", name, path_, code_);
  return value;
}

Result<std::string> Hdf5File::text(const std::string& name) const {
  const Turn turn;
  const Array array(id_, name);
  if (!array.ok()) return cannot("open", name, path_, code_);
  if (H5Tget_class(array.type) != H5T_STRING || count_of(array.dims()) != 1)
    return Error{code_, str(path_, ": the dataset '", name, "' is not a text")};
  std::string value;
  if (H5Tis_variable_str(array.type) > 0) {
    char* words = nullptr;
    if (H5Dread(array.id, array.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &words) < 0)
      return cannot("read", name, path_, code_);
    if (words) value = words;
    H5Dvlen_reclaim(array.type, array.space, H5P_DEFAULT, &words);
    return value;
  }
  value.resize(H5Tget_size(array.type));
  if (H5Dread(array.id, array.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value.data()) < 0)
    return cannot("read", name, path_, code_);
  return value.substr(0, value.find('\0'));
}

namespace {

// Makes an array of numbers, or a text, of the type `stored` and fills it. It keeps no time, so
// that equal contents make equal files. `chunk`: of an array that grows. Returns why it failed, or
// "".
std::string make_array(hid_t file, const std::string& name, hid_t stored, hid_t space,
                       const void* values, const std::vector<hsize_t>& chunk = {}) {
  const Id links(H5Pcreate(H5P_LINK_CREATE), H5Pclose),
      properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links, 1);
  H5Pset_obj_track_times(properties, false);
  if (!chunk.empty()) H5Pset_chunk(properties, static_cast<int>(chunk.size()), chunk.data());
  const Id array(H5Dcreate2(file, name.c_str(), stored, space, links, properties, H5P_DEFAULT),
                 H5Dclose);
  const bool good =
      array.ok() && H5Dwrite(array, stored, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
  return good ? "" : reason();
}

// Makes an array that grows along its first axis, filled with its first rows.
std::string make_growing(hid_t file, const std::string& name, const std::vector<hsize_t>& sizes,
                         const float* numbers) {
  std::vector<hsize_t> most = sizes, chunk = sizes;
  most[0] = H5S_UNLIMITED;
  std::uint64_t row = sizeof(float);
  for (std::size_t axis = 1; axis < sizes.size(); ++axis) {
    chunk[axis] = std::max<hsize_t>(sizes[axis], 1);
    row *= chunk[axis];
  }
  const auto rows_in = [row](std::uint64_t bytes) { return std::max<hsize_t>(bytes / row, 1); };
  chunk[0] = std::clamp(sizes[0], rows_in(kLeastChunk), rows_in(kMostChunk));
  const int axes = static_cast<int>(sizes.size());
  const Id space(H5Screate_simple(axes, sizes.data(), most.data()), H5Sclose);
  return make_array(file, name, H5T_NATIVE_FLOAT, space, numbers, chunk);
}

}  // namespace

Status Hdf5File::put(const std::string& name, const Dims& dims, std::span<const float> numbers) {
  CHECK(count_of(dims) == numbers.size()) << numbers.size() << " numbers for " << name;
  const Turn turn;
  const std::vector<hsize_t> sizes(dims.begin(), dims.end());
  const Id space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr), H5Sclose);
  return written(make_array(id_, name, H5T_NATIVE_FLOAT, space, numbers.data()), name, path_,
                 code_);
}

// Writes one number on one axis, as BVLC Caffe writes it.
Status Hdf5File::put_integer(const std::string& name, std::int32_t value) {
  const Turn turn;
  const hsize_t one = 1;
  const Id space(H5Screate_simple(1, &one, nullptr), H5Sclose);
  return written(make_array(id_, name, H5T_NATIVE_INT32, space, &value), name, path_, code_);
}

Status Hdf5File::put_text(const std::string& name, const std::string& value) {
  const Turn turn;
  const Id type(H5Tcopy(H5T_C_S1), H5Tclose), space(H5Screate(H5S_SCALAR), H5Sclose);
  H5Tset_size(type, value.size() + 1);
  return written(make_array(id_, name, type, space, value.c_str()), name, path_, code_);
}

Status Hdf5File::append(const std::string& name, const Dims& dims, std::span<const float> numbers) {
  CHECK(!dims.empty() && count_of(dims) == numbers.size()) << numbers.size() << " for " << name;
  const bool begun = has(name);
  const Turn turn;
  const std::vector<hsize_t> sizes(dims.begin(), dims.end());
  if (!begun) return written(make_growing(id_, name, sizes, numbers.data()), name, path_, code_);
  const Array array(id_, name);
  if (!array.ok()) return cannot("open", name, path_, code_);
  const Dims before = array.dims();
  if (before.size() != dims.size() ||
      !std::equal(before.begin() + 1, before.end(), dims.begin() + 1))
    return Error{code_, str(path_, ": the rows of the dataset '", name, "' have another shape")};
  std::vector<hsize_t> start(sizes.size()), all = sizes;
  start[0] = static_cast<hsize_t>(before[0]);
  all[0] += start[0];
  const int axes = static_cast<int>(sizes.size());
  const Id memory(H5Screate_simple(axes, sizes.data(), nullptr), H5Sclose);
  const bool longer = H5Dset_extent(array.id, all.data()) >= 0;
  const Id place(longer ? H5Dget_space(array.id) : -1, H5Sclose);
  const auto* const rows = sizes.data();
  const bool good =
      place.ok() &&
      H5Sselect_hyperslab(place, H5S_SELECT_SET, start.data(), nullptr, rows, nullptr) >= 0 &&
      H5Dwrite(array.id, H5T_NATIVE_FLOAT, memory, place, H5P_DEFAULT, numbers.data()) >= 0;
  return written(good ? "" : reason(), name, path_, code_);
}

}  // namespace shoal

#else

namespace shoal {
namespace {

Error none() { return Error{Code::kConfig, why_no_hdf5()}; }

}  // namespace

std::string why_no_hdf5() {
  return "this build has no HDF5: install the library (libhdf5-dev) and build with make HDF5=1";
}

Hdf5File::Hdf5File(Hdf5File&& other) noexcept
    : path_(std::move(other.path_)), id_(other.id_), code_(other.code_) {}
Hdf5File::~Hdf5File() = default;
Result<Hdf5File> Hdf5File::open(const std::string& path, Mode, Code code) {
  return Error{code, str(path, ": ", why_no_hdf5())};
}

// No file can be open.
Status Hdf5File::close() { return none(); }
bool Hdf5File::has(const std::string&) const { return false; }
Result<std::vector<std::string>> Hdf5File::arrays(const std::string&) const { return none(); }
Result<Hdf5File::Dims> Hdf5File::dims(const std::string&) const { return none(); }
Status Hdf5File::read(const std::string&, std::span<float>) const { return none(); }
Result<std::int64_t> Hdf5File::integer(const std::string&) const { return none(); }
Result<std::string> Hdf5File::text(const std::string&) const { return none(); }
Status Hdf5File::put(const std::string&, const Dims&, std::span<const float>) { return none(); }
Status Hdf5File::put_integer(const std::string&, std::int32_t) { return none(); }
Status Hdf5File::put_text(const std::string&, const std::string&) { return none(); }
Status Hdf5File::append(const std::string&, const Dims&, std::span<const float>) { return none(); }

}  // namespace shoal

#endif
