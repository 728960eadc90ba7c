// Asks the processor itself. Compiled for any processor, and called before main begins.
#include "shoal/base/processor.h"

#if defined(__x86_64__)

#include <cpuid.h>

#include <cstdint>

namespace shoal {
namespace {

// The register and the bit in which CPUID tells of a feature.
enum Register { kEax, kEbx, kEcx, kEdx };
struct Feature {
  int level;  // the lowest that asks for it
  const char* name;
  std::uint32_t leaf;
  Register where;
  int bit;
};
constexpr Feature kFeatures[] = {
    {2, "SSE3", 1, kEcx, 0},          {2, "SSSE3", 1, kEcx, 9},
    {2, "CMPXCHG16B", 1, kEcx, 13},   {2, "SSE4.1", 1, kEcx, 19},
    {2, "SSE4.2", 1, kEcx, 20},       {2, "POPCNT", 1, kEcx, 23},
    {2, "LAHF", 0x80000001, kEcx, 0}, {3, "AVX", 1, kEcx, 28},
    {3, "AVX2", 7, kEbx, 5},          {3, "FMA", 1, kEcx, 12},
    {3, "BMI1", 7, kEbx, 3},          {3, "BMI2", 7, kEbx, 8},
    {3, "F16C", 1, kEcx, 29},         {3, "LZCNT", 0x80000001, kEcx, 5},
    {3, "MOVBE", 1, kEcx, 22},        {3, "OSXSAVE", 1, kEcx, 27},
    {4, "AVX512F", 7, kEbx, 16},      {4, "AVX512BW", 7, kEbx, 30},
    {4, "AVX512CD", 7, kEbx, 28},     {4, "AVX512DQ", 7, kEbx, 17},
    {4, "AVX512VL", 7, kEbx, 31}};

bool has(const Feature& feature) {
  std::uint32_t registers[4] = {};
  return __get_cpuid_count(feature.leaf, 0, &registers[kEax], &registers[kEbx], &registers[kEcx],
                           &registers[kEdx]) != 0 &&
         (registers[feature.where] >> feature.bit & 1) != 0;
}

// Returns XCR0: the registers that the operating system saves when it changes from one thread to
// another. The processor must have OSXSAVE.
std::uint32_t saved_registers() {
  std::uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// Returns the words of a name, which is padded with blanks, with one blank between them.
std::string printed(const char* name) {
  std::string words;
  for (; *name != '\0'; ++name)
    if (*name != ' ' || (!words.empty() && words.back() != ' ')) words += *name;
  while (!words.empty() && words.back() == ' ') words.pop_back();
  return words.empty() ? "a processor without a name" : words;
}

}  // namespace

std::string missing_of_level(int level) {
  std::string missing;
  const auto add = [&missing](const char* name) {
    if (!missing.empty()) missing += ", ";
    missing += name;
  };
  for (const Feature& feature : kFeatures)
    if (feature.level <= level && !has(feature)) add(feature.name);
  if (level < 3 || !missing.empty()) return missing;
  constexpr std::uint32_t kAvx = 0x6, kAvx512 = 0xe6;
  const std::uint32_t needed = level < 4 ? kAvx : kAvx512;
  if ((saved_registers() & needed) != needed)
    add("an operating system that saves its vector registers");
  return missing;
}

std::string processor_name() {
  constexpr std::uint32_t kFirst = 0x80000002, kLast = 0x80000004;
  std::string name;
  for (std::uint32_t leaf = kFirst; leaf <= kLast; ++leaf) {
    std::uint32_t registers[4] = {};
    if (__get_cpuid(leaf, &registers[kEax], &registers[kEbx], &registers[kEcx], &registers[kEdx]) ==
        0)
      break;
    name.append(reinterpret_cast<const char*>(registers), sizeof registers);
  }
  return printed(name.c_str());
}

}  // namespace shoal

#else

namespace shoal {

std::string missing_of_level(int level) { return level > 1 ? "the instructions of x86-64" : ""; }
std::string processor_name() { return "a processor without a name"; }

}  // namespace shoal

#endif
