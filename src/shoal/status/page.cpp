#include "shoal/status/pages.h"

namespace shoal {
namespace {

constexpr char kPage[] =
#include "shoal/status/page.inc"  // made of page.html
    ;

}  // namespace

std::string_view status_page() { return {kPage, sizeof kPage - 1}; }

}  // namespace shoal
