// The instructions that the processor has, by the levels of x86-64.
#pragma once

#include <string>

namespace shoal {

// Returns which instructions of the level x86-64-v<level> (1 to 4, of the System V ABI) this
// processor lacks, or the operating system does not let it use: "AVX2, BMI2"; "" if none. Level 1
// is that of every x86-64 processor, and of other machines, which lack all above it. Source:
// Intel's and AMD's manuals on CPUID and XGETBV.
std::string missing_of_level(int level);

// Returns the name that the processor has for itself, "AMD EPYC 9454 48-Core Processor", or "a
// processor without a name".
std::string processor_name();

}  // namespace shoal
