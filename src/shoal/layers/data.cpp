// Data layer: reads batches of records from a database or a datumfile.
#include "shoal/data/items.h"
#include "shoal/layers/prefetching.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Records of a LevelDB, an LMDB or a datumfile, in their order or shuffled by seed, round and
// round; see PrefetchingLayer for the tops. Source: BVLC Caffe 1.0's Data layer; shuffle,
// in_memory, on_bad_record and decode_threads are ours.
class Data final : public PrefetchingLayer {
 public:
  using PrefetchingLayer::PrefetchingLayer;
  Arity arity() const override { return {.min_bottoms = 0, .max_bottoms = 0, .max_tops = 2}; }

 protected:
  Feed feed() const override {
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

  std::unique_ptr<ItemSource> open(const std::string& path, const SequenceOptions& sequence,
                                   Transform transform) override {
    const DataParameter& data = param().data_param();
    Result<std::unique_ptr<RecordSource>> source =
        open_source(DataParameter::DB_Name(data.backend()), path);
    if (source.ok() && data.in_memory()) source = load_source(std::move(source).value());
    if (!source.ok()) throw config_error(source.error().code, param(), source.error().message);
    Result<std::unique_ptr<ItemSource>> items =
        record_items(std::move(source).value(), sequence, std::move(transform),
                     static_cast<int>(data.batch_size()));
    if (!items.ok()) throw config_error(items.error().code, param(), items.error().message);
    return std::move(items).value();
  }

  TransformationParameter transformation() const override {
    TransformationParameter transform = param().transform_param();
    if (param().data_param().force_encoded_color()) transform.set_force_color(true);
    return transform;
  }
};

}  // namespace

std::unique_ptr<Layer> make_Data(const LayerParameter& param) {
  return std::make_unique<Data>(param);
}

}  // namespace shoal
