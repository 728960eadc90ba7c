#include "shoal/layers/record_layer.h"

#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

PrefetchingLayer::Feed RecordLayer::feed() const {
  const DataParameter& data = param().data_param();
  constexpr unsigned kMostThreads = 256;
  if (data.decode_threads() > kMostThreads)
    throw config_error(param(), "decode_threads is ", data.decode_threads(), "; at most ",
                       kMostThreads, " make sense");
  Feed feed;
  feed.path = data.source();
  feed.shared = data.shared_file_system();
  if (data.backend() == DataParameter::LEVELDB ||
      (data.backend() == DataParameter::ANY && looks_like(data.source()) == "leveldb"))
    feed.why_not_shared =
        "a LevelDB is made for one process at a time, and opening it the ordinary way rewrites "
        "files of it that others "
        "read: convert it to LMDB or a datumfile (convert_format), or cut it up (partition_data) "
        "and leave "
        "shared_file_system out";
  feed.batch_size = data.batch_size();
  feed.depth = data.prefetch();
  feed.threads = static_cast<int>(data.decode_threads());
  feed.on_bad = on_bad(data.on_bad_record());
  feed.shuffle = data.shuffle();
  feed.rand_skip = data.rand_skip();
  return feed;
}

std::unique_ptr<RecordSource> RecordLayer::open_records(const std::string& path) const {
  const DataParameter& data = param().data_param();
  Result<std::unique_ptr<RecordSource>> source =
      open_source(DataParameter::DB_Name(data.backend()), path);
  if (source.ok() && data.in_memory()) source = load_source(std::move(source).value());
  if (!source.ok()) throw config_error(source.error().code, param(), source.error().message);
  return std::move(source).value();
}

TransformationParameter RecordLayer::transformation() const {
  TransformationParameter transform = param().transform_param();
  if (param().data_param().force_encoded_color()) transform.set_force_color(true);
  return transform;
}

}  // namespace shoal
