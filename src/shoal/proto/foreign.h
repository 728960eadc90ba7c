// Normalizes what other programs write into a model: Poseidon's field numbers, NVIDIA's raw values,
// double precision. Checks that each blob holds as many values as its shape says.
#pragma once

#include <string>

namespace shoal {

class BlobProto;
class NetParameter;

// Recognises a model written by Poseidon (a BlobProto with a varint as field 7 or 8) and gives its
// data layers back what Caffe's schema misreads: data_param 9 and image_data_param 11 are
// shared_file_system there. For `layers`, before they are upgraded.
void adopt_poseidon(NetParameter& net, const std::string& name);

// Reads the bytes of a model that a fork wrote, whose fields have numbers that mean others here: of
// each layer, a field that cannot be read is left out, and those that are read are kept. Returns
// false for bytes that are no model, or a damaged one.
bool read_fork_model(const std::string& bytes, const std::string& name, NetParameter& net);

// Takes away params of types that a layer is not of, which a fork's other fields of these numbers
// look like (ClipParameter could then not be written: it lacks numbers).
void drop_colliding_params(NetParameter& net);

// Brings the values of a blob to `data` and `diff`, from double_data, double_diff or NVIDIA's
// raw_data (FLOAT, FLOAT16 and DOUBLE). Throws ConfigError, starting with `where`, unless there are
// as many values as the shape says.
void settle_blob(BlobProto& blob, const std::string& where);

}  // namespace shoal
