// The files of the page as arrays; the build writes the source from apps/edgewise/explore/page/.
#pragma once

#include <cstddef>
#include <span>

namespace edgewise::app {

struct EmbeddedFile {
  const char* name;
  const unsigned char* bytes;
  std::size_t size;
};
extern const std::span<const EmbeddedFile> kPageBytes;

}  // namespace edgewise::app
