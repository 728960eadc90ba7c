// Features that several clients extracted, put together.
#pragma once

#include <string>

namespace shoal {

class Interrupt;

// Makes `name` of `name`_0 ... `name`_<parts - 1>, all of `backend` ("leveldb", "lmdb", "datumfile"
// or "text"), in the order of their keys: numbers of ten digits, which rise within a part. Throws
// ConfigError, and leaves nothing, if a part is missing or damaged, a key is no such number, does
// not rise or is in two parts, or `name` exists. Numbers that no part has are warned of.
void merge_features(const std::string& backend, const std::string& name, int parts,
                    const Interrupt& interrupt);

}  // namespace shoal
