// Stands in for http_server.cpp where cpp-httplib was not found at configure time.
#include "explore/http_server.h"

#include <c10/util/Exception.h>

namespace edgewise::app {

void serve_http(const HttpServerOptions&) {
  TORCH_CHECK(false,
              "explore: expected a build with cpp-httplib to serve the page; this one has none. Install "
              "libcpp-httplib-dev and pkg-config (Debian, Ubuntu), then run cmake and build again; or use "
              "edgewise report, "
              "which writes the same page into a file");
}

}  // namespace edgewise::app
