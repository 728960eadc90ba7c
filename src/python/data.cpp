#include "python/data.h"

#include <pybind11/numpy.h>

#include <cstring>

#include "shoal/base/text.h"
#include "shoal/data/image.h"
#include "shoal/data/record.h"

namespace shoal::python {
namespace {

namespace py = pybind11;

// Records, read in order. One thread at a time, which the interpreter's lock sees to.
class Records {
 public:
  Records(const std::string& path, const std::string& backend)
      : source_(or_throw(open_source(backend, path))) {}

  py::object next() {
    const std::optional<RecordView> record = or_throw(source_->next());
    if (!record) throw py::stop_iteration();
    return py::make_tuple(py::bytes(record->key.data(), record->key.size()),
                          py::bytes(record->value.data(), record->value.size()));
  }
  void seek(std::uint64_t position) { or_throw(source_->seek(position)); }
  std::uint64_t count() { return or_throw(source_->count()); }
  const std::string& path() const { return source_->path(); }

 private:
  std::unique_ptr<RecordSource> source_;
};

class Writer {
 public:
  Writer(const std::string& path, const std::string& backend, WriteMode mode)
      : writer_(or_throw(create_writer(backend, path, mode))) {}
  void put(std::string_view key, std::string_view value) {
    or_throw(open().put(key, value));
    if (++written_ % kRecordsPerCommit == 0) or_throw(open().commit());
  }
  void finish() {
    or_throw(open().finish());
    writer_.reset();
  }
  void discard() { writer_.reset(); }

 private:
  RecordWriter& open() const {
    if (!writer_) throw ConfigError(Code::kUsage, "the records were finished, or discarded");
    return *writer_;
  }
  std::unique_ptr<RecordWriter> writer_;
  std::int64_t written_ = 0;
};

WriteMode mode_of(const std::string& mode) {
  if (mode == "new") return WriteMode::kNew;
  if (mode == "truncate") return WriteMode::kTruncate;
  if (mode == "append") return WriteMode::kAppend;
  throw ConfigError(Code::kUsage, "mode '", mode, "' is none of new, truncate and append");
}

Colour colour_of(bool as_stored) { return as_stored ? Colour::kAsStored : Colour::kColour; }

py::array pixels_of(const Image& image) {
  py::array_t<std::uint8_t> array({image.size.height, image.size.width, image.size.channels});
  std::memcpy(array.mutable_data(), image.pixels.data(), image.pixels.size());
  return array;
}

}  // namespace

void bind_data(py::module_& module) {
  py::class_<Records>(module, "Records")
      .def(py::init<const std::string&, const std::string&>())
      .def("next", &Records::next)
      .def("seek", &Records::seek)
      .def("count", &Records::count)
      .def_property_readonly("path", &Records::path);
  py::class_<Writer>(module, "RecordWriter")
      .def(py::init(
          [](const std::string& path, const std::string& backend, const std::string& mode) {
            return std::make_unique<Writer>(path, backend, mode_of(mode));
          }))
      .def("put", &Writer::put)
      .def("finish", &Writer::finish)
      .def("discard", &Writer::discard);
  module.def("record_backends", &record_backends);
  module.def("read_image", [](const std::string& path, bool as_stored) {
    return pixels_of(or_throw(read_image(path, colour_of(as_stored), 0, 0)));
  });
  module.def("decode_image", [](std::string_view bytes, bool as_stored) {
    return pixels_of(or_throw(decode_image(bytes, colour_of(as_stored))));
  });
}

}  // namespace shoal::python
